"""TinyShakespeare, CHIAR-Former: entropy routing between DCT and attention, causal MetaRouter.

Command: python launch/main.py --config=configs/shakespeare_chiar.py
Cost: 5,000 steps of 64 x 256 tokens. Hardware: one GPU. Result: not run yet at full size.
tau: 0.869, the mean spectral entropy of white noise at width 256, not one
calibrated on text.
"""

from configs import base


def get_config():
  c = base.tiny_shakespeare()
  c.model.mixer = 'chiar'
  c.model.block = 'chiar'
  c.model.positions = 'rope'
  c.model.qkv_bias = True
  c.model.chiar.tau = 0.869
  return c
