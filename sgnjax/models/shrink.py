"""The small twin of a config, which the audit, the tests and the notebooks share."""

import math

from ml_collections import ConfigDict

from sgnjax.errors import UserError
from sgnjax.mixers.ega import WAVELETS
from sgnjax.models import resolve_stack
from sgnjax.ops.entropy import white_entropy


def shrink(
  config: ConfigDict, *, vocab: int = 61, width: int = 32, context: int = 1024
) -> ConfigDict:
  """A twin with the same kinds of layers, forms and options, small enough to try in seconds.

  Width, heads, depth (each group once or twice), vocabulary and the run's sizes shrink; the context
  stays at min(context, 1024), since what leaks may need the length. An image grid shrinks on its
  longer side, and the context with it. Options that count coefficients, bins, levels or groups stay
  within what the twin has. CHIAR's thresholds move with the mean entropy of white noise, so that
  the twin routes both ways. Never larger than the config. Raises UserError for a config without
  the options that are shrunk, as an older version left it in a workdir.
  """
  for key in ('sgn.groups', 'sgn.grid', 'fourier_qk.bins', 'ega.levels', 'chiar.tau_low'):
    group, name = key.split('.')
    if name not in config.model[group]:
      raise UserError(
        f"the config has no key 'model.{key}': an older version left it; train it again, or go on "
        'with the version that did'
      )
  twin = config.copy_and_resolve_references().unlock()
  m = twin.model
  m.stack = tuple((unit, min(repeats, 2)) for unit, repeats in resolve_stack(config))
  m.layers = sum(len(unit) * repeats for unit, repeats in m.stack)
  m.width = min(m.width, width)
  m.heads = math.gcd(m.heads, 4)
  m.context = min(m.context, context)
  m.vocab = vocab
  m.vocab_multiple = 16
  m.dropout = 0.0
  _fit(m, config.model)
  for key in ('tau', 'tau_low'):
    m.chiar[key] += white_entropy(m.width) - white_entropy(config.model.width)
  twin.train.steps = min(twin.train.steps, 2)
  twin.train.batch = 2
  twin.train.accumulation = min(twin.train.accumulation, 2)
  twin.optim.warmup = min(twin.optim.warmup, 1)
  twin.eval.batch = 2
  twin.eval.batches = 2
  return twin.lock()


def _fit(m: ConfigDict, whole: ConfigDict) -> None:
  """Options of the twin's mixers within its sizes; what contradicts itself is left as it is."""
  if m.sgn.groups > 0 and whole.width % m.sgn.groups == 0:
    m.sgn.groups = math.gcd(m.sgn.groups, m.width)
  if m.context == whole.context:
    return
  grid = m.sgn.grid if any('sgn' in unit for unit, _ in m.stack) else None
  if grid and all(type(side) is int for side in grid) and math.prod(grid) == whole.context:
    m.sgn.grid = _smaller(grid, m.context)
    m.context = math.prod(m.sgn.grid)
  if m.sgn.retained is not None:
    m.sgn.retained = min(m.sgn.retained, m.context // 2 + 1)
  m.sgn.resolutions = min(m.sgn.resolutions, m.context.bit_length())
  m.fourier_qk.bins = tuple(min(b, m.context // 2) for b in m.fourier_qk.bins)
  levels = min(m.ega.levels, max(1, m.context.bit_length() - 1))
  if m.ega.energy in WAVELETS:
    for key in ('alpha', 'tau'):  # one number for all scales, or one each
      each = m.ega[key]
      m.ega[key] = each[: max(1, len(each) - (m.ega.levels - levels))]
  m.ega.levels = levels


def _smaller(grid: tuple[int, int], most: int) -> tuple[int, int]:
  """The grid with its longer side halved until it has no more patches than that."""
  sides = list(grid)
  while math.prod(sides) > most:
    longer = sides.index(max(sides))
    sides[longer] = (sides[longer] + 1) // 2
  return tuple(sides)
