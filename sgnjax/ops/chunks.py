"""What crosses from one chunk of a sequence to the next. Signals are (B, *X, L), the length last.

A mask is true on real tokens, which come first in a row: padding leaves all state as it was.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from sgnjax.ops.backend import backend


def whole(batch: int, length: int, mask_BL, segments_BL) -> tuple[jax.Array, jax.Array]:
  """Mask and segments, where they are None: all real, all of segment 0."""
  real_BL = jnp.ones((batch, length), bool) if mask_BL is None else mask_BL
  if segments_BL is None:
    return real_BL, jnp.zeros((batch, length), jnp.int32)
  return real_BL, segments_BL.astype(jnp.int32)


def carried(old, new, mask_BL: jax.Array | None):
  """Arrays (B, *X) behind a chunk: `new` (B, *X, L) at its last real token, or `old` if none is."""

  def pick(old_BX, new_BXL):
    if mask_BL is None:
      return new_BXL[..., -1].astype(old_BX.dtype)
    count_B = jnp.sum(mask_BL, axis=1, dtype=jnp.int32)
    count = count_B.reshape(-1, *(1,) * (old_BX.ndim - 1))
    at = jnp.broadcast_to(jnp.maximum(count - 1, 0), old_BX.shape)[..., None]
    last = jnp.take_along_axis(new_BXL, at, axis=-1)[..., 0].astype(old_BX.dtype)
    return jnp.where(count > 0, last, old_BX)

  return jax.tree.map(pick, old, new)


class History(NamedTuple):
  """The last samples of a signal, (B, *X, R), and the segments that they are of (-1: none)."""

  signal_BXR: jax.Array
  segments_BR: jax.Array

  @classmethod
  def empty(cls, shape: tuple[int, ...], dtype) -> 'History':
    """Nothing before the start; shape (B, *X, R)."""
    return cls(jnp.zeros(shape, dtype), jnp.full((shape[0], shape[-1]), -1, jnp.int32))


def behind(history: History, x: jax.Array, segments_BL: jax.Array, mask_BL=None):
  """A chunk of a signal behind the samples before it, with its segments, and the next history."""
  signal = jnp.concatenate([history.signal_BXR.astype(x.dtype), x], axis=-1)
  segments = jnp.concatenate([history.segments_BR, segments_BL], axis=-1)
  batch, kept = history.segments_BR.shape
  if mask_BL is None:
    real_B = jnp.full((batch,), x.shape[-1], jnp.int32)
  else:
    real_B = jnp.sum(mask_BL, axis=1, dtype=jnp.int32)
  at_BR = real_B[:, None] + jnp.arange(kept, dtype=jnp.int32)[None, :]
  at = at_BR.reshape(batch, *(1,) * (x.ndim - 2), kept)
  at = jnp.broadcast_to(at, history.signal_BXR.shape)
  last = jnp.take_along_axis(signal, at, axis=-1).astype(history.signal_BXR.dtype)
  return signal, segments, History(last, jnp.take_along_axis(segments, at_BR, axis=-1))


def in_place(write, array: jax.Array, length: int, count: jax.Array) -> jax.Array:
  """`write(array)`, into the same memory where the chunk is one token: a step of a generation.

  length: of the chunk. count: an int32 scalar that is never negative, which XLA does not know.
  """
  if length > 1 or backend() != 'cpu':
    return write(array)
  # A loop of one turn: XLA's CPU would fuse the write with each of its uses, and copy the array.
  return jax.lax.fori_loop(0, (count >= 0).astype(jnp.int32), lambda _, a: write(a), array)
