"""Penn Treebank by characters, EGA-1: attention with a linear energy gate, `query` statistics.

Command: python launch/main.py --config=configs/ega_ptb.py
  (plain files instead of TFDS: --config.data.path=FOLDER; the baseline:
  --config.model.mixer=softmax; as published, sees the future: --config.model.form=published
  --config.allow_leak=True)
Cost: 5,000 steps of 64 x 256 characters. Hardware: one GPU. Result: not run yet at full size (the
paper: 0.9889 nats with statistics over the whole sequence, against 1.0897 without the gate).
"""

from configs import base


def get_config():
  c = base.tiny_shakespeare()
  c.model.mixer = 'ega'
  c.model.vocab = 50
  c.data.name = 'ptb/char'
  return c
