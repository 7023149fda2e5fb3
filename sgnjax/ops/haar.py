"""The Haar basis: the orthonormal transform of any length, and its causal, undecimated kernel."""

import math

import jax
import jax.numpy as jnp
import numpy as np

from sgnjax.ops.dtypes import wide


def haar(x: jax.Array, axis: int = -1) -> jax.Array:
  """Orthonormal Haar transform of any length: `a, d = (x_0 + x_1) / sqrt 2, (x_0 - x_1) / sqrt 2`.

  The averages of each level are transformed again until one is left; where their number is odd, the
  last passes on as it is. Order: the one average, then details from the coarsest level to the
  finest, each from left to right. Shape and dtype of x (real); computed in float32 or wider, O(N).
  """
  x_XN = jnp.moveaxis(x, axis, -1).astype(wide(x.dtype))
  details = []
  while x_XN.shape[-1] > 1:
    paired = x_XN.shape[-1] // 2 * 2
    left, right = x_XN[..., 0:paired:2], x_XN[..., 1:paired:2]
    details.append((left - right) * math.sqrt(0.5))
    x_XN = jnp.concatenate([(left + right) * math.sqrt(0.5), x_XN[..., paired:]], -1)
  y_XN = jnp.concatenate([x_XN, *details[::-1]], -1)
  return jnp.moveaxis(y_XN, -1, axis).astype(x.dtype)


def ihaar(y: jax.Array, axis: int = -1) -> jax.Array:
  """The inverse, and the transpose, of `haar`; same arguments."""
  y_XN = jnp.moveaxis(y, axis, -1).astype(wide(y.dtype))
  x_XN, taken = y_XN[..., :1], 1
  for pairs, leftover in reversed(_halvings(y_XN.shape[-1])):
    average_XP = x_XN[..., :pairs]
    detail_XP = y_XN[..., taken : taken + pairs]
    both_XP2 = jnp.stack([average_XP + detail_XP, average_XP - detail_XP], -1) * math.sqrt(0.5)
    woven = both_XP2.reshape(*both_XP2.shape[:-2], 2 * pairs)
    x_XN = jnp.concatenate([woven, x_XN[..., pairs:]], -1) if leftover else woven
    taken += pairs
  return jnp.moveaxis(x_XN, -1, axis).astype(y.dtype)


def _halvings(n: int) -> list[tuple[int, int]]:
  """(pairs, leftover) of each level, the finest first."""
  halvings = []
  while n > 1:
    halvings.append((n // 2, n % 2))
    n -= n // 2
  return halvings


def haar_levels(n: int) -> np.ndarray:
  """Level of each of the n coefficients of `haar`: 1 is the finest, 0 marks the one average."""
  counts = [pairs for pairs, _ in _halvings(n)]
  return np.repeat([0, *range(len(counts), 0, -1)], [1, *counts[::-1]])


def band_frequency(level: np.ndarray) -> np.ndarray:
  """Middle of a level's octave, in units of the Nyquist frequency: `2^(1/2 - level)`; 0 at 0."""
  return np.where(level == 0, 0.0, 2.0 ** (0.5 - level))


def resample_haar_gate(gate: jax.Array, length: int) -> jax.Array:
  """A gate (n, D) on the coefficients of `haar` for another length: (length, D).

  A level keeps its gate, linear over the level's relative position (ends are held): so frequencies
  per token are kept, as for the DCT. Levels that the n points do not have take their coarsest.
  """
  n = gate.shape[0]
  if length == n:
    return gate
  ours_N, theirs_L = haar_levels(n), haar_levels(length)
  low_L, share_L = np.zeros(length, int), np.zeros(length)
  for level in range(1, theirs_L.max() + 1):
    places = np.flatnonzero(theirs_L == level)
    source = np.flatnonzero(ours_N == min(level, ours_N.max()))
    at = (np.arange(len(places)) + 0.5) * len(source) / len(places) - 0.5
    at = np.clip(at, 0, len(source) - 1)
    low_L[places] = source[0] + np.minimum(at.astype(int), max(len(source) - 2, 0))
    share_L[places] = at - np.minimum(at.astype(int), max(len(source) - 2, 0))
  share_L1 = jnp.asarray(share_L[:, None], gate.dtype)
  return gate[low_L] * (1 - share_L1) + gate[np.minimum(low_L + 1, n - 1)] * share_L1


def causal_haar_levels(lags: int) -> int:
  """J, the levels whose averages of `2^J` tokens fit into so many lags."""
  return lags.bit_length() - 1


def causal_haar_kernel(gate: jax.Array) -> jax.Array:
  """Kernel of the undecimated causal Haar transform with one gate a level: (J + 1, D) to (2^J, D).

  `a_0 = x`, `a_l(t) = (a_{l-1}(t) + a_{l-1}(t - 2^{l-1})) / 2`, `d_l = a_{l-1} - a_l`; the output
  is `G_0 a_J + sum_l G_{J-l+1} d_l`: rows go from the average to the finest detail. It does not
  depend on time; a gate of ones gives the identity.
  """
  levels = gate.shape[0] - 1
  box_LT = np.zeros((levels + 1, 2**levels))  # a_l is the mean of the last 2^l tokens
  for level in range(levels + 1):
    box_LT[level, : 2**level] = 2.0**-level
  rows_JT = np.concatenate([box_LT[-1:], (box_LT[:-1] - box_LT[1:])[::-1]])
  dtype = wide(gate.dtype)
  h_TD = jnp.matmul(
    jnp.asarray(rows_JT.T, dtype), gate.astype(dtype), precision=jax.lax.Precision.HIGHEST
  )
  return h_TD.astype(gate.dtype)
