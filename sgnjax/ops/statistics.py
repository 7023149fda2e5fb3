"""Moments and z-norms along the last axis: over the sequence, a prefix, or what a query sees."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from sgnjax.ops.dtypes import wide

FLOOR = 1e-8


def layer_norm(x: jax.Array, scale_D: jax.Array, bias_D: jax.Array, eps: float = 1e-5) -> jax.Array:
  """`(x - mean) / sqrt(variance + eps) * scale + bias` over the last axis.

  Population variance by two passes, in float32 or wider; the result has x's shape and dtype.
  Source: Layer Normalization, with the eps of the four papers' code.
  """
  compute = wide(x.dtype)
  centred = x.astype(compute)
  centred = centred - jnp.mean(centred, -1, keepdims=True)
  variance = jnp.mean(centred**2, -1, keepdims=True)
  y = centred * jax.lax.rsqrt(variance + jnp.asarray(eps, compute))
  row = (1,) * (x.ndim - 1) + scale_D.shape
  y = y * scale_D.astype(compute).reshape(row) + bias_D.astype(compute).reshape(row)
  return y.astype(x.dtype)


def sequence_znorm(e: jax.Array, mask: jax.Array | None = None) -> jax.Array:
  """`(e - mean) / max(std, 1e-8)` over the whole last axis: sees the future (EGA, energy z-norm).

  e: (B, *X, L); mask: bool, (B, L), True for real elements; others have weight 0 and z = 0.
  Population standard deviation; where it is exactly 0, z is 0 and carries no gradient. Computed in
  float32 or wider; the result has e's shape and dtype.
  """
  x = e.astype(wide(e.dtype))
  real = _real(mask, x)
  weight = real.astype(x.dtype)
  count = jnp.maximum(jnp.sum(weight, -1, keepdims=True), jnp.ones((), x.dtype))
  # Shifted by one of the elements first: equal energies, however large, then have variance 0.
  shift = jnp.min(jnp.where(real, x, jnp.asarray(jnp.inf, x.dtype)), -1, keepdims=True)
  shift = jax.lax.stop_gradient(jnp.where(jnp.isfinite(shift), shift, jnp.zeros_like(shift)))
  x = jnp.where(real, x - shift, jnp.zeros_like(x))
  mean = jnp.sum(x, -1, keepdims=True) / count
  variance = jnp.sum(weight * (x - mean) ** 2, -1, keepdims=True) / count
  return _standardise(x, mean, variance, real).astype(e.dtype)


class Moments(NamedTuple):
  """Count, mean and sum of squared deviations."""

  count: jax.Array
  mean: jax.Array
  m2: jax.Array


def znorm(x: jax.Array, moments: Moments, real: jax.Array | bool = True) -> jax.Array:
  """`(x - mean) / max(std, 1e-8)` under given moments; 0 where not `real` and where std is 0.

  Arguments broadcast. With the moments that follow from each key's prefix this is EGA's `prefix`
  statistic; with those of each query's (a further axis), its `query` statistic, which in one layer
  is what the published EGA computes when it generates token by token.
  """
  count, mean, m2 = moments
  variance = m2 / jnp.maximum(count, jnp.ones((), count.dtype))
  return _standardise(x.astype(mean.dtype), mean, variance, real)


def inverse_deviation(moments: Moments) -> jax.Array:
  """`1 / max(std, 1e-8)` of given moments, 0 where std is 0: `znorm` is `(x - mean)` times it."""
  count, mean, m2 = moments
  variance = m2 / jnp.maximum(count, jnp.ones((), count.dtype))
  return _standardise(jnp.ones_like(mean), jnp.zeros_like(mean), variance, True)


def prefix_moments(
  e: jax.Array,
  *,
  segments: jax.Array | None = None,
  mask: jax.Array | None = None,
  before: tuple[Moments, jax.Array] | None = None,
) -> Moments:
  """Moments of the elements up to each position, three arrays of e's shape.

  e: (B, *X, L); segments: integers, (B, L), where each run of one number starts afresh; mask: bool,
  (B, L), False for elements left out. before: moments (B, *X) and segment (B,) of what came before
  the first element, as a chunk of a longer sequence has them. In float32 or wider; all zero where
  there is nothing to count. Merges partial moments (Chan, Golub, LeVeque 1979) in an associative
  scan, which keeps its digits under a large mean, as E[e^2] - E[e]^2 does not; position t depends
  on nothing after t, to the last bit.
  """
  x = e.astype(wide(e.dtype))
  real = _real(mask, x)
  x = jnp.where(real, x, jnp.zeros_like(x))
  axis = x.ndim - 1
  count = jnp.broadcast_to(real.astype(x.dtype), x.shape)
  parts = Moments(count, x, jnp.zeros_like(x))
  number = None if segments is None else _fit(segments, x)
  if before is not None:
    earlier, segment_B = before
    parts = Moments(
      *(
        jnp.concatenate([a[..., None].astype(x.dtype), part], axis)
        for a, part in zip(earlier, parts, strict=True)
      )
    )
    if number is not None:
      first = segment_B.reshape(-1, *(1,) * axis)
      number = jnp.concatenate([first.astype(number.dtype), number], axis)
  if number is None:
    moments = jax.lax.associative_scan(_merge, parts, axis=axis)
  else:
    start = jnp.concatenate(
      [jnp.ones_like(number[..., :1], bool), number[..., 1:] != number[..., :-1]], -1
    )
    _, moments = jax.lax.associative_scan(_merge_segments, (start, parts), axis=axis)
  if before is not None:
    moments = Moments(*(jax.lax.slice_in_dim(m, 1, None, axis=axis) for m in moments))
  return moments


def _merge(left, right):
  """Moments of two neighbouring stretches together."""
  (count_a, mean_a, m2_a), (count_b, mean_b, m2_b) = left, right
  count = count_a + count_b
  share_b = count_b / jnp.maximum(count, jnp.ones((), count.dtype))
  delta = mean_b - mean_a
  return Moments(count, mean_a + delta * share_b, m2_a + m2_b + delta**2 * (count_a * share_b))


def _merge_segments(left, right):
  """`_merge`, but a stretch that starts a segment forgets what came before it."""
  (start_a, moments_a), (start_b, moments_b) = left, right
  merged = _merge(moments_a, moments_b)
  moments = Moments(*(jnp.where(start_b, b, m) for b, m in zip(moments_b, merged, strict=True)))
  return start_a | start_b, moments


def _real(mask_BL, x):
  """Which elements count: bool, (B or 1, 1 for each of X, L)."""
  if mask_BL is None:
    return jnp.ones((1,) * (x.ndim - 1) + x.shape[-1:], bool)
  return _fit(mask_BL, x)


def _fit(a_BL, x):
  """(B, L) shaped to meet (B, *X, L)."""
  return a_BL.reshape(a_BL.shape[0], *(1,) * (x.ndim - 2), a_BL.shape[1])


def _standardise(x, mean, variance, real):
  """z of the real elements, 0 elsewhere and where the variance is 0, with finite gradients."""
  # Without the guard the first position of a prefix would send 1e8 to and fro between e and its
  # mean: they cancel on paper, and in float32 drown every other gradient.
  varies = variance > jnp.zeros((), variance.dtype)
  std = jnp.sqrt(jnp.where(varies, variance, jnp.ones_like(variance)))
  z = (x - mean) / jnp.maximum(std, jnp.asarray(FLOOR, std.dtype))
  return jnp.where(real & varies, z, jnp.zeros((), z.dtype))
