"""TinyShakespeare, CHIAR-Former: entropy routing between DCT and attention, causal MetaRouter.

Command: python launch/main.py --config=configs/shakespeare_chiar.py
Cost: 5,000 steps of 64 x 256 tokens. Hardware: one GPU. Result: not run yet at full size.
tau: 0.8706, by --job=calibrate on 2026-11-30 from the embeddings of the train split's tokens under
the initial weights of seed 0; white noise has 0.8684 on average. Calibrate again with trained ones.
"""

from configs import base


def get_config():
  c = base.tiny_shakespeare()
  c.model.mixer = 'chiar'
  c.model.block = 'chiar'
  c.model.positions = 'rope'
  c.model.qkv_bias = True
  c.model.chiar.tau = 0.8706
  c.model.chiar.calibrated = 'dct'
  return c
