"""CHIAR-Former 400M (v3): 28 layers, width 1024, WikiText-103, 400,043,009 parameters.

Command: python launch/main.py --config=configs/chiar_400m.py --job=plan
Cost: see the plan. Hardware: 8 GPUs or a TPU slice. Result: not run yet (the paper, on
WikiText-103: perplexity 27.51).
tau: 0.8947, the mean spectral entropy of white noise at width 1024; the paper's 0.8954 belongs to
its own DCT scaling (--config.model.chiar.released=True). Not calibrated on text.
"""

from configs import base


def get_config():
  return base.chiar_400m()
