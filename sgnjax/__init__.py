"""A JAX laboratory for spectral sequence models.

    run = sgnjax.train('configs/quickstart.py')
    model, params, tokenizer = sgnjax.load(run.workdir)
    report = sgnjax.audit(my_function, vocab=100)
    sgnjax.register('decay', MyMixer)

Everything is imported when it is first asked for.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # what a reader of types sees of the names below
  from sgnjax import config, errors, mixers, models
  from sgnjax.api import Run, audit, load, train
  from sgnjax.mixers import register

  __version__: str

__all__ = [
  'Run', 'audit', 'config', 'errors', 'load', 'mixers', 'models', 'register', 'train',
]  # fmt: skip

_FROM = {'Run': 'sgnjax.api', 'load': 'sgnjax.api', 'register': 'sgnjax.mixers'}
_MODULES = ('audit', 'config', 'errors', 'mixers', 'models', 'train')

if not TYPE_CHECKING:  # for whom any name would do

  def __getattr__(name: str):
    if name in _FROM:
      return getattr(importlib.import_module(_FROM[name]), name)
    if name in _MODULES:
      return importlib.import_module(f'sgnjax.{name}')
    if name == '__version__':
      return importlib.import_module('importlib.metadata').version('sgnjax')
    raise AttributeError(f"module 'sgnjax' has no attribute '{name}'")


def __dir__() -> list[str]:
  return sorted({*globals(), *__all__, '__version__'})
