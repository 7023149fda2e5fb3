"""IMDB reviews, bidirectional SGN: a review's sentiment from its first 256 words.

Command: python launch/main.py --config=configs/imdb.py
  (plain files instead of TFDS: --config.data.path=FOLDER; baselines: --config.model.mixer=softmax;
  FNet, whose FFT reads padding: --config.model.mixer=fnet --config.data.mask_padding=false;
  sentences of SST-2 in plain files: --config.data.name=sst2 --config.data.path=FOLDER)
Cost: 2,000 steps of 32 reviews, 3 epochs. Hardware: one GPU. Result: not run yet at full size; the
classes are balanced, so that 50 % is chance.
"""

from configs import base


def get_config():
  c = base.get_config()
  c.model.mixer = 'sgn'
  c.model.form = 'bidirectional'
  c.model.context = 256
  c.model.dropout = 0.1
  c.data.name = 'imdb_reviews'
  c.data.task = 'classify'
  c.data.tokenizer = 'word'
  c.data.vocab_size = 20_000
  c.train.steps = 2000
  c.optim.warmup = 100
  return c
