"""CHIAR-Former 16M: 4 layers, width 256, context 256, 15,764,225 parameters.

Command: python launch/main.py --config=configs/chiar_16m.py --job=plan
Cost: see the plan. Hardware: one GPU. Result: not run yet.
Its baseline: --config.model.mixer=chiar_attention (16,025,344 parameters).
tau: 0.869, the mean spectral entropy of white noise at width 256, not one
calibrated on text.
"""

from configs import base


def get_config():
  c = base.chiar_400m()
  c.model.layers = 4
  c.model.width = 256
  c.model.heads = 4
  c.model.chiar.tau = 0.869
  c.train.steps = 35_000  # 10 epochs
  c.optim.warmup = 500
  return c
