"""Averages over the tokens seen: of all of them, or of the last 2^l; causal, and in chunks.

Everywhere a token sees its own run alone: `runs` numbers the stretches of one segment in a row.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from sgnjax.ops.dtypes import wide
from sgnjax.ops.statistics import prefix_moments


class MeanState(NamedTuple):
  """How many tokens a running mean is over, the mean, and the segment they belong to."""

  count_B: jax.Array
  mean_BD: jax.Array
  segment_B: jax.Array


class WindowState(NamedTuple):
  """The newest tokens, the last of them at the end, their segments, and how many there are."""

  x_BWC: jax.Array
  segments_BW: jax.Array
  count_B: jax.Array


def empty_mean(batch: int, width: int, dtype) -> MeanState:
  """Before the first token: width numbers an example, kept in float32 or wider."""
  zero_B = jnp.zeros((batch,), jnp.int32)
  return MeanState(zero_B, jnp.zeros((batch, width), wide(dtype)), zero_B)


def empty_window(batch: int, tokens: int, width: int, dtype) -> WindowState:
  """Before the first token: room for `tokens` of `width` numbers an example."""
  return WindowState(
    jnp.zeros((batch, tokens, width), dtype),
    jnp.zeros((batch, tokens), jnp.int32),
    jnp.zeros((batch,), jnp.int32),
  )


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


def whole(batch: int, length: int, mask_BL, segments_BL) -> tuple[jax.Array, jax.Array]:
  """Mask and segments, where they are None: all real, all of segment 0."""
  real_BL = jnp.ones((batch, length), bool) if mask_BL is None else mask_BL
  return real_BL, jnp.zeros((batch, length), jnp.int32) if segments_BL is None else segments_BL


def last_segment(segments_BL, real_BL, before_B) -> jax.Array:
  """The segment of each row's last real token; `before` where the row has none."""
  count_B1 = jnp.sum(real_BL, axis=1, keepdims=True, dtype=jnp.int32)
  at_B1 = jnp.maximum(count_B1 - 1, 0)
  last_B = jnp.take_along_axis(segments_BL, at_B1, axis=1)[:, 0]
  return jnp.where(count_B1[:, 0] > 0, last_B.astype(jnp.int32), before_B)


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
  real_BL, segments_BL = whole(*x_BLD.shape[:2], mask_BL, segments_BL)
  run_BL = runs(segments_BL, real_BL, None if state is None else state.segment_B)
  x_BDL = x_BLD.astype(wide(x_BLD.dtype)).swapaxes(1, 2)
  count_BDL, mean_BDL, _ = prefix_moments(x_BDL, segments=run_BL, mask=real_BL)
  count_BL1, mean_BLD = count_BDL[:, 0, :, None], mean_BDL.swapaxes(1, 2)
  if not causal:
    return _at_end_of_run(mean_BLD, run_BL).astype(x_BLD.dtype), None
  if state is None:
    return mean_BLD.astype(x_BLD.dtype), None
  goes_on_BL1 = (run_BL == 0)[:, :, None]
  before_B11 = state.count_B.astype(count_BL1.dtype)[:, None, None]
  before_BL1 = jnp.where(goes_on_BL1, before_B11, jnp.zeros((), count_BL1.dtype))
  total_BL1 = before_BL1 + count_BL1
  share_BL1 = before_BL1 / jnp.maximum(total_BL1, jnp.ones((), count_BL1.dtype))
  old_B1D = state.mean_BD.astype(mean_BLD.dtype)[:, None, :]
  # Without a token yet the mean is the state's own, not a rounding of it.
  merged_BLD = mean_BLD + (old_B1D - mean_BLD) * share_BL1
  mean_BLD = jnp.where(goes_on_BL1 & (count_BL1 == 0), old_B1D, merged_BLD)
  after = MeanState(
    total_BL1[:, -1, 0].astype(state.count_B.dtype),
    mean_BLD[:, -1].astype(state.mean_BD.dtype),
    last_segment(segments_BL, real_BL, state.segment_B),
  )
  return mean_BLD.astype(x_BLD.dtype), after


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
  state: WindowState | None = None,
) -> tuple[jax.Array, WindowState | None]:
  """Mean over the last `2^level` real tokens of each one's run, or as many as there are; the state.

  level: integers from 1 to `levels`, one a channel. mask: True on real tokens, which come first in
  a row. state: what went before; padding leaves it as it is. A window of 2^l is two of 2^(l-1), so
  sums double: O(L levels), no difference of long sums, exactly causal. Float32 or wider inside,
  returned in x's dtype. Source: WaveletGPT, causal Haar approximations; the paper leaves the start
  open, and a mean over the tokens there are keeps constants constant.
  """
  length = x_BLC.shape[1]
  real_BL, segments_BL = whole(*x_BLC.shape[:2], mask_BL, segments_BL)
  if state is not None:
    slots = state.x_BWC.shape[1]
    slot_W = jnp.arange(slots, dtype=jnp.int32)
    old_BW = slot_W[None, :] >= slots - state.count_B[:, None]
    new_B = jnp.sum(real_BL, axis=1, dtype=jnp.int32)
    x_BLC = jnp.concatenate([state.x_BWC.astype(x_BLC.dtype), x_BLC], axis=1)
    segments_BL = jnp.concatenate([state.segments_BW, segments_BL.astype(jnp.int32)], axis=1)
    real_BL = jnp.concatenate([old_BW, real_BL], axis=1)
    newest_BW = new_B[:, None] + slot_W[None, :]
    state = WindowState(
      jnp.take_along_axis(x_BLC, newest_BW[:, :, None], axis=1).astype(state.x_BWC.dtype),
      jnp.take_along_axis(segments_BL, newest_BW, axis=1),
      jnp.minimum(state.count_B + new_B, slots),
    )
  compute = wide(x_BLC.dtype)
  run_BL = runs(segments_BL, real_BL)
  one_BL1 = real_BL.astype(compute)[:, :, None]
  sum_BLC = jnp.where(real_BL[:, :, None], x_BLC.astype(compute), jnp.zeros((), compute))
  # The count rides along as one more channel.
  sum_BLC = jnp.concatenate([sum_BLC, one_BL1], axis=2)
  mean_BLC = jnp.zeros(x_BLC.shape, compute)
  for level in range(1, levels + 1):
    shift = 2 ** (level - 1)
    same_BL1 = (run_BL == _delayed(run_BL, shift))[:, :, None]
    sum_BLC = sum_BLC + jnp.where(same_BL1, _delayed(sum_BLC, shift), jnp.zeros((), compute))
    count_BL1 = jnp.maximum(sum_BLC[:, :, -1:], jnp.ones((), compute))
    here_C = (level_C == level)[None, None, :]
    mean_BLC = jnp.where(here_C, sum_BLC[:, :, :-1] / count_BL1, mean_BLC)
  return mean_BLC[:, -length:].astype(x_BLC.dtype), state


def _delayed(x, shift):
  """x at `shift` positions before, zero before the start; axis 1."""
  kept = x[:, : max(x.shape[1] - shift, 0)]
  return jnp.concatenate([jnp.zeros_like(x[:, : x.shape[1] - kept.shape[1]]), kept], axis=1)
