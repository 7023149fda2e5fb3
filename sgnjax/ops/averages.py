"""Averages over the tokens seen: of all of them, or of the last 2^l; causal, and in chunks.

Everywhere a token sees its own run alone: `runs` numbers the stretches of one segment in a row.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from sgnjax.ops.chunks import History, behind, carried, whole
from sgnjax.ops.dtypes import wide
from sgnjax.ops.statistics import Moments, prefix_moments
from sgnjax.ops.wavelets import delayed


class MeanState(NamedTuple):
  """How many tokens a running mean is over, the mean, and the segment they belong to."""

  count_B: jax.Array
  mean_BD: jax.Array
  segment_B: jax.Array


def empty_mean(batch: int, width: int, dtype) -> MeanState:
  """Before the first token: width numbers in float32 or wider and 8 bytes an example."""
  zero_B = jnp.zeros((batch,), jnp.int32)
  return MeanState(zero_B, jnp.zeros((batch, width), wide(dtype)), zero_B)


def runs(
  segments_BL: jax.Array, real_BL: jax.Array, before_B: jax.Array | None = None
) -> jax.Array:
  """The number of each token's run of one segment, (B, L) from 0; padding goes with the last one.

  real: True on real tokens. before: the segment of the tokens before these; number 0 goes on with
  it.
  """
  first_B1 = segments_BL[:, :1] if before_B is None else before_B[:, None]
  previous_BL = jnp.concatenate([first_B1, segments_BL[:, :-1]], axis=1)
  return jnp.cumsum(real_BL & (segments_BL != previous_BL), axis=1, dtype=jnp.int32)


def running_mean(
  x_BLD: jax.Array,
  *,
  causal: bool,
  mask_BL: jax.Array | None = None,
  segments_BL: jax.Array | None = None,
  state: MeanState | None = None,
) -> tuple[jax.Array, MeanState | None]:
  """Mean over the real tokens of each one's run, up to it (causal) or all; the state after them.

  mask: True on real tokens, which come first in a row. state: causal only, what went before;
  padding leaves it as it is. Merges partial means, which keeps its digits over any length, as
  sums do not; float32 or wider inside, returned in x's dtype. This is what attention with equal
  scores computes.
  """
  real_BL, numbers_BL = whole(*x_BLD.shape[:2], mask_BL, segments_BL)
  x_BDL = x_BLD.astype(wide(x_BLD.dtype)).swapaxes(1, 2)
  if not causal and segments_BL is None:
    real_B1L = real_BL[:, None].astype(x_BDL.dtype)
    count_B11 = jnp.maximum(jnp.sum(real_B1L, -1, keepdims=True), jnp.ones((), x_BDL.dtype))
    mean_BD1 = jnp.sum(x_BDL * real_B1L, -1, keepdims=True) / count_B11
    return jnp.broadcast_to(mean_BD1.swapaxes(1, 2), x_BLD.shape).astype(x_BLD.dtype), None
  if not causal:
    run_BL = runs(numbers_BL, real_BL)
    _, mean_BDL, _ = prefix_moments(x_BDL, segments=run_BL, mask=real_BL)
    return _at_end_of_run(mean_BDL.swapaxes(1, 2), run_BL).astype(x_BLD.dtype), None
  before = None
  if state is not None:
    segments_BL = numbers_BL
    mean_BD = state.mean_BD.astype(x_BDL.dtype)
    count_BD = jnp.broadcast_to(state.count_B.astype(x_BDL.dtype)[:, None], mean_BD.shape)
    before = (Moments(count_BD, mean_BD, jnp.zeros_like(mean_BD)), state.segment_B)
  count_BDL, mean_BDL, _ = prefix_moments(x_BDL, segments=segments_BL, mask=mask_BL, before=before)
  if state is not None:
    state = carried(state, MeanState(count_BDL[:, 0], mean_BDL, numbers_BL), mask_BL)
  return mean_BDL.swapaxes(1, 2).astype(x_BLD.dtype), state


def _at_end_of_run(x_BLD, run_BL):
  """The value at the last position of each one's run."""
  length = run_BL.shape[1]
  ends_BL = jnp.concatenate(
    [run_BL[:, 1:] != run_BL[:, :-1], jnp.ones((run_BL.shape[0], 1), bool)], axis=1
  )
  at_BL = jnp.where(ends_BL, jnp.arange(length, dtype=jnp.int32)[None, :], jnp.int32(length))
  at_BL = jax.lax.cummin(at_BL, axis=1, reverse=True)
  return jnp.take_along_axis(x_BLD, at_BL[:, :, None], axis=1)


def window_mean(
  x_BLC: jax.Array,
  level_C: jax.Array,
  levels: int,
  *,
  mask_BL: jax.Array | None = None,
  segments_BL: jax.Array | None = None,
  history: History | None = None,
) -> tuple[jax.Array, History | None]:
  """Mean over the last `2^level` real tokens of each one's run, or as many as there are; history.

  level: integers from 1 to `levels`, one a channel. mask: True on real tokens, which come first in
  a row. history: the tokens before, (B, C, any number); padding leaves it as it is. A window of 2^l
  is two of 2^(l-1), so sums double: O(L levels), no difference of long sums, exactly causal.
  Float32 or wider inside, returned in x's dtype. Source: WaveletGPT, causal Haar approximations;
  the paper leaves the start open, and a mean over the tokens there are keeps constants constant.
  """
  length, compute = x_BLC.shape[1], wide(x_BLC.dtype)
  real_BL, segments_BL = whole(*x_BLC.shape[:2], mask_BL, segments_BL)
  x_BCL = x_BLC.swapaxes(1, 2)
  if history is not None:
    real_BL = jnp.concatenate([history.segments_BR >= 0, real_BL], axis=1)
    x_BCL, segments_BL, history = behind(history, x_BCL, segments_BL, mask_BL)
  run_BL = runs(segments_BL, real_BL)
  one_B1L = real_BL.astype(compute)[:, None]
  # The count rides along as one more channel.
  sum_BCL = jnp.where(real_BL[:, None], x_BCL.astype(compute), jnp.zeros((), compute))
  sum_BCL = jnp.concatenate([sum_BCL, one_B1L], axis=1)
  mean_BCL = jnp.zeros(x_BCL.shape, compute)
  for level in range(1, levels + 1):
    sum_BCL = sum_BCL + delayed(sum_BCL, 2 ** (level - 1), run_BL)
    count_B1L = jnp.maximum(sum_BCL[:, -1:], jnp.ones((), compute))
    here_C = (level_C == level)[None, :, None]
    mean_BCL = jnp.where(here_C, sum_BCL[:, :-1] / count_B1L, mean_BCL)
  return mean_BCL[..., -length:].swapaxes(1, 2).astype(x_BLC.dtype), history
