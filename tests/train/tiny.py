"""A run that takes a second, on a text whose epochs end in the middle of a batch."""

from pathlib import Path

from ml_collections import ConfigDict

from configs import base
from sgnjax import audit

TEXT = 'the quick brown fox jumps over the lazy dog; pack my box with five dozen jugs. ' * 8


def tiny(folder: Path, **changes) -> ConfigDict:
  """The config; `changes` are dotted keys with __ for the dot."""
  path = folder / 'text.txt'
  path.write_text(TEXT)
  c = base.get_config().unlock()
  c.data.name, c.data.path, c.data.threads, c.data.stride = 'text', str(path), 0, 5
  c.model.layers, c.model.width, c.model.heads, c.model.context = 1, 16, 2, 16
  c.model.vocab_multiple = 8
  c.train.steps, c.train.batch, c.train.log_every = 20, 8, 4
  c.train.eval_every, c.train.checkpoint_every = 10, 10
  c.train.compile_cache = False
  c.optim.warmup = 2
  c.eval.batch = 8
  for key, value in changes.items():
    *groups, leaf = key.split('__')
    node = c
    for group in groups:
      node = node[group]
    node[leaf] = value
  return c.lock()


def leave_out_audit() -> None:
  """For processes whose model was audited in another one."""
  seen = audit.Report((audit.Row('elsewhere', None, 0.0, 0.0, 0.0),), 'softmax', 0, 0, True)
  audit.twin_report = lambda *_, **__: seen
