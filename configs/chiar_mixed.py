"""CHIAR-Former 400M on a mixture: WikiText-103, and at each fourth step one of three others.

Command: python launch/main.py --config=configs/chiar_mixed.py --job=plan
Cost: as chiar_400m, and a quarter of its steps have a second batch. Hardware: 8 GPUs or a TPU
slice. Result: not run yet (the paper: perplexity 28.56 on WikiText-103, against 27.51 without).
WikiText-2 shares its held-out text with WikiText-103: its loss is no other test. Rows of
ListOps have up to 2,000 symbols, and this context takes their first 256.
tau: 0.8947, that of chiar_400m: white noise at width 1024, not calibrated on text.
"""

from configs import base


def get_config():
  c = base.chiar_400m()
  c.data.mixture = (('wikitext2', 1.0), ('imdb_reviews', 1.0), ('list_ops', 1.0))
  c.data.mixture_rate = 0.25
  return c
