"""Log-probabilities of given texts, in windows where a text is longer than the context."""

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sgnjax.errors import UserError
from sgnjax.models.decoder import Decoder

ROWS = 8  # windows of a call


def log_probabilities(
  model: Decoder, params: Any, rows: Sequence[Sequence[int]], *, stride: int | None = None
) -> list[np.ndarray]:
  """Natural logarithms of the probability of each token but the first, given those before it.

  rows: tokens of each text, at least 2. Returns arrays of one number less than each has, float32
  (float64 for a model of that dtype).

  stride: where a text is longer than the context, fresh tokens a window (None: half the context);
  a token then has context - stride tokens before it at least, but in the first window.
  Raises UserError for a text without two tokens, one outside the vocabulary and a stride out of
  range.
  """
  context = model.context
  stride = max(1, context // 2) if stride is None else stride
  if not 1 <= stride <= context:
    raise UserError(f'stride {stride}: expected 1 to the context of {context} (model.context)')
  for row in rows:
    if len(row) < 2:
      raise UserError(
        f'a text of {len(row)} token{"s" * (len(row) != 1)}: the first token follows nothing and '
        'has no probability; give at least 2'
      )
    outside = [int(t) for t in row if not 0 <= t < model.vocab]
    if outside:
      raise UserError(f'token {outside[0]} is outside the vocabulary of {model.vocab}')
  arrays = [np.asarray(row, np.int32) for row in rows]
  found = [np.full(len(row) - 1, np.nan) for row in rows]
  windows = [(i, *w) for i, row in enumerate(arrays) for w in _windows(len(row), context, stride)]
  width = min(context, max(map(len, arrays)) - 1)
  score = functools.partial(_score, model, params)
  for at in range(0, len(windows), ROWS):
    some = windows[at : at + ROWS]
    token_BL = np.zeros((min(ROWS, len(windows)), width + 1), np.int32)
    for filled_L, (i, start, _, end) in zip(token_BL, some, strict=False):
      filled_L[: end - start] = arrays[i][start:end]
    logp_BL = np.asarray(score(token_BL))
    for logp_L, (i, start, fresh, end) in zip(logp_BL, some, strict=False):
      found[i] = found[i].astype(logp_L.dtype, copy=False)
      found[i][fresh : end - 1] = logp_L[fresh - start : end - 1 - start]
  return found


def _windows(length: int, context: int, stride: int) -> Iterator[tuple[int, int, int]]:
  """(start, first scored, end): tokens start to end are read, those after `first scored` scored."""
  end = min(length, context + 1)
  yield 0, 0, end
  while end < length:
    fresh, end = end - 1, min(length, end + stride)
    yield end - context - 1, fresh, end


@functools.partial(jax.jit, static_argnums=0)
def _score(model: Decoder, params, token_BL):
  """Of each token after the first, in the place of the one before. What is right stays unseen."""
  logits_BLV = model.apply({'params': params}, token_BL[:, :-1]).y_BLD
  logp_BLV = jax.nn.log_softmax(logits_BLV[..., : model.vocab], axis=-1)
  return jnp.take_along_axis(logp_BLV, token_BL[:, 1:, None], axis=-1)[..., 0]
