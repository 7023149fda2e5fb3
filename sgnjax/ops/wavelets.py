"""Wavelets that see the past alone: undecimated transforms, packets, orthonormal lattices.

Signals are (B, *X, L), the length last; filters (*X', T) with X' broadcastable to X and of the same
rank, tap 0 on the current position. Sums are written out tap by tap: no FFT spreads a later value's
rounding, so position t depends on nothing after t, to the last bit. Filters come from PyWavelets.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pywt

from sgnjax.errors import UserError, nearest
from sgnjax.ops.statistics import Moments, prefix_moments


def filters(name: str) -> tuple[np.ndarray, np.ndarray]:
  """Analysis filters (low, high) of an orthogonal wavelet of PyWavelets, float64, (T,) each.

  Raises UserError for a name that PyWavelets lacks, or whose wavelet is not orthogonal.
  """
  known = pywt.wavelist(kind='discrete')
  if name not in known:
    raise UserError(f"wavelet '{name}' is not known{nearest(name, known)}")
  wavelet = pywt.Wavelet(name)
  if not wavelet.orthogonal:
    raise UserError(f"wavelet '{name}' is not orthogonal; take db1 to db38, sym* or coif*")
  return np.asarray(wavelet.dec_lo), np.asarray(wavelet.dec_hi)


def delayed(x: jax.Array, lag: int, segments_BL: jax.Array | None = None) -> jax.Array:
  """x of `lag` positions ago, zero before the start of the row or of the segment."""
  if not lag:
    return x
  length = x.shape[-1]
  kept = max(length - lag, 0)
  before = [(0, 0)] * (x.ndim - 1) + [(length - kept, 0)]
  y = jnp.pad(x[..., :kept], before)
  if segments_BL is None or not kept:
    return y
  same = jnp.pad(segments_BL[:, lag:] == segments_BL[:, :kept], ((0, 0), (lag, 0)))
  same = same.reshape(same.shape[0], *(1,) * (x.ndim - 2), length)
  return jnp.where(same, y, jnp.zeros((), y.dtype))


def convolve(x: jax.Array, taps: jax.Array, stride: int = 1, segments_BL=None) -> jax.Array:
  """`y_t = sum_n taps[n] x[t - stride n]`, tap by tap. Shapes as at the top of this file."""
  y = taps[None, ..., 0, None] * x
  for n in range(1, taps.shape[-1]):
    y = y + taps[None, ..., n, None] * delayed(x, stride * n, segments_BL)
  return y


def mirrored(x: jax.Array, count: int, mask_BL: jax.Array | None = None) -> jax.Array:
  """x with `count` samples before it, its own mirrored about the first: sees the future (EGA text).

  x: (B, *X, L) to (B, *X, count + L). Sample -n is x[n], bouncing between the ends where count is
  more than the length; `mask_BL` tells each row's own length. As `numpy.pad(mode='reflect')`.
  """
  batch, length = x.shape[0], x.shape[-1]
  if mask_BL is None:
    real_B = jnp.full((batch,), length, jnp.int32)
  else:
    real_B = jnp.sum(mask_BL, axis=1, dtype=jnp.int32)
  last_B1 = jnp.maximum(real_B - 1, 0)[:, None]
  period_B1 = jnp.maximum(2 * last_B1, 1)
  step_BN = jnp.arange(count, 0, -1, dtype=jnp.int32)[None, :] % period_B1
  index = jnp.minimum(step_BN, 2 * last_B1 - step_BN)
  index = index.reshape(batch, *(1,) * (x.ndim - 2), count)
  before = jnp.take_along_axis(x, jnp.broadcast_to(index, (*x.shape[:-1], count)), axis=-1)
  return jnp.concatenate([before, x], axis=-1)


def reach(taps: int, levels: int) -> int:
  """How far back the deepest level looks: `(taps - 1) (2^levels - 1)` positions."""
  return (taps - 1) * (2**levels - 1)


def atrous(x: jax.Array, low: jax.Array, high: jax.Array, levels: int, segments_BL=None):
  """Undecimated causal wavelet transform: details (B, *X, levels, L) and approximation (B, *X, L).

  `d_j(t) = sum_n high[n] a_{j-1}(t - 2^{j-1} n)`, `a_j` likewise with low, `a_0 = x`; zero before
  the start. Every 2^j-th detail, from 2^j - 1 on, is the decimated transform with zero extension.
  Source: a trous algorithm (Holschneider et al. 1989); EGA, section on Daubechies energies.
  """
  details = []
  for j in range(levels):
    details.append(convolve(x, high, 2**j, segments_BL))
    x = convolve(x, low, 2**j, segments_BL)
  return jnp.stack(details, axis=-2), x


def packets(x: jax.Array, low: jax.Array, high: jax.Array, levels: int, segments_BL=None):
  """Undecimated wavelet packets: nodes of level j as (B, *X, 2^j, L), j = 0 to levels.

  Nodes lie in order of frequency: node f of level j covers `[f, f + 1] / 2^{j+1}` cycles a token.
  Both branches are filtered at each level. Source: Coifman and Wickerhauser 1992, section 2.
  """
  nodes = [x[..., None, :]]
  for j in range(levels):
    # The high branch turns its frequencies round, so below an odd node high comes first.
    first, second = (
      jnp.stack([pair[f % 2] for f in range(2**j)], axis=-2) for pair in ((low, high), (high, low))
    )
    children = [convolve(nodes[-1], taps, 2**j, segments_BL) for taps in (first, second)]
    both = jnp.stack(children, axis=-2)
    nodes.append(both.reshape(*both.shape[:-3], 2 ** (j + 1), both.shape[-1]))
  return nodes


def best_basis(costs: list[jax.Array], energies: list[jax.Array]) -> list[jax.Array]:
  """Which nodes of a packet tree make the basis of least entropy: booleans of the costs' shapes.

  costs[j], energies[j]: (*X, 2^j, P) sums of `-u^2 log u^2` and of `u^2` over the coefficients u of
  each node of level j; a separate choice for each place of X and P. Bottom up, a node is kept
  unless the best below it has less Shannon entropy `cost / energy + log energy`, which no scaling
  of the signal changes; ties and silence keep the node. Source: Coifman and Wickerhauser 1992.
  """
  cost, energy = costs[-1], energies[-1]
  kept = [jnp.ones_like(cost, bool)]
  for own_cost, own_energy in zip(costs[-2::-1], energies[-2::-1], strict=True):
    below_cost = cost[..., 0::2, :] + cost[..., 1::2, :]
    below_energy = energy[..., 0::2, :] + energy[..., 1::2, :]
    better = _entropy(below_cost, below_energy) < _entropy(own_cost, own_energy)
    split = better & (below_energy > jnp.zeros((), energy.dtype))
    kept.insert(0, ~split)
    cost = jnp.where(split, below_cost, own_cost)
    energy = jnp.where(split, below_energy, own_energy)
  chosen, reached = [], jnp.ones_like(kept[0])
  for keep in kept:
    chosen.append(reached & keep)
    reached = jnp.repeat(reached & ~keep, 2, axis=-2)
  return chosen


def packet_basis(
  nodes: list[jax.Array], *, whole: bool, segments_BL=None, mask_BL=None, before=None
) -> tuple[list[jax.Array], Moments]:
  """The best basis of undecimated packets: booleans (B, *X, 2^j, L or 1), one array a level.

  whole: one choice from the whole row, which sees the future; else a choice at each position, from
  the coefficients up to it, of its segment. A coefficient of level j weighs 2^-j: the mean over all
  2^j shifts of the decimated transform. The choice carries no gradient. Beside it, the moments that
  a later chunk takes as `before`, as in `prefix_moments`: (B, 2, *X, nodes, L).
  """
  levels = len(nodes) - 1
  power = jax.lax.stop_gradient(jnp.concatenate(nodes, axis=-2)) ** 2
  terms = jnp.stack([-jax.scipy.special.xlogy(power, power), power], axis=1)
  moments = prefix_moments(terms, segments=segments_BL, mask=mask_BL, before=before)
  sums = moments.count * moments.mean
  sums = sums[..., -1:] if whole else sums
  sums = jnp.split(sums, [2**j - 1 for j in range(1, levels + 1)], axis=-2)
  costs, energies = ([level[:, i] / 2**j for j, level in enumerate(sums)] for i in (0, 1))
  return best_basis(costs, energies), moments


def packet_energies(nodes: list[jax.Array], chosen: list[jax.Array]) -> jax.Array:
  """Energy of each octave in the chosen basis: (B, *X, levels + 1, L).

  Octave s of levels + 1 is `[2^-(s+1), 2^-s] / 2` cycles a token, s from 0 (the highest); the last
  one is what remains, down to 0. A chosen coefficient u of level j adds `2^-j u^2`, spread evenly
  over its band where that covers several octaves. With the basis of the plain wavelet transform
  these are `2^-j d_j^2` and, last, `2^-levels a^2`; every basis has the same sum.
  """
  levels = len(nodes) - 1
  edges = np.asarray([1.0] + [2.0 ** -(s + 1) for s in range(levels)] + [0.0])
  total = 0
  for j, (u, keep) in enumerate(zip(nodes, chosen, strict=True)):
    f = np.arange(2**j)[:, None]
    over = np.minimum((f + 1) / 2**j, edges[:-1]) - np.maximum(f / 2**j, edges[1:])
    share_FS = np.maximum(over, 0)  # of a band as wide as 2^-j: the weight 2^-j is in it
    energy = jnp.where(keep, u**2, jnp.zeros((), u.dtype))[..., None, :]
    share = jnp.asarray(share_FS, u.dtype).reshape((1,) * (u.ndim - 2) + (*share_FS.shape, 1))
    total = total + jnp.sum(energy * share, axis=-3)
  return total


def lattice(angles_XK: jax.Array) -> jax.Array:
  """Low filter (*X, 2K + 2) of an orthonormal pair, for any K angles; its sum is sqrt 2.

  The polyphase row is `[1, 0] R(a_0) D R(a_1) D ... R(a_K)`, R a rotation and D a delay of the
  second phase; the last angle is what makes all angles sum to pi / 4, without which the high filter
  would not sum to 0. Source: Vaidyanathan and Hoang 1988, two-channel paraunitary lattice.
  """
  last_X1 = jnp.asarray(np.pi / 4, angles_XK.dtype) - jnp.sum(angles_XK, -1, keepdims=True)
  angles = jnp.concatenate([angles_XK, last_X1], axis=-1)
  cos, sin = jnp.cos(angles)[..., None], jnp.sin(angles)[..., None]
  even, odd = cos[..., 0, :], sin[..., 0, :]
  later = [(0, 0)] * (even.ndim - 1)
  for k in range(1, angles.shape[-1]):
    even, odd = jnp.pad(even, [*later, (0, 1)]), jnp.pad(odd, [*later, (1, 0)])
    c, s = cos[..., k, :], sin[..., k, :]
    even, odd = even * c - odd * s, even * s + odd * c
  return jnp.stack([even, odd], axis=-1).reshape(*even.shape[:-1], 2 * even.shape[-1])


def conjugate(low: jax.Array) -> jax.Array:
  """High filter of an orthonormal pair: `high[n] = (-1)^(n+1) low[T-1-n]`, as PyWavelets has it."""
  sign = np.where(np.arange(low.shape[-1]) % 2, 1.0, -1.0)
  sign = jnp.asarray(sign, low.dtype).reshape((1,) * (low.ndim - 1) + sign.shape)
  return low[..., ::-1] * sign


def lattice_angles(low: np.ndarray) -> np.ndarray:
  """Angles (T/2 - 1,) with which `lattice` gives `low` (T,); float64, on the host.

  Raises UserError where no angles do: the filter is not orthonormal to 1e-8.
  """
  even, odd = np.asarray(low, np.float64)[0::2], np.asarray(low, np.float64)[1::2]
  angles, left_over = [], 0.0
  while len(even) > 1:
    # Undo the last rotation: it leaves no last lag of the even phase, and no first of the odd one.
    if abs(odd[0]) + abs(even[0]) > abs(odd[-1]) + abs(even[-1]):
      angle = np.arctan2(odd[0], even[0])
    else:
      angle = np.arctan2(-even[-1], odd[-1])
    cos, sin = np.cos(angle), np.sin(angle)
    even, odd = even * cos + odd * sin, odd * cos - even * sin
    left_over = max(left_over, abs(even[-1]), abs(odd[0]))
    even, odd = even[:-1], odd[1:]
    angles.insert(0, angle)
  angles.insert(0, np.arctan2(odd[0], even[0]))
  left_over = max(left_over, abs(np.hypot(even[0], odd[0]) - 1), abs(np.sum(low) - 2**0.5))
  if left_over > 1e-8:
    raise UserError(f'no lattice of rotations gives this low filter: it is off by {left_over:.1e}')
  return np.asarray(angles[:-1])


def _entropy(cost, energy):
  """Shannon entropy of a distribution from its sums of `-u^2 log u^2` and `u^2`; 0 in silence."""
  heard = energy > jnp.zeros((), energy.dtype)
  energy = jnp.where(heard, energy, jnp.ones_like(energy))
  return jnp.where(heard, cost / energy + jnp.log(energy), jnp.zeros_like(cost))
