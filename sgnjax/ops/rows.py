"""Sequences with their length as the last axis, where Fourier transforms take it."""

from collections.abc import Callable, Iterable

import jax
import jax.numpy as jnp

from sgnjax.ops.backend import backend

# XLA's CPU fills a transposed array row by row, so a long sequence is read through a cache that no
# longer holds it when the next channel comes: of 65,536 rows of 256 channels, reordered for a DCT,
# in blocks it took 61 ms of processor time, whole 167. At 4,096 and 16,384 rows blocks were seen to
# be twice as quick too, at 1,024 slower (busy processors, forward): LONG is on the safe side.
LONG = 16_384
BLOCK = 256

Parts = Callable[[jax.Array, int | jax.Array], Iterable[tuple[jax.Array, int | jax.Array]]]


def length_last(x_BLC: jax.Array, n: int, parts: Parts) -> jax.Array:
  """(B, L, *C) to (B, *C, n): rows of x at their places along the last axis, zeros behind them.

  parts: of rows (B, R, *C) and the number of their first one, an even one, pairs of rows made of
  them, linearly, and the place of the first of these. Of all rows: in order and without gaps.
  """

  def whole(x_BLC):
    y_BCN = jnp.moveaxis(jnp.concatenate([rows for rows, _ in parts(x_BLC, 0)], 1), 1, -1)
    return _padded(y_BCN, n)

  if not in_blocks(x_BLC.shape[1]):
    return whole(x_BLC)
  length, dtype = x_BLC.shape[1], x_BLC.dtype

  def transpose(gradient_BCN):
    zeros_BLC = _zeros(jnp.moveaxis(gradient_BCN, -1, 1), length, axis=1)
    zeros_BLC = jnp.real(zeros_BLC).astype(dtype)
    return jax.vjp(whole, zeros_BLC)[1](gradient_BCN)[0]

  return linear(lambda x_BLC: _blocked(x_BLC, n, parts), transpose)(x_BLC)


def length_second(y_BCN: jax.Array, length: int, join: Callable, transpose: Callable) -> jax.Array:
  """`join(y)`, (B, *C, n) to (B, L, *C), whose transpose is `transpose`, by `length_last`.

  Autodiff finds the same transpose where `length_last` takes no blocks.
  """
  return (linear(join, transpose) if in_blocks(length) else join)(y_BCN)


def in_blocks(length: int) -> bool:
  return backend() == 'cpu' and length >= LONG


def linear(fun: Callable, transpose: Callable) -> Callable:
  """A linear function of one array with its transpose given."""
  call = jax.custom_vjp(fun)
  call.defvjp(lambda x: (fun(x), None), lambda _, gradient: (transpose(gradient),))
  return call


def _blocked(x_BLC, n, parts):
  length = x_BLC.shape[1]
  tail = length % BLOCK

  def put(y_BCN, rows_BRC, first):
    for part_BRC, place in parts(rows_BRC, first):
      part_BCR = jnp.moveaxis(part_BRC, 1, -1)
      y_BCN = jax.lax.dynamic_update_slice_in_dim(y_BCN, part_BCR, place, axis=-1)
    return y_BCN

  def block(i, y_BCN):
    rows_BRC = jax.lax.dynamic_slice_in_dim(x_BLC, i * BLOCK, BLOCK, axis=1)
    return put(y_BCN, rows_BRC, i * BLOCK)

  part_BRC, _ = next(iter(parts(x_BLC[:, :2], 0)))
  y_BCN = _zeros(jnp.moveaxis(part_BRC, 1, -1), n, axis=-1)
  y_BCN = jax.lax.fori_loop(0, length // BLOCK, block, y_BCN)
  return put(y_BCN, x_BLC[:, length - tail :], length - tail) if tail else y_BCN


def _zeros(like, n, axis):
  """Zeros of the shape but for n along the axis. Inside `shard_map`, of the same type too."""
  return _padded(jax.lax.slice_in_dim(like, 0, 0, axis=axis), n, axis)


def _padded(y, n, axis=-1):
  """Zeros behind y, up to n along the axis."""
  more = n - y.shape[axis]
  widths = [(0, 0)] * y.ndim
  widths[axis] = (0, more)
  return jnp.pad(y, widths) if more else y
