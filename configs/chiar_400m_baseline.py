"""The Transformer beside CHIAR 400M: attention in all 28 layers, 404,159,488 parameters.

Command: python launch/main.py --config=configs/chiar_400m_baseline.py --job=plan
Cost: see the plan. Hardware: 8 GPUs or a TPU slice. Result: not run yet (the paper, on
WikiText-103: perplexity 23.58).
"""

from configs import base


def get_config():
  c = base.chiar_400m()
  c.model.mixer = 'chiar_attention'
  return c
