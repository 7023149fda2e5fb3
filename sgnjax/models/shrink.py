"""The small twin of a config, which the audit, the tests and the notebooks share."""

import math

from ml_collections import ConfigDict

from sgnjax.models import resolve_stack
from sgnjax.ops.entropy import white_entropy


def shrink(config: ConfigDict, *, vocab: int = 61, width: int = 32) -> ConfigDict:
  """A twin with the same kinds of layers, forms and options, small enough to try in seconds.

  Width, heads, depth (each group once or twice), vocabulary and the run's sizes shrink; the context
  stays at min(context, 1024), since what leaks may need the length. CHIAR's thresholds move with
  the mean entropy of white noise, so that the twin routes both ways. Never larger than the config.
  """
  twin = config.copy_and_resolve_references().unlock()
  m = twin.model
  m.stack = tuple((unit, min(repeats, 2)) for unit, repeats in resolve_stack(config))
  m.layers = sum(len(unit) * repeats for unit, repeats in m.stack)
  m.width = min(m.width, width)
  m.heads = math.gcd(m.heads, 4)
  m.context = min(m.context, 1024)
  m.vocab = vocab
  m.vocab_multiple = 16
  m.dropout = 0.0
  for key in ('tau', 'tau_low'):
    m.chiar[key] += white_entropy(m.width) - white_entropy(config.model.width)
  twin.train.steps = min(twin.train.steps, 2)
  twin.train.batch = 2
  twin.train.accumulation = min(twin.train.accumulation, 2)
  twin.optim.warmup = min(twin.optim.warmup, 1)
  twin.eval.batch = 2
  twin.eval.batches = 2
  return twin.lock()
