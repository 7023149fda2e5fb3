"""TinyShakespeare, gated causal SGN: a one-sided kernel with the learned gate as response.

Command: python launch/main.py --config=configs/shakespeare_sgn.py
Cost: 5,000 steps of 64 x 256 tokens. Hardware: one GPU. Result: not run yet at full size (the
paper has no run on this text).
"""

from configs import base


def get_config():
  c = base.tiny_shakespeare()
  c.model.mixer = 'sgn'
  return c
