"""TinyShakespeare, FourierQK: learned Gaussian band-pass on Q and K, causal one-sided kernel.

Command: python launch/main.py --config=configs/shakespeare_fourier_qk.py
  (published filter, sees the future: --config.model.form=published --config.allow_leak=True)
Cost: 5,000 steps of 64 x 256 tokens. Hardware: one GPU. Result: not run yet at full size (the
paper, leak included: 0.326 nats).
"""

from configs import base


def get_config():
  c = base.tiny_shakespeare()
  c.model.mixer = 'fourier_qk'
  c.model.tied = False
  c.model.out_bias = False
  c.optim.warmup = 200
  return c
