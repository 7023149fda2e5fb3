"""The small twin of a config, which the audit, the tests and the notebooks share."""

import math

from ml_collections import ConfigDict

from sgnjax.mixers import MIXERS
from sgnjax.mixers.ega import WAVELETS
from sgnjax.models import option_groups, resolve_stack
from sgnjax.ops.entropy import white_entropy


def shrink(
  config: ConfigDict, *, vocab: int = 61, width: int = 32, context: int = 1024
) -> ConfigDict:
  """A twin with the same kinds of layers, forms and options, small enough to try in seconds.

  Width, heads, depth (each group once or twice), vocabulary and the run's sizes shrink; the context
  stays at min(context, 1024), since what leaks may need the length. An image grid shrinks on its
  longer side, and the context with it; so does an image. Options that count coefficients, bins,
  levels or groups stay within what the twin has. CHIAR's thresholds move with the mean entropy of
  white noise, so that the twin routes both ways. Never larger than the config. Raises UserError as
  `resolve_stack`.
  """
  twin = config.copy_and_resolve_references().unlock()
  m = twin.model
  m.stack = tuple((unit, min(repeats, 2)) for unit, repeats in resolve_stack(config))
  m.layers = sum(len(unit) * repeats for unit, repeats in m.stack)
  m.width = min(m.width, width)
  m.heads = math.gcd(m.heads, 4)
  m.context = min(m.context, context)
  m.vocab = vocab
  if twin.data.task == 'classify':
    m.classes = min(m.classes or 2, 16)
  m.vocab_multiple = 16
  m.dropout = 0.0
  if m.image is not None:
    _fit_image(m)
  kinds = (MIXERS[name] for unit, _ in m.stack for name in unit)
  _fit(m, config.model, {group for kind in kinds for group in option_groups(kind)})
  twin.train.steps = min(twin.train.steps, 2)
  twin.train.batch = 2
  twin.train.accumulation = min(twin.train.accumulation, 2)
  twin.optim.warmup = min(twin.optim.warmup, 1)
  twin.eval.batch = 2
  twin.eval.batches = 2
  return twin.lock()


def _fit(m: ConfigDict, whole: ConfigDict, groups: set[str]) -> None:
  """Options of the twin's mixers within its sizes; what contradicts itself is left as it is."""
  if 'chiar' in groups:
    for key in ('tau', 'tau_low'):
      m.chiar[key] += white_entropy(m.width) - white_entropy(whole.width)
  if 'sgn' in groups and m.sgn.groups > 0 and whole.width % m.sgn.groups == 0:
    m.sgn.groups = math.gcd(m.sgn.groups, m.width)
  if m.context == whole.context:
    return
  if 'sgn' in groups:
    grid = m.sgn.grid if m.image is None else None
    if grid and all(type(side) is int for side in grid) and math.prod(grid) == whole.context:
      m.sgn.grid = _smaller(grid, m.context)
      m.context = math.prod(m.sgn.grid)
    if m.sgn.retained is not None:
      m.sgn.retained = min(m.sgn.retained, m.context // 2 + 1)
    m.sgn.resolutions = min(m.sgn.resolutions, m.context.bit_length())
  if 'fourier_qk' in groups:
    m.fourier_qk.bins = tuple(min(b, m.context // 2) for b in m.fourier_qk.bins)
  if 'ega' in groups:
    levels = min(m.ega.levels, max(1, m.context.bit_length() - 1))
    if m.ega.energy in WAVELETS:
      for key in ('alpha', 'tau'):  # one number for all scales, or one each
        each = m.ega[key]
        m.ega[key] = each[: max(1, len(each) - (m.ega.levels - levels))]
    m.ega.levels = levels


def _fit_image(m: ConfigDict) -> None:
  """An image of no more patches than the context, and the context and the grid that it makes."""
  rows, columns, channels = m.image
  cls = m.pooling == 'cls'
  grid = _smaller((rows // m.patch, columns // m.patch), max(1, m.context - cls))
  m.image = (grid[0] * m.patch, grid[1] * m.patch, channels)
  m.context = math.prod(grid) + cls
  if m.sgn.grid is not None:
    m.sgn.grid = grid


def _smaller(grid: tuple[int, int], most: int) -> tuple[int, int]:
  """The grid with its longer side halved until it has no more patches than that."""
  sides = list(grid)
  while math.prod(sides) > most:
    longer = sides.index(max(sides))
    sides[longer] = (sides[longer] + 1) // 2
  return tuple(sides)
