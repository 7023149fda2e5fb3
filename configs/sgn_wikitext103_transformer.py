"""WikiText-103, the Transformer beside SGN: softmax attention of 12 heads, the same blocks.

Parameters: 124,018,944, and 121,668,864 of sgn_wikitext103.
Command: python launch/main.py --config=configs/sgn_wikitext103_transformer.py --job=plan
Cost: 92,000 steps of 256 x 512 tokens, 100 epochs. Hardware: 8 GPUs or a TPU slice. Result: not run
yet (the paper: perplexity 18.3).
"""

from configs import base


def get_config():
  c = base.sgn()
  c.model.mixer = 'softmax'
  return c
