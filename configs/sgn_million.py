"""A million tokens in one sequence: small causal SGN, its length over all devices.

Command: python launch/main.py --config=configs/sgn_million.py --config.data.name=text
--config.data.path=FILE (of three million characters or more)
Cost: 1 sequence of 1,048,576 tokens a step. Hardware: 8 devices of 1 GB or more. Result: two steps
on random tokens, docs/results/long_sequence.md.
"""

from configs import base


def get_config():
  c = base.get_config()
  c.model.mixer = 'sgn'
  c.model.layers = 2
  c.model.width = 32
  c.model.heads = 1
  c.model.context = 2**20
  c.model.remat = 'all'
  c.data.stride = 2**16
  c.train.batch = 1
  c.eval.batch = 1
  c.mesh.data = 1
  c.mesh.sequence = -1
  return c
