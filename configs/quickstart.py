"""Quickstart: gated causal SGN learns English from the text inside Python itself.

Command: python launch/main.py --config=configs/quickstart.py
Cost: 300 steps of 32 x 128 characters, no download. Hardware: two CPU cores, about two minutes.
Result: 2.81 bits a byte on Python 3.11's text, against 4.76 from token frequencies alone.
"""

from configs import base


def get_config():
  c = base.get_config()
  c.model.mixer = 'sgn'
  c.train.steps = 300
  c.train.eval_every = 100
  c.train.checkpoint_every = 100
  c.optim.warmup = 30
  return c
