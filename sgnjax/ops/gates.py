"""Gates on a spectrum as operators on a sequence: the published ones, and as kernels."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sgnjax.ops.dct import dct, dct_gate, idct
from sgnjax.ops.dtypes import wide
from sgnjax.ops.haar import (
  band_frequency,
  causal_haar_kernel,
  causal_haar_levels,
  haar,
  haar_levels,
  ihaar,
  resample_haar_gate,
)
from sgnjax.ops.kernels import (
  complex_kernel,
  even_conv_2d,
  even_kernel,
  even_kernel_2d,
  one_sided_kernel,
  truncated_dct_operator,
)

MIXTURE = ('dct', 'fft', 'haar')  # of basis adaptive, in the order of its mixture
Tree = Any  # gates: an array (points, D), or a dict of gates


def spectral_gate(x_BLD: jax.Array, gate_ND: jax.Array) -> jax.Array:
  """`IDCT(G * DCT(x))` over the length, which sees all of it: the published layer (SGN, section 3).

  The gate is resampled when the length is not N.
  """
  return dct_gate(x_BLD, resample_gate(gate_ND, x_BLD.shape[1]))


def resample_gate(gate_ND: jax.Array, length: int) -> jax.Array:
  """The gate for another length: linear in normalised frequency k/N; ends are held."""
  n = gate_ND.shape[0]
  return gate_ND if length == n else _resample(gate_ND, length, n / length)


def _resample(gate_PD: jax.Array, points: int, ratio: float) -> jax.Array:
  """Point k of the result is the gate at point `k * ratio`."""
  n = gate_PD.shape[0]
  at_L = jnp.clip(jnp.arange(points, dtype=gate_PD.dtype) * ratio, 0, n - 1)
  low_L = jnp.minimum(at_L.astype(jnp.int32), max(n - 2, 0))
  share_L1 = (at_L - low_L.astype(at_L.dtype))[:, None]
  return gate_PD[low_L] * (1 - share_L1) + gate_PD[jnp.minimum(low_L + 1, n - 1)] * share_L1


def fourier_gate(x_BLD: jax.Array, real_FD: jax.Array, imag_FD: jax.Array, n: int) -> jax.Array:
  """`irfft(G * rfft(x))`, circular over the length: the FFT in place of the DCT (SGN, ablation).

  G: complex, on the n//2 + 1 bins of the context n; real and imaginary part are resampled, linear
  in k/n, for another length. The imaginary part has no effect at bin 0 and at the Nyquist bin.
  """
  length = x_BLD.shape[1]
  compute = wide(x_BLD.dtype)
  if length != n:
    real_FD, imag_FD = (_resample(g, length // 2 + 1, n / length) for g in (real_FD, imag_FD))
  gate_FD = jax.lax.complex(real_FD.astype(compute), imag_FD.astype(compute))
  spectrum_BFD = jnp.fft.rfft(x_BLD.astype(compute), axis=1) * gate_FD[None]
  return jnp.fft.irfft(spectrum_BFD, length, axis=1).astype(x_BLD.dtype)


def haar_gate(x_BLD: jax.Array, gate_ND: jax.Array) -> jax.Array:
  """`W^T (G * W x)` with the orthonormal Haar transform W; the gate follows another length."""
  gate_LD = resample_haar_gate(gate_ND, x_BLD.shape[1])
  compute = wide(x_BLD.dtype)
  coefficients_BLD = haar(x_BLD.astype(compute), axis=1) * gate_LD.astype(compute)[None]
  return ihaar(coefficients_BLD, axis=1).astype(x_BLD.dtype)


def grid_gate(x_BLD: jax.Array, gate_PD: jax.Array, grid: tuple[int, int]) -> jax.Array:
  """The published layer with the 2-D DCT over image patches in raster order, gate likewise."""
  compute = wide(x_BLD.dtype)
  x_BRCD = x_BLD.astype(compute).reshape(-1, *grid, x_BLD.shape[2])
  gate_RCD = gate_PD.astype(compute).reshape(*grid, -1)
  y_BRCD = idct(idct(dct(dct(x_BRCD, axis=1), axis=2) * gate_RCD[None], axis=1), axis=2)
  return y_BRCD.reshape(x_BLD.shape).astype(x_BLD.dtype)


def even_grid_gate(x_BLD: jax.Array, gate_PD: jax.Array, grid: tuple[int, int]) -> jax.Array:
  """Two-dimensional `even_gate`: even in both axes, zero outside the image."""
  rows, columns = grid
  r_TSD = even_kernel_2d(gate_PD.reshape(rows + 1, columns + 1, -1))
  y_BRCD = even_conv_2d(x_BLD.reshape(-1, rows, columns, x_BLD.shape[2]), r_TSD)
  return y_BRCD.reshape(x_BLD.shape)


def published_mix(x_BLD: jax.Array, basis: str, gate: Tree, n: int) -> jax.Array:
  """The published layer in a basis, with gates of context n."""
  if basis == 'dct':
    return spectral_gate(x_BLD, gate)
  if basis == 'fft':
    return fourier_gate(x_BLD, gate['real'], gate['imag'], n)
  if basis == 'haar':
    return haar_gate(x_BLD, gate)
  return sum(published_mix(x_BLD, b, gate[b], n) for b in MIXTURE)


def masked_gate(x_BLD: jax.Array, basis: str, gate: Tree, n: int) -> jax.Array:
  """The lower triangle of the published operator, `tril(C^T diag(G) C) x`: causal, O(L^2)."""
  length = x_BLD.shape[1]
  operator_TSD = masked_operator(basis, gate, n)[:length, :length]
  return jnp.einsum('tsd,bsd->btd', operator_TSD.astype(x_BLD.dtype), x_BLD)


def masked_operator(basis: str, gate: Tree, n: int) -> jax.Array:
  """`tril(C^T diag(G) C)` of a basis, dense: (n, n, D)."""
  if basis == 'dct':
    return truncated_dct_operator(gate)
  leaf = jax.tree.leaves(gate)[0]
  units_STD = jnp.broadcast_to(jnp.eye(n, dtype=leaf.dtype)[:, :, None], (n, n, leaf.shape[1]))
  operator_TSD = jnp.moveaxis(published_mix(units_STD, basis, gate, n), 0, 1)
  past_TS1 = jnp.asarray(np.tri(n, dtype=bool))[:, :, None]
  return jnp.where(past_TS1, operator_TSD, jnp.zeros((), leaf.dtype))


def causal_kernel(basis: str, gate: Tree, n: int) -> jax.Array:
  """Lags 0..n of the causal filter with these gates of context n.

  dct: the gate is the real part of its response. fft: `irfft(G, 2n)` without its future. haar: of
  the undecimated causal transform.
  """
  if basis == 'dct':
    return one_sided_kernel(gate)
  if basis == 'fft':
    return complex_kernel(gate['real'], gate['imag'])[0]
  if basis == 'haar':
    h_TD = causal_haar_kernel(gate)
    return jnp.pad(h_TD, ((0, n + 1 - h_TD.shape[0]), (0, 0)))
  return sum(causal_kernel(b, gate[b], n) for b in MIXTURE)


def two_sided_kernel(basis: str, gate: Tree, n: int) -> tuple[jax.Array, jax.Array]:
  """Lags 0..n of the bidirectional filter, over the past and over the future.

  dct: the gate is its response. fft: likewise, a complex one. haar: the even part of the causal
  filter, whose response is the real part of that one's.
  """
  if basis == 'dct':
    return (even_kernel(gate),) * 2
  if basis == 'fft':
    return complex_kernel(gate['real'], gate['imag'])
  if basis == 'haar':
    h_TD = causal_kernel(basis, gate, n)
    return (jnp.concatenate([h_TD[:1], h_TD[1:] / 2]),) * 2
  sides = [two_sided_kernel(b, gate[b], n) for b in MIXTURE]
  return sum(past for past, _ in sides), sum(future for _, future in sides)


def longer_sum(a_TD: jax.Array, b_TD: jax.Array) -> jax.Array:
  """The sum of two kernels, the second of as many lags or fewer."""
  return a_TD + jnp.pad(b_TD, ((0, a_TD.shape[0] - b_TD.shape[0]), (0, 0)))


def real_response(kernel) -> jax.Array:
  """Real part of the response of lags 0..N: (N + 1, D), on an rFFT grid of length 2N.

  kernel: (N + 1, D) of a causal filter, or the two sides of a bidirectional one. It is the gate
  whose `one_sided_kernel`, or `even_kernel`, is the kernel or its even part.
  """
  if isinstance(kernel, tuple):
    even_TD = (kernel[0] + kernel[1]) / 2
    kernel = jnp.concatenate([even_TD[:1], 2 * even_TD[1:-1], even_TD[-1:]])
  return jnp.real(jnp.fft.rfft(kernel, 2 * (kernel.shape[0] - 1), axis=0)).astype(kernel.dtype)


@dataclasses.dataclass(frozen=True)
class Points:
  """Where a gate lives: the frequency of each point, 1 being Nyquist's, and the points kept."""

  frequency_P: np.ndarray
  kept_C: np.ndarray


def gate_points(
  basis: str, n: int, *, published: bool, retained: int | None = None, grid=None
) -> Points | dict:
  """The points of the gates of context n: one `Points`, or a dict like the parameters."""
  more = 0 if published else 1

  def lowest(frequency_P):
    order_P = np.argsort(frequency_P, kind='stable')
    return Points(frequency_P, np.sort(order_P[:retained]))

  if grid is not None:
    row_R, column_C = (np.arange(side + more) / side for side in grid)
    return lowest((np.hypot(row_R[:, None], column_C[None, :]) / np.sqrt(2)).reshape(-1))
  if basis == 'dct':
    return lowest(np.arange(n + more) / n)
  if basis == 'fft':
    bins_F = np.arange(n // 2 + 1) * 2 / n if published else np.arange(n + 1) / n
    return {part: lowest(bins_F) for part in ('real', 'imag')}
  if basis == 'haar' and published:
    return lowest(band_frequency(haar_levels(n)))
  if basis == 'haar':
    level_J = np.asarray([0, *range(causal_haar_levels(n + 1), 0, -1)])
    # An octave is kept where all its coefficients would be among the lowest of the n.
    kept_J = (level_J == 0) | (n <= (retained or n) * 2.0 ** (level_J - 1))
    return Points(band_frequency(level_J), np.flatnonzero(kept_J))
  return {b: gate_points(b, n, published=published, retained=retained) for b in MIXTURE}


def lowpass(spec: Tree, cutoff: float, width: int, dtype) -> Tree:
  """`exp(-f / cutoff)` at the points kept, the same in every channel; imaginary parts are zero."""

  def at(path, points):
    real = path[-1:] != (jax.tree_util.DictKey('imag'),)
    value_C = real * np.exp(-points.frequency_P[points.kept_C] / cutoff)
    return jnp.broadcast_to(jnp.asarray(value_C, dtype)[:, None], (len(value_C), width))

  return jax.tree_util.tree_map_with_path(at, spec)
