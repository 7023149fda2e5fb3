"""Gap against audit: small models of TinyShakespeare, causal ones and published ones that leak.

Command: python launch/main.py --config=configs/leakage.py --job=sweep --config.data.path=input.txt
  then: python -m sgnjax.analysis.leakage_page docs/results/leakage.md runs/leakage/mixer-*
Cost: 2,000 steps of 16 x 64 characters, 10 runs. Hardware: two CPU cores, a quarter of
an hour. Result: docs/results/leakage.md; of five forms that leak the gap calls none leaky. Numbers
of the published forms are LEAKY.
"""

from configs import base


def get_config():
  c = base.tiny_shakespeare()
  c.allow_leak = True
  c.model.layers = 2
  c.model.width = 64
  c.model.heads = 4
  c.model.context = 64
  c.model.dropout = 0.0
  c.model.scan_unroll = 2
  c.train.steps = 2000
  c.train.batch = 16
  c.train.log_every = 100
  c.train.eval_every = 500
  c.train.checkpoint_every = 1000
  c.train.keep = 1
  c.optim.lr = 3e-3
  c.optim.warmup = 100
  return c


def sweep():
  published = {'model.form': 'published'}
  fourier_qk = {'model.mixer': 'fourier_qk'}
  chiar = {'model.mixer': 'chiar', 'model.block': 'chiar', 'model.chiar.tau': 0.8246}
  chiar |= {'model.positions': 'rope', 'model.layers': 3}
  return {
    'mixer': {
      'softmax': {'model.mixer': 'softmax'},
      'uniform': {'model.mixer': 'uniform'},
      'sgn': {'model.mixer': 'sgn'},
      'ega': {'model.mixer': 'ega'},
      'ega-published': {'model.mixer': 'ega', **published},
      'chiar': chiar,
      'chiar-published': {**chiar, **published},
      'sgn-published': {'model.mixer': 'sgn', **published},
      'fourier_qk-published-0.5': {
        **fourier_qk, **published, 'model.fourier_qk.sigma': 0.5,
      },
      'fourier_qk-published-16': {
        **fourier_qk, **published, 'model.fourier_qk.sigma': 16.0,
      },
    }
  }  # fmt: skip
