"""WikiText-2, gated causal SGN at the size of its paper: a day's stand-in for WikiText-103.

Command: python launch/main.py --config=configs/sgn_wikitext2.py --job=plan
  (baselines: --config.model.mixer=softmax, linear or performer; plain files instead of TFDS:
  --config.data.path=FOLDER; GPT-2's tokens from a folder: --config.data.tokenizer_path=FOLDER)
Cost: 6,000 steps of 32 x 512 tokens, 40 epochs. Hardware: one GPU. Result: not run yet at full size
(the paper has no run on this text). A model of this size learns the text by heart: the best
checkpoint is what counts, and dropout may want more than 0.1.
"""

from configs import base


def get_config():
  c = base.sgn()
  c.data.name = 'wikitext2'
  c.train.steps = 6000
  c.train.batch = 32
  c.train.eval_every = 500
  c.train.checkpoint_every = 500
  c.optim.warmup = 500
  return c
