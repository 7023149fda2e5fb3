"""Softmax attention, with learned positions or RoPE: the baseline, and what others build on."""

from typing import ClassVar, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from sgnjax.mixers.base import Aux, Mixed, Mixer, blank
from sgnjax.ops.attention import attention, rope, visible


class KeyValueCache(NamedTuple):
  """Keys and values of the tokens so far, and how many each example has."""

  k_BSHE: jax.Array
  v_BSHE: jax.Array
  segments_BS: jax.Array
  length_B: jax.Array


def empty_cache(batch: int, slots: int, heads: int, features: int, dtype) -> KeyValueCache:
  """Room for `slots` tokens an example: 2 * slots * heads * features numbers of `dtype` each."""
  return KeyValueCache(
    jnp.zeros((batch, slots, heads, features), dtype),
    jnp.zeros((batch, slots, heads, features), dtype),
    jnp.zeros((batch, slots), jnp.int32),
    jnp.zeros((batch,), jnp.int32),
  )


def append(cache: KeyValueCache, k_BLHE, v_BLHE, mask_BL=None, segments_BL=None):
  """Writes a chunk behind each example's own tokens; padding is not written.

  Returns the cache after the chunk and `visible_BLS`: which slots each query of the chunk sees.
  """
  batch, length = k_BLHE.shape[:2]
  slots = cache.k_BSHE.shape[1]
  real_BL = jnp.ones((batch, length), bool) if mask_BL is None else mask_BL
  segments_BL = jnp.zeros((batch, length), jnp.int32) if segments_BL is None else segments_BL
  slot_BL = cache.length_B[:, None] + jnp.arange(length, dtype=jnp.int32)[None, :]
  target_BL = jnp.where(real_BL, slot_BL, jnp.int32(slots))  # one past the end: dropped
  row_B1 = jnp.arange(batch, dtype=jnp.int32)[:, None]

  def write(old, new):
    return old.at[row_B1, target_BL].set(new.astype(old.dtype), mode='drop')

  after = KeyValueCache(
    write(cache.k_BSHE, k_BLHE),
    write(cache.v_BSHE, v_BLHE),
    write(cache.segments_BS, segments_BL),
    cache.length_B + jnp.sum(real_BL, axis=1, dtype=jnp.int32),
  )
  seen_BLS = jnp.arange(slots, dtype=jnp.int32)[None, None, :] <= slot_BL[:, :, None]
  same_BLS = after.segments_BS[:, None, :] == segments_BL[:, :, None]
  return after, seen_BLS & same_BLS & real_BL[:, :, None]


class Attention(Mixer):
  """What the attending mixers share: projections into heads, rotation, and the way back.

  Columns h*E:(h+1)*E of each kernel belong to head h; E = width / heads.
  """

  def split(self, x_BLD: jax.Array, name: str) -> jax.Array:
    """Projection `name` of x, split into heads."""
    batch, length, _ = x_BLD.shape
    y_BLD = self.dense(self.width, name, self.qkv_bias)(x_BLD)
    return y_BLD.reshape(batch, length, self.heads, self.width // self.heads)

  def rotate(self, x_BLHE: jax.Array, positions_BL: jax.Array | None) -> jax.Array:
    """RoPE, where the model has it."""
    if self.positions != 'rope':
      return x_BLHE
    if positions_BL is None:
      positions_BL = jnp.arange(x_BLHE.shape[1], dtype=jnp.int32)[None, :]
    return rope(x_BLHE, positions_BL, self.rope_base)

  def weight_dropout(self, train: bool):
    """The dropout on attention weights, as `attention` takes it."""
    return (self.make_rng('dropout'), self.dropout) if train and self.dropout else None

  def join(self, y_BLHE: jax.Array, mask_BL: jax.Array | None, train: bool) -> jax.Array:
    """Heads side by side, projected; zero at padding."""
    y_BLD = y_BLHE.reshape(*y_BLHE.shape[:2], self.width)
    y_BLD = self.dense(self.width, 'o', self.out_bias)(y_BLD)
    return blank(nn.Dropout(self.dropout)(y_BLD, deterministic=not train), mask_BL)


class Softmax(Attention):
  """Multi-head softmax attention; causal in every form but `bidirectional`.

  4 width^2 parameters, and 3 width (qkv_bias) and width (out_bias). Cache: keys and values of
  max_len tokens, 2 * max_len * width numbers of `dtype` an example and a layer.
  """

  group: ClassVar[str] = 'softmax'

  @property
  def causal(self) -> bool:
    return self.form != 'bidirectional'

  @nn.compact
  def __call__(
    self, x_BLD, *, positions_BL=None, mask_BL=None, segments_BL=None, cache=None, train=False
  ) -> Mixed:
    q_BLHE, k_BLHE, v_BLHE = (self.split(x_BLD, name) for name in 'qkv')
    if cache is None:
      visible_BLS = visible(
        x_BLD.shape[1], causal=self.causal, mask_BL=mask_BL, segments_BL=segments_BL
      )
    elif not self.causal:
      self.refuse(cache=cache)
    elif positions_BL is None:
      positions_BL = cache.length_B[:, None] + jnp.arange(x_BLD.shape[1], dtype=jnp.int32)[None, :]
    q_BLHE, k_BLHE = (self.rotate(a, positions_BL) for a in (q_BLHE, k_BLHE))
    if cache is not None:
      cache, visible_BLS = append(cache, k_BLHE, v_BLHE, mask_BL, segments_BL)
      k_BLHE, v_BLHE = (a.astype(q_BLHE.dtype) for a in (cache.k_BSHE, cache.v_BSHE))
    y_BLHE = attention(
      q_BLHE,
      k_BLHE,
      v_BLHE,
      scale=(self.width // self.heads) ** -0.5,
      visible_BLS=visible_BLS,
      dropout=self.weight_dropout(train),
    )
    return Mixed(self.join(y_BLHE, mask_BL, train), Aux({}, {}, {}), cache)

  def init_cache(self, batch: int, max_len: int, dtype) -> KeyValueCache:
    if not self.causal:
      return super().init_cache(batch, max_len, dtype)
    return empty_cache(batch, max_len, self.heads, self.width // self.heads, dtype)
