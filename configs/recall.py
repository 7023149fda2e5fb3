"""Recall tasks, where only what stood far before answers: mixers, lengths and seeds in one sweep.

Command: python launch/main.py --config=configs/recall.py --job=sweep
  (a part of it: --only=mqar,sgn or --only=length-64,seed-0; one run of it, other sizes:
  --config.data.name=recall/copying --config.model.mixer=ega without --job=sweep)
Cost: 1,000 (induction) or 1,200 steps of 4,096 symbols, 162 runs. Hardware: two CPU cores, each
with a run of its own: about a minute a run. Result: docs/results/recall.md, of
`induction` and `mqar` and seed 0.

Settings are from single trials of softmax attention, which differ in more than one thing. `mqar`
with two heads at a learning rate of 3e-3 stayed a guess for 1,500 steps (64 symbols, up to 8 pairs,
half the symbols a step); at 1e-3 and 128 symbols it did for 1,000 with an FFN of width 256, and was
learnt in 700 to 900 with one of 64; with one head and one of 64, in 500. `induction` at 32 symbols
was learnt sooner the larger the rate: 80 % after 1,000 steps at 2e-3, 85 % at 4e-3.
"""

from configs import base

ROPE = {'model.positions': 'rope'}


def get_config():
  c = base.get_config()
  c.model.positions = 'rope'
  c.model.layers = 2
  c.model.width = 64
  c.model.heads = 1
  c.model.ffn = 1
  c.model.context = 32
  c.model.scan_unroll = 2
  c.data.name = 'recall/mqar'
  c.data.task = 'recall'
  c.train.steps = 1000
  c.train.batch = 128
  c.train.log_every = 100
  c.train.eval_every = 400
  c.train.checkpoint_every = 400
  c.train.keep = 1
  c.optim.lr = 2e-3
  c.optim.weight_decay = 0.01
  c.optim.warmup = 100
  c.eval.batch = 100
  return c


def sweep():
  # White noise of width 64 has this spectral entropy on average: about half of random vectors are
  # above it. The first layer of CHIAR mixes channels alone: it has two that mix tokens, as others.
  chiar = {'model.mixer': 'chiar', 'model.block': 'chiar', 'model.layers': 3}
  chiar['model.chiar.tau'] = 0.8246
  return {
    'task': {
      name: {'data.name': f'recall/{name}', 'train.steps': steps}
      for name, steps in (('induction', 1000), ('mqar', 1200), ('copying', 1200))
    },
    'mixer': {
      'softmax': {'model.mixer': 'softmax', **ROPE},
      'ega': {'model.mixer': 'ega', **ROPE},
      'fourier_qk-fir': {
        'model.mixer': 'fourier_qk',
        'model.fourier_qk.kernel': 'taps',
        'model.fourier_qk.filter': 'morlet',
        **ROPE,
      },
      'chiar': {**chiar, **ROPE},
      'sgn': {'model.mixer': 'sgn', 'model.positions': 'learned'},
      'uniform': {'model.mixer': 'uniform', 'model.positions': 'learned'},
    },
    'length': {
      str(n): {'model.context': n, 'train.batch': 4096 // n, 'optim.lr': lr}
      for n, lr in ((32, 4e-3), (64, 2e-3), (128, 2e-3))
    },
    'seed': (0, 1, 2),
  }
