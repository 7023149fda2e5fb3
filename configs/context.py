"""Quality against context: does EGA gain from more of it, and do causal SGN's kernels use it?

Command: python launch/main.py --config=configs/context.py --job=sweep --config.data.path=input.txt
  (a part of it: --only=sgn,context-256; TinyShakespeare by TFDS without data.path)
Cost: 5,000 steps of 8,192 characters, 75 runs. Hardware: one GPU, or two CPU cores for some days.
Result: not run yet at full size. Rows and their number change together, so that every run sees the
same number of characters; the validation split is read whole, each character with at least half of
the context before it.
"""

from configs import base


def get_config():
  c = base.tiny_shakespeare()
  c.model.layers = 4
  c.model.width = 128
  c.model.heads = 4
  c.optim.lr = 1e-3
  c.train.keep = 1
  return c


def sweep():
  rows = {n: {'model.context': n, 'train.batch': 8192 // n} for n in (64, 128, 256, 512, 1024)}
  return {
    'mixer': {
      'softmax': {'model.mixer': 'softmax'},
      'ega-query': {'model.mixer': 'ega'},
      'ega-prefix': {'model.mixer': 'ega', 'model.ega.znorm': 'prefix'},
      'ega-sequence-LEAKY': {
        'model.mixer': 'ega', 'model.form': 'published', 'allow_leak': True,
      },
      'sgn': {'model.mixer': 'sgn'},
    },
    'context': {str(n): keys for n, keys in rows.items()},
    'seed': (0, 1, 2),
  }  # fmt: skip
