"""Attention of some tokens over some tokens: what CHIAR's routed layers attend with."""

from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from sgnjax.errors import UserError
from sgnjax.mixers.softmax import KeyValueCache, Softmax
from sgnjax.ops.biases import alibi
from sgnjax.ops.chunks import in_place
from sgnjax.ops.dispatch import Slots, Stream, count_before, gather
from sgnjax.ops.dtypes import wide
from sgnjax.parallel.sequence import CHANNELS, HEAD_KEYS, constrain

NOWHERE = jnp.iinfo(jnp.int32).max  # the place of a cache's slot that is free: after every query


class Tokens(NamedTuple):
  """Tokens of a row and where they stand, (B or 1, L) each.

  position: as RoPE takes it. place: in the row. start: place of the first token of the segment.
  real: false for what neither sees nor is seen.
  """

  x_BLD: jax.Array
  position_BL: jax.Array
  place_BL: jax.Array
  start_BL: jax.Array
  real_BL: jax.Array

  def in_slots(self, slots: Slots) -> 'Tokens':
    """The tokens that slots hold, in the order of slots: that of their places."""

    def take(a_BL):
      a_BL = jnp.broadcast_to(a_BL, self.x_BLD.shape[:2])
      return jnp.take_along_axis(a_BL, slots.place_BS, axis=1, mode='clip')

    where = map(take, (self.position_BL, self.place_BL, self.start_BL))
    return Tokens(gather(self.x_BLD, slots), *where, slots.filled_BS)


class SlotCache(NamedTuple):
  """Keys and values of the stored tokens of an example's segment, their places, their number."""

  k_BHSE: jax.Array
  v_BHSE: jax.Array
  place_BS: jax.Array
  used_B: jax.Array


class RoutedCache(NamedTuple):
  """What a routed layer carries: its operators' caches, and where each example stands."""

  attention: SlotCache
  rbf: KeyValueCache | None
  stream: Stream


class SlotAttention(Softmax):
  """Softmax attention of `queries` over `keys`, both `Tokens`: the parameters of `Softmax`.

  A query sees the real keys of its own run of one segment number, and, but in the bidirectional
  form, none after it. Cache: keys and values of the tokens that were keys, `2 * width` numbers of
  its dtype and 4 bytes a slot, and 4 bytes an example. It keeps one segment: the next one starts
  again at the first slot.
  """

  @nn.compact
  def __call__(
    self, queries, keys, *, whole=None, cache=None, start_B=None, packed=False, train=False
  ):
    """Outputs at the queries, and the cache.

    whole: of a whole row with itself, `mask_BL` and `segments_BL` as `self_attention` takes them,
    which has no (L, L) weights in memory; None where queries and keys are others. start_B: place of
    the first token of the segment that the chunk ends in. packed: segments may change inside the
    chunk.
    """
    q_BLHE = constrain(self.rotate(self.split(queries.x_BLD, 'q'), queries.position_BL), CHANNELS)
    k_BLHE = self.rotate(self.split(keys.x_BLD, 'k'), keys.position_BL)
    v_BLHE = self.split(keys.x_BLD, 'v')
    k_BHSE, v_BHSE = (constrain(a.swapaxes(1, 2), HEAD_KEYS) for a in (k_BLHE, v_BLHE))
    place_BS, real_BS = keys.place_BL, keys.real_BL
    if cache is not None:
      old = cache
      cache = _stored(old, k_BHSE, v_BHSE, keys, start_B)
      if packed and keys.x_BLD.shape[1] > 1:
        # The segment before the last still sees what the last one overwrites.
        place_BS = jnp.broadcast_to(place_BS, real_BS.shape)
        k_BHSE, v_BHSE = (
          jnp.concatenate([a.astype(b.dtype), b], axis=2)
          for a, b in zip(old[:2], (k_BHSE, v_BHSE), strict=True)
        )
        place_BS = jnp.concatenate([old.place_BS, place_BS], axis=1)
        real_BS = jnp.concatenate([jnp.ones_like(old.place_BS, bool), real_BS], axis=1)
      else:
        k_BHSE, v_BHSE = (a.astype(q_BLHE.dtype) for a in cache[:2])
        place_BS, real_BS = cache.place_BS, jnp.ones((1, 1), bool)
    if whole is not None:
      how = {'causal': self.causal, **whole}
    else:
      seen_BLS = queries.real_BL[:, :, None] & real_BS[:, None, :]
      if self.causal:
        seen_BLS &= place_BS[:, None, :] <= queries.place_BL[:, :, None]
        seen_BLS &= place_BS[:, None, :] >= queries.start_BL[:, :, None]
      else:
        seen_BLS &= keys.start_BL[:, None, :] == queries.start_BL[:, :, None]
      how = {'visible_BLS': seen_BLS}
    biases = ()
    if self.positions == 'alibi':
      biases = (alibi(queries.place_BL, place_BS, self.heads, dtype=wide(self.dtype)),)
    y_BLHE = self.attend(
      q_BLHE,
      k_BHSE,
      v_BHSE,
      None,
      biases,
      scale=(self.width // self.heads) ** -0.5,
      dropout=self.weight_dropout(train),
      **how,
    )
    return self.join(y_BLHE, None, train), cache

  def empty_cache(self, batch: int, max_len: int, dtype) -> SlotCache:
    """An empty cache of max_len slots an example."""
    slots = (batch, self.heads, max_len, self.width // self.heads)
    return SlotCache(
      jnp.zeros(slots, dtype),
      jnp.zeros(slots, dtype),
      jnp.full((batch, max_len), NOWHERE, jnp.int32),
      jnp.zeros((batch,), jnp.int32),
    )


def _stored(cache: SlotCache, k_BHSE, v_BHSE, keys: Tokens, start_B) -> SlotCache:
  """The cache behind which the chunk's keys of the segment that it ends in are written."""
  slots = cache.place_BS.shape[1]
  slot_BL = count_before(keys.real_BL, keys.place_BL == keys.start_BL, cache.used_B)
  kept_BL = keys.real_BL & (keys.start_BL == start_B[:, None])
  target_BL = jnp.where(kept_BL, slot_BL, jnp.int32(slots))  # one past the end: dropped
  row_B1 = jnp.arange(slot_BL.shape[0], dtype=jnp.int32)[:, None]

  def write(old, chunk):
    chunk = chunk.swapaxes(1, 2).astype(old.dtype)

    def put(a):
      return a.at[row_B1, :, target_BL].set(chunk, mode='drop')

    return in_place(put, old, slot_BL.shape[1], cache.used_B[0])

  written = (write(old, new) for old, new in zip(cache[:2], (k_BHSE, v_BHSE), strict=True))
  place_BL = jnp.broadcast_to(keys.place_BL, slot_BL.shape)
  place_BS = cache.place_BS.at[row_B1, target_BL].set(place_BL, mode='drop')
  # A segment that the chunk did not start goes on behind what it had.
  goes_on_B = start_B == keys.start_BL[:, 0]
  goes_on_B &= keys.start_BL[:, 0] != keys.place_BL[:, 0]
  had_B = jnp.where(goes_on_B, cache.used_B, jnp.zeros_like(cache.used_B))
  return SlotCache(*written, place_BS, had_B + jnp.sum(kept_BL, axis=1, dtype=jnp.int32))


DISPATCHES, KEYS = ('dense', 'capacity'), ('all', 'routed')


def check_dispatch(m) -> None:
  """Raises UserError for dispatch options of a routed mixer that contradict the others."""
  if m.route_window < 1:
    raise UserError(f'model.chiar.route_window={m.route_window}: expected at least 1')
  if m.capacity is not None and not 0 < m.capacity <= 1:
    raise UserError(
      f'model.chiar.capacity={m.capacity}: expected more than 0 and at most 1, or none'
    )
  if m.capacity is not None and m.dispatch == 'dense':
    raise UserError(
      f"model.chiar.capacity={m.capacity} limits nothing under model.chiar.dispatch='dense'; set "
      "model.chiar.dispatch='capacity'"
    )
  chosen = f"model.chiar.dispatch='{m.dispatch}', model.chiar.kv='{m.kv}'"
  if (m.dispatch, m.kv) == ('dense', 'all'):
    return
  if m.router == 'soft':
    raise UserError(
      f"{chosen}: router 'soft' mixes all operators' outputs on every token and needs "
      "dispatch='dense', kv='all'; routers threshold, hard and random choose one"
    )
  if m.rbf:
    raise UserError(
      f'{chosen}: with model.chiar.rbf two operators attend, and neither has slots of its own; '
      "rbf needs dispatch='dense', kv='all'"
    )
