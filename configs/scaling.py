"""What a longer sequence costs: the model whose step --job=scaling measures with every mixer.

Command: python launch/main.py --config=configs/scaling.py --job=scaling
Cost: 72 programs to compile, steps of up to 20 s each. Hardware: two CPU cores, a quarter of an
hour. Result: docs/results/scaling.md; SGN and linear attention grow as the length, to 262,144
tokens.
"""

from configs import base


def get_config():
  c = base.get_config()
  c.model.layers = 3  # CHIAR: one of DCT, one routed, one of attention
  c.model.width = 32
  c.model.heads = 2
  c.model.positions = 'none'  # a learned one would be a parameter a token
  c.model.vocab = 64
  c.model.remat = 'all'
  c.train.batch = 1
  return c
