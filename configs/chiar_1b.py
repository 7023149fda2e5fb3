"""CHIAR-Former above a billion parameters, the paper's future work: 22 layers, width 2048.

Command: python launch/main.py --config=configs/chiar_1b.py --job=plan --config.target=v5e-64
Cost: see the plan. Hardware: 8 GPUs of 80 GB or more, or a TPU slice of 64. Result: not run yet.
tau: 0.9043, the mean spectral entropy of white noise at width 2048. Not calibrated on text.
"""

from configs import base


def get_config():
  c = base.chiar_400m()
  c.model.layers = 22
  c.model.width = 2048
  c.model.heads = 16
  c.model.context = 1024
  c.model.remat = 'dots'
  c.model.chiar.tau = 0.9043
  c.data.stride = 1024
  c.train.batch = 512
  c.train.accumulation = 4
  c.train.steps = 40_000
  c.optim.warmup = 2000
  return c
