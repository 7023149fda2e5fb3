"""What is added to attention's scores: by key, by query and key, or by their distance."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class Bias(NamedTuple):
  """What a tile adds to its scores, `of(rows, columns, shared)`: (B or 1, H or 1, l, s).

  rows, columns: trees of arrays (B or 1, H or 1, L, ...) and (B or 1, H or 1, S, ...), of which
  `of` is given the tile's part; shared: a tree of arrays given whole. Gradients reach all of them.
  """

  of: Callable[[Any, Any, Any], jax.Array]
  rows: Any
  columns: Any
  shared: Any


def of_keys(bias_BHS: jax.Array) -> Bias:
  """A bias that depends on the key alone."""
  return Bias(by_key, (), bias_BHS, ())


def by_key(_, bias_BHS: jax.Array, __) -> jax.Array:
  return bias_BHS[:, :, None, :]


def sum_of(biases: tuple[Bias, ...]) -> Bias | None:
  """One bias that is the sum of some; None of none."""
  if len(biases) < 2:
    return biases[0] if biases else None

  def of(rows, columns, shared):
    first, *others = (
      bias.of(*given) for bias, *given in zip(biases, rows, columns, shared, strict=True)
    )
    for other in others:
      first = first + other.astype(first.dtype)
    return first

  rows, columns, shared = (tuple(getattr(b, field) for b in biases) for field in Bias._fields[1:])
  return Bias(of, rows, columns, shared)


def whole_bias(biases: tuple[Bias, ...]) -> jax.Array | None:
  """The sum of some for all queries and keys at once."""
  bias = sum_of(biases)
  return None if bias is None else bias.of(bias.rows, bias.columns, bias.shared)


def alibi_slopes(heads: int) -> np.ndarray:
  """Slopes m_h of the heads: `2^(-8 h / H)` for H a power of two, h = 1..H (ALiBi, section 3).

  Other head counts take those of the next lower power of two, then every other one of the next
  higher.
  """
  lower = 1 << (heads.bit_length() - 1)
  slopes = 2.0 ** (-8.0 * np.arange(1, lower + 1) / lower)
  between = 2.0 ** (-4.0 * np.arange(1, 2 * lower + 1) / lower)[::2]
  return np.concatenate([slopes, between])[:heads]


def alibi(query_BL: jax.Array, key_BS: jax.Array, heads: int, *, dtype) -> Bias:
  """`-m_h |i - j|` for queries at i and keys at j (ALiBi, section 3)."""
  slope_H = jnp.asarray(alibi_slopes(heads), dtype)
  return Bias(by_distance, query_BL[:, None].astype(dtype), key_BS[:, None].astype(dtype), slope_H)


def by_distance(query_B1L, key_B1S, slope_H):
  distance_B1LS = jnp.abs(query_B1L[:, :, :, None] - key_B1S[:, :, None, :])
  return -slope_H[None, :, None, None] * distance_B1LS
