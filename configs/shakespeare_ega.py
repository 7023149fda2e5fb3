"""TinyShakespeare, EGA-1: attention with a linear energy gate, causal `query` statistics.

Command: python launch/main.py --config=configs/shakespeare_ega.py
Cost: 5,000 steps of 64 x 256 tokens. Hardware: one GPU. Result: not run yet at full size (the
paper, with statistics over the whole sequence, which see the future: 1.3712 nats).
"""

from configs import base


def get_config():
  c = base.tiny_shakespeare()
  c.model.mixer = 'ega'
  return c
