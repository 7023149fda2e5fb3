"""TinyShakespeare by masked characters, FourierQK: where a filter over the whole row is legitimate.

Command: python launch/main.py --config=configs/fourier_qk_mlm.py
  (the dot product at equal steps: --config.model.mixer=softmax; a local file instead of TFDS:
  --config.data.path=input.txt)
Cost: 5,000 steps of 64 x 256 characters, 15 % of them asked for. Hardware: one GPU. Result: not run
yet at full size (the paper has no such run: it names the use).
"""

from configs import base


def get_config():
  c = base.tiny_shakespeare()
  c.model.mixer = 'fourier_qk'
  c.model.form = 'bidirectional'
  c.model.tied = False
  c.model.out_bias = False
  c.data.task = 'mlm'
  c.optim.warmup = 200
  return c
