"""Routed tokens into slots, by order of arrival in windows of fixed capacity, and back.

All shapes are static: a window of `window` positions owns `slots` slots. An example's windows count
from its first position, and from the first of each of its segments.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from sgnjax.ops.chunks import carried, whole

MULTIPLE, FACTOR = 8, 1.25


def slots_per_window(window: int, rate: float, capacity: float | None) -> int:
  """Slots of a window: ceil(capacity * window), at least 1.

  capacity None: 1.25 times the expected share `rate` of routed tokens, up to a multiple of 8; never
  more than the window. Source: CHIAR-Former, capacity by arrival.
  """
  if capacity is not None:
    return max(1, math.ceil(round(capacity * window, 6)))
  blocks = max(1, math.ceil(round(FACTOR * rate * window / MULTIPLE, 6)))
  return min(window, MULTIPLE * blocks)


class Stream(NamedTuple):
  """What an example carries from chunk to chunk, int32, one each.

  tokens: so far. start: position of its segment's first token. segment: that segment's number.
  count: tokens routed so far in the window that the last token lies in.
  """

  tokens_B: jax.Array
  start_B: jax.Array
  segment_B: jax.Array
  count_B: jax.Array


def empty_stream(batch: int) -> Stream:
  """Before the first token."""
  return Stream(*(jnp.zeros((batch,), jnp.int32) for _ in Stream._fields))


def places(
  length: int, segments_BL: jax.Array | None = None, before: Stream | None = None
) -> tuple[jax.Array, jax.Array]:
  """Place of each token in its row, and that of its segment's first: int32, (B or 1, L) both.

  Each run of one segment number is a segment of its own. Without numbers all are number 0.
  """
  place_BL = jnp.arange(length, dtype=jnp.int32)[None, :]
  if before is None:
    start_B, first_B1 = jnp.zeros((1,), jnp.int32), None
  else:
    start_B, first_B1 = before.start_B, before.segment_B[:, None]
    place_BL = before.tokens_B[:, None] + place_BL
    if segments_BL is None:
      segments_BL = jnp.zeros(place_BL.shape, jnp.int32)
  if segments_BL is None:
    return place_BL, jnp.zeros_like(place_BL)
  earlier_BL = segments_BL[:, :1] if first_B1 is None else first_B1.astype(segments_BL.dtype)
  earlier_BL = jnp.concatenate([earlier_BL, segments_BL[:, :-1]], axis=1)
  start_BL = jnp.where(segments_BL != earlier_BL, place_BL, start_B[:, None])
  return place_BL, jax.lax.cummax(start_BL, axis=1)


def count_before(counts_BL: jax.Array, first_BL: jax.Array, carried_B=None) -> jax.Array:
  """How many tokens that count came before each since the last `first`, int32, (B, L).

  counts, first: bool. carried: what had come since then before the chunk's first token.
  """
  ones_BL = counts_BL.astype(jnp.int32)
  before_BL = jnp.cumsum(ones_BL, axis=1, dtype=jnp.int32) - ones_BL
  carried_B = jnp.zeros((1,), jnp.int32) if carried_B is None else carried_B
  # Never falling, so that the largest so far is that of the last `first`.
  base_BL = jnp.where(first_BL, before_BL, -carried_B[:, None])
  return before_BL - jax.lax.cummax(base_BL, axis=1)


def arrivals(
  routed_BL: jax.Array,
  place_BL: jax.Array,
  start_BL: jax.Array,
  *,
  window: int,
  slots: int,
  count_B: jax.Array | None = None,
) -> tuple[jax.Array, jax.Array]:
  """Which routed tokens get a slot (bool), and how many were routed before each in its window.

  Both (B, L). routed: bool, padding not. place, start: of `places`. A token's slot depends on
  itself and on earlier tokens of its window alone.
  """
  first_BL = (place_BL - start_BL) % jnp.int32(window) == 0
  rank_BL = count_before(routed_BL, first_BL, count_B)
  return routed_BL & (rank_BL < jnp.int32(slots)), rank_BL


def advance(before: Stream, routed_BL, rank_BL, start_BL, mask_BL=None, segments_BL=None) -> Stream:
  """The stream after a chunk, whose padding leaves it as it was."""
  real_BL, segments_BL = whole(*routed_BL.shape, mask_BL, segments_BL)
  start_BL = jnp.broadcast_to(start_BL, routed_BL.shape)
  last = (start_BL, segments_BL, rank_BL + routed_BL.astype(jnp.int32))
  tokens_B = before.tokens_B + jnp.sum(real_BL, axis=1, dtype=jnp.int32)
  return Stream(tokens_B, *carried(before[1:], last, mask_BL))


class Slots(NamedTuple):
  """Where tokens and slots find each other: W windows of T tokens and C slots, B examples.

  token_BWC: each slot's token, as its place in the window. filled_BWC: whether it has one.
  slot_BWT: each token's slot in its window. accepted_BL: whether it has one.
  """

  token_BWC: jax.Array
  filled_BWC: jax.Array
  slot_BWT: jax.Array
  accepted_BL: jax.Array

  @property
  def place_BS(self) -> jax.Array:
    """Place in the row of each slot's token."""
    batch, windows, _ = self.token_BWC.shape
    first_W = jnp.arange(windows, dtype=jnp.int32) * jnp.int32(self.slot_BWT.shape[2])
    return (first_W[None, :, None] + self.token_BWC).reshape(batch, -1)

  @property
  def filled_BS(self) -> jax.Array:
    return self.filled_BWC.reshape(self.filled_BWC.shape[0], -1)


def assign(accepted_BL: jax.Array, rank_BL: jax.Array, *, window: int, slots: int) -> Slots:
  """The slots of whole rows that begin with a window, from what `arrivals` gives."""
  length = accepted_BL.shape[1]
  window = min(window, length)
  slots = min(slots, window)
  windows = -(-length // window)
  accepted_BWT = _in_windows(accepted_BL, windows, window)
  slot_BWT = jnp.minimum(_in_windows(rank_BL, windows, window), jnp.int32(slots - 1))
  # Slot c holds the token before which, itself included, c + 1 were accepted.
  so_far_BWT = jnp.cumsum(accepted_BWT, axis=2, dtype=jnp.int32)
  ordinal_C = jnp.arange(slots, dtype=jnp.int32)
  passed_BWTC = so_far_BWT[..., None] <= ordinal_C[None, None, None, :]
  token_BWC = jnp.sum(passed_BWTC, axis=2, dtype=jnp.int32)
  filled_BWC = ordinal_C[None, None, :] < so_far_BWT[:, :, -1:]
  token_BWC = jnp.minimum(token_BWC, jnp.int32(window - 1))
  return Slots(token_BWC, filled_BWC, slot_BWT, accepted_BL)


@jax.custom_vjp
def gather(x_BLD: jax.Array, slots: Slots) -> jax.Array:
  """The tokens of all slots, (B, S, D), windows one after another; zeros in empty slots.

  `gather` and `combine` are each other's transposes, so that gradients are gathers too. Each window
  is read from its own tokens: shards that hold whole windows exchange nothing.
  """
  batch, windows, _ = slots.token_BWC.shape
  x_BWTD = _in_windows(x_BLD, windows, slots.slot_BWT.shape[2])
  x_BWCD = jnp.take_along_axis(x_BWTD, slots.token_BWC[..., None], axis=2, mode='clip')
  x_BWCD = jnp.where(slots.filled_BWC[..., None], x_BWCD, jnp.zeros((), x_BLD.dtype))
  return x_BWCD.reshape(batch, -1, x_BLD.shape[-1])


@jax.custom_vjp
def combine(y_BSD: jax.Array, slots: Slots) -> jax.Array:
  """What the slots hold, back at their tokens, (B, L, D); zeros at tokens without one."""
  batch, windows, _ = slots.token_BWC.shape
  y_BWCD = y_BSD.reshape(batch, windows, -1, y_BSD.shape[-1])
  y_BWTD = jnp.take_along_axis(y_BWCD, slots.slot_BWT[..., None], axis=2, mode='clip')
  y_BLD = y_BWTD.reshape(batch, -1, y_BSD.shape[-1])[:, : slots.accepted_BL.shape[1]]
  return jnp.where(slots.accepted_BL[:, :, None], y_BLD, jnp.zeros((), y_BSD.dtype))


gather.defvjp(
  lambda x_BLD, slots: (gather(x_BLD, slots), slots), lambda slots, g: (combine(g, slots), None)
)
combine.defvjp(
  lambda y_BSD, slots: (combine(y_BSD, slots), slots), lambda slots, g: (gather(g, slots), None)
)


def _in_windows(a_BLX: jax.Array, windows: int, window: int) -> jax.Array:
  """(B, L, *X) as (B, windows, window, *X), the last window filled up with zeros."""
  batch, length, *rest = a_BLX.shape
  short = windows * window - length
  if short:
    a_BLX = jnp.concatenate([a_BLX, jnp.zeros((batch, short, *rest), a_BLX.dtype)], axis=1)
  return a_BLX.reshape(batch, windows, window, *rest)
