"""Who sees what: replace tokens, and compare everything that may not have changed.

Perturb and compare, never differentiate: a hard route has no gradient and still leaks. All
comparisons are between runs of one compiled program, so that a sum is never reordered.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from sgnjax.errors import UserError

TOLERANCE = 1e-9  # of the logits' scale, where an FFT spreads rounding over the sequence
TAIL = 8  # tokens decoded one by one

# tokens_BL -> logits_BLV, or (logits_BLV, {layer name: hidden_BLD} in order)
Apply = Callable[[np.ndarray], object]


@dataclasses.dataclass(frozen=True)
class Row:
  """One comparison: what was replaced, from which position, and what changed that should not have.

  difference: largest change of a logit; relative: over the largest logit; NaN where nothing was
  compared (`note` says why). limit: the relative change from which on the row fails; 0: any change.
  layer: the first one whose output changed, where the caller gives hidden states.
  """

  check: str
  position: int | None
  difference: float
  relative: float
  limit: float
  layer: str = ''
  note: str = ''

  @property
  def fails(self) -> bool:
    return bool(self.relative > self.limit)


def perturbed_positions(length: int) -> list[int]:
  """Start, middle, near the end and last: where the replaced part begins."""
  wanted = {1, length // 8, length // 2, length - 2, length - 1}
  return sorted(t for t in wanted if 1 <= t < length)


def replaced(tokens_BL: np.ndarray, where_BL: np.ndarray, vocab: int, rng) -> np.ndarray:
  """Every token of `where_BL` turned into another of the vocabulary."""
  shift_BL = rng.integers(1, vocab, size=tokens_BL.shape)
  return np.where(where_BL, (tokens_BL + shift_BL) % vocab, tokens_BL).astype(tokens_BL.dtype)


def compare(
  apply: Apply,
  tokens_BL: np.ndarray,
  *,
  vocab: int,
  positions: Sequence[int] | None = None,
  limit: float = 0.0,
  seed: int = 0,
  suffix: str = '',
) -> list[Row]:
  """Replaces later tokens, then other examples, and compares the logits that must not change.

  apply: any function of tokens (B, L), int32, to logits (B, L, at least vocab columns), or to
  (logits, hidden states by layer in order); it must run one compiled program. positions: where the
  replaced part begins. limit: see `Row`. suffix: ends the names of the checks.
  Raises UserError where the logits are not finite or depend on no token: that would prove nothing.
  """
  if vocab < 2:
    raise UserError(f'an audit replaces tokens by others, but the vocabulary has {vocab}')
  length = tokens_BL.shape[1]
  rng = np.random.default_rng(seed)
  before = _Run(apply(tokens_BL), vocab)
  at_L = np.arange(length)
  rows, moved = [], False
  for t in perturbed_positions(length) if positions is None else positions:
    where_BL = np.broadcast_to(at_L >= t, tokens_BL.shape)
    after = _Run(apply(replaced(tokens_BL, where_BL, vocab, rng)), vocab)
    rows.append(_row(f'later tokens{suffix}', t, before, after, ~where_BL, limit))
    moved = moved or before.difference(after, where_BL) > 0
  everywhere = np.ones(tokens_BL.shape, bool)
  others = functools.partial(replaced, where_BL=everywhere, vocab=vocab, rng=rng)
  for row, difference in _others(before, apply, tokens_BL, others, limit, suffix):
    rows.append(row)
    moved = moved or difference > 0
  if not moved:
    raise UserError('the logits do not depend on the tokens at all: an audit would prove nothing')
  return rows


def compare_padding(
  apply: Callable[[np.ndarray, np.ndarray], object],
  tokens_BL: np.ndarray,
  *,
  vocab: int,
  limit: float = 0.0,
  seed: int = 0,
  outputs: int | None = None,
) -> Row:
  """Replaces what lies under the padding of a ragged batch, and compares the real positions.

  apply: as in `compare`, of tokens and mask (True on real tokens, which come first). Logits
  (B, vocab) of whole rows are compared whole.
  """
  batch, length = tokens_BL.shape
  real_B = [max(1, length // 2 - i) if i % 2 == 0 else max(1, length - 3) for i in range(batch)]
  mask_BL = np.arange(length)[None, :] < np.asarray(real_B)[:, None]
  other_BL = replaced(tokens_BL, ~mask_BL, vocab, np.random.default_rng(seed))
  before, after = (
    _Run(apply(tokens, mask_BL), outputs or vocab) for tokens in (tokens_BL, other_BL)
  )
  kept = mask_BL if before.logits_BLV.ndim == 3 else np.ones(batch, bool)
  return _row('padding', None, before, after, kept, limit, mask_BL)


def compare_chunks(whole_BLV: np.ndarray, chunks_BLV: np.ndarray, first: int) -> Row:
  """Logits of positions from `first` on, decoded in chunks, against those of the whole at once.

  Another shape is another program, so that rounding differs: the limit is 1e-9 in float64.
  """
  difference = _largest(whole_BLV[:, -chunks_BLV.shape[1] :], chunks_BLV)
  relative = difference / _scale(whole_BLV)
  return Row('decoding', first, difference, relative, TOLERANCE, note='cache, token by token')


def compare_rows(
  apply: Apply,
  inputs: np.ndarray,
  replace: Callable[[np.ndarray, np.random.Generator], np.ndarray],
  *,
  outputs: int,
  limit: float = 0.0,
  seed: int = 0,
  suffix: str = '',
) -> list[Row]:
  """Replaces other examples and compares what a model gives for one, at any of its positions.

  apply: of inputs (B, ...) to outputs (B, ..., at least `outputs` columns), or as in `compare`.
  replace: other inputs of that shape. Raises UserError where nothing follows from the inputs.
  """
  rng = np.random.default_rng(seed)
  before = _Run(apply(inputs), outputs)
  found = list(_others(before, apply, inputs, lambda a: replace(a, rng), limit, suffix))
  if not any(moved > 0 for _, moved in found):
    raise UserError('the outputs do not depend on the inputs at all: an audit would prove nothing')
  return [row for row, _ in found]


def _others(before: '_Run', apply: Apply, inputs: np.ndarray, replace: Callable, limit, suffix):
  """Rows for the first and the last example kept, and how much the others changed."""
  batch = len(inputs)
  for kept in sorted({0, batch - 1}) if batch > 1 else ():
    others_B = np.arange(batch) != kept
    where = others_B.reshape(-1, *[1] * (inputs.ndim - 1))
    after = _Run(apply(np.where(where, replace(inputs), inputs)), before.columns)
    row = _row(f'other examples{suffix}', None, before, after, ~others_B, limit)
    yield row, before.difference(after, others_B)


class _Run:
  """Logits and hidden states of one call, on the host."""

  def __init__(self, result, vocab: int):
    logits_BLV, hidden = result if isinstance(result, tuple) else (result, {})
    self.columns = vocab
    self.logits_BLV = np.asarray(logits_BLV)[..., :vocab]  # the rest pads the vocabulary
    self.hidden = {name: np.asarray(hidden_BLD) for name, hidden_BLD in hidden.items()}
    if not np.all(np.isfinite(self.logits_BLV)):
      raise UserError('the logits are not finite: there is nothing to compare')

  def difference(self, other: '_Run', where_BL: np.ndarray) -> float:
    return _largest(self.logits_BLV[where_BL], other.logits_BLV[where_BL])

  def changed(self, other: '_Run', where_BL: np.ndarray, limit: float) -> Iterator[str]:
    """Names of the layers whose hidden states changed by more than `limit` of their scale."""
    for name, a_BLD in self.hidden.items():
      change = _largest(a_BLD[where_BL], other.hidden[name][where_BL])
      if change / _scale(a_BLD) > limit:
        yield name


def _row(check, position, before: _Run, after: _Run, kept, limit: float, hidden=None) -> Row:
  """The comparison of two runs where `kept`; of hidden states where `hidden`, if they differ."""
  difference = before.difference(after, kept)
  relative = difference / _scale(before.logits_BLV)
  layer = ''
  if relative > limit:
    hidden = kept if hidden is None else hidden
    layer = next(before.changed(after, hidden, limit), 'head' if before.hidden else '')
  return Row(check, position, difference, relative, limit, layer)


def _largest(a, b) -> float:
  return float(np.max(np.abs(a - b), initial=0.0))


def _scale(a) -> float:
  return float(np.max(np.abs(a), initial=0.0)) or 1.0
