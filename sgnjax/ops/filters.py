"""Filters of queries and keys: frequency responses and taps, their norms, what they pass."""

import jax
import jax.numpy as jnp
import numpy as np

from sgnjax.errors import check_choice
from sgnjax.ops.dtypes import wide

NORMS = ('sum', 'l2')
FLOOR = 1e-8
SURROGATES = ('random', 'independent', 'amplitude', 'shift')
RUNGS = (0, 1, 4, 16, 64, 128)  # bins of the fixed-bin ladder (FourierQK, frequency ablation)
KNOTS = 129  # of the random response: the bins of the paper's context of 256


def gaussian(bin_F: jax.Array, centre_X: jax.Array, sigma) -> jax.Array:
  """`exp(-(b - f)^2 / 2 sigma^2)`: (*X, F); bins, centres and sigma in one unit (FourierQK, 3)."""
  distance_XF = (_axis(bin_F, centre_X) - centre_X[..., None]) / sigma
  return jnp.exp(-(distance_XF**2) / 2)


def mexican_hat(omega_F: jax.Array, scale_X: jax.Array) -> jax.Array:
  """`(s w)^2 exp(-(s w)^2 / 2)`: (*X, F), the second derivative of a Gaussian (FourierQK, 3).

  omega: radians per token; scale: tokens, any shape X. It peaks at `s w = sqrt(2)`, so a scale of
  `sqrt(2) p / 2 pi` picks the period p.
  """
  square_XF = (scale_X[..., None] * _axis(omega_F, scale_X)) ** 2
  return square_XF * jnp.exp(-square_XF / 2)


def paul(omega_F: jax.Array, scale_X: jax.Array, order: int) -> jax.Array:
  """`(s w)^m exp(-s w)` over its peak: (*X, F), the Paul wavelet of order m (FourierQK, 3).

  Units as in `mexican_hat`. It peaks at `s w = m`, so `m p / 2 pi` picks the period p. Dividing by
  the peak, `(m / e)^m`, keeps high orders inside float32.
  """
  ratio_XF = scale_X[..., None] * _axis(omega_F, scale_X) / order
  return (ratio_XF * jnp.exp(1 - ratio_XF)) ** order


def morlet(omega_F: jax.Array, scale_X: jax.Array, omega0: float) -> jax.Array:
  """`exp(-(s w - w0)^2 / 2)`: (*X, F), the Morlet wavelet's response (FourierQK, 3).

  Units as in `mexican_hat`. It peaks at `s w = w0`, so `w0 p / 2 pi` picks the period p. At
  frequency zero `exp(-w0^2 / 2)` is left.
  """
  return gaussian(omega_F, omega0 / scale_X, 1 / scale_X[..., None])


def ladder(n: int, heads: int) -> np.ndarray:
  """Centres (heads,), in bins of context n: head h takes rung h of 0, 1, 4, 16, 64, 128, cyclic.

  Rungs above the last bin of n are that bin. Source: FourierQK, frequency ablation, which gives all
  heads of a model one rung; here one model holds them all.
  """
  return np.minimum(np.resize(RUNGS, heads), n // 2).astype(np.float64)


def random_response(n: int, heads: int) -> jax.Array:
  """A fixed random response in [0, 1), one a head: (heads, n//2 + 1).

  Uniform at 129 frequencies evenly from 0 to 1/2 cycle per token, linear between, so that it is the
  same function on every grid.
  """
  knots_HK = np.random.default_rng(0).random((heads, KNOTS))
  place_F = np.arange(n // 2 + 1) / n * 2 * (KNOTS - 1)
  return jnp.asarray(np.stack([np.interp(place_F, np.arange(KNOTS), row) for row in knots_HK]))


def dc(n: int, heads: int) -> jax.Array:
  """One at bin 0 of the n//2 + 1 bins, for every head: (heads, n//2 + 1)."""
  return jnp.zeros((heads, n // 2 + 1)).at[:, 0].set(1)


def nyquist(n: int, heads: int) -> jax.Array:
  """One at the last bin, for every head: (heads, n//2 + 1). For odd n it lies below one half."""
  return jnp.zeros((heads, n // 2 + 1)).at[:, -1].set(1)


def normalise(response: jax.Array, kind: str, *, reference: jax.Array | None = None) -> jax.Array:
  """The response over its norm along the last axis: 'sum' (unit sum) or 'l2' (unit length).

  Norms are floored at 1e-8: a response that lies off the grid, all zeros, stays zeros. reference:
  take the norm of this response instead, of the same leading shape, as for one filter on a finer
  grid; a filter much narrower than a bin may miss all bins of the reference, so the norm is then no
  less than half the response's peak. Raises UserError for another kind.
  Source: FourierQK; 'sum' is the spectral-compression paper, 'l2' the frequency ablation.
  """
  check_choice('filter norm', kind, NORMS)
  basis = response if reference is None else reference
  if kind == 'sum':
    norm = jnp.maximum(jnp.sum(basis, -1, keepdims=True), FLOOR)
  else:  # floored under the root, where the gradient of a zero response is still finite
    norm = jnp.sqrt(jnp.maximum(jnp.sum(basis**2, -1, keepdims=True), FLOOR**2))
  if reference is not None:
    norm = jnp.maximum(norm, jnp.max(response, -1, keepdims=True) / 2)
  return response / norm


def half_gaussian(width_X: jax.Array, taps: int) -> jax.Array:
  """`exp(-t^2 / 2 a^2)` at lags t = 0..taps-1, unit L2 norm: (1, *X, taps) (FourierQK, causal)."""
  square_XT = _lags(width_X, taps) ** 2
  return _unit(jnp.exp(-square_XT / 2)[None])


def half_mexican_hat(width_X: jax.Array, taps: int) -> jax.Array:
  """`(1 - t^2 / a^2) exp(-t^2 / 2 a^2)`, lags 0..taps-1, unit L2 norm: (1, *X, taps).

  Source: FourierQK, causal filters, without released code. Half a wavelet has a mean: see
  `admissibility`.
  """
  square_XT = _lags(width_X, taps) ** 2
  return _unit(((1 - square_XT) * jnp.exp(-square_XT / 2))[None])


def half_morlet(omega_X: jax.Array, width_X: jax.Array, taps: int) -> jax.Array:
  """`exp(-t^2 / 2 a^2) (cos, sin)(omega t)`, lags 0..taps-1: (2, *X, taps), real and imaginary.

  omega: radians per token; width a: tokens. The two parts have a joint unit L2 norm. Source:
  FourierQK, causal filters: Morlet with `omega = omega_0 / a`; spectral with a centre in bins f of
  the context T and a width sigma_f, `omega = 2 pi f / T` and `a = T / 2 pi sigma_f`.
  """
  envelope_XT = jnp.exp(-(_lags(width_X, taps) ** 2) / 2)
  angle_XT = omega_X[..., None] * _axis(jnp.arange(taps, dtype=omega_X.dtype), omega_X)
  return _unit(jnp.stack([envelope_XT * jnp.cos(angle_XT), envelope_XT * jnp.sin(angle_XT)]))


def taps_response(taps_PXT: jax.Array, frequency_F: np.ndarray) -> jax.Array:
  """Complex response `sum_t (real + i imaginary)[t] exp(-2 pi i f t)` of taps: (*X, F).

  taps: (1 or 2, *X, T), real and imaginary part; frequency: cycles per token.
  """
  angle_TF = 2 * np.pi * np.arange(taps_PXT.shape[-1])[:, None] * frequency_F[None, :]

  def project(part_XT, wave_TF):
    wave_TF = jnp.asarray(wave_TF, part_XT.dtype)
    return jnp.matmul(part_XT, wave_TF, precision=jax.lax.Precision.HIGHEST)

  real_XF, imag_XF = project(taps_PXT[0], np.cos(angle_TF)), -project(taps_PXT[0], np.sin(angle_TF))
  if taps_PXT.shape[0] == 2:
    real_XF = real_XF + project(taps_PXT[1], np.sin(angle_TF))
    imag_XF = imag_XF + project(taps_PXT[1], np.cos(angle_TF))
  return jax.lax.complex(real_XF, imag_XF)


def coverage(response: jax.Array) -> jax.Array:
  """Share of the bins, last axis, whose |response| is at least half its peak."""
  size = jnp.abs(response)
  return jnp.mean((size >= jnp.max(size, -1, keepdims=True) / 2).astype(size.dtype), -1)


def admissibility(response: jax.Array) -> jax.Array:
  """`|H(0)| / max |H|` over the last axis, which begins at frequency zero: 0 for a wavelet.

  Half wavelets are none: the complex Morlet of omega_0 = 6 has 0.133 to 0.167 (a from 2 to 32), the
  Mexican hat about 0.5 / a, since the sum over one half of a symmetric kernel keeps half of lag 0.
  """
  size = jnp.abs(response)
  return size[..., 0] / jnp.maximum(jnp.max(size, -1), FLOOR)


def effective_period(response: jax.Array, frequency_F: np.ndarray) -> jax.Array:
  """Tokens per cycle at the mean frequency, weighted by |response|^2; infinite for a pure mean.

  response: (*X, F); frequency: cycles per token.
  """
  power_XF = jnp.abs(response) ** 2
  weight_F = _axis(jnp.asarray(frequency_F, power_XF.dtype), power_XF[..., 0])
  return jnp.sum(power_XF, -1) / jnp.sum(power_XF * weight_F, -1)


def band_pass(x_BLHE: jax.Array, response_FXH: jax.Array) -> jax.Array:
  """`irfft(rfft(x) * w_h)` over the length: circular, so it sees the whole sequence (FourierQK, 3).

  response: (L//2 + 1, X, H), X filters a head, shared by its channels; real, or complex: 1j times a
  real one is the analytic branch, to which bin 0 and, for even L, the last bin give nothing. FFT in
  float32 or wider; the result, (B, L, X, H, E), has x's dtype.
  """
  spectrum_BF1HE = jnp.fft.rfft(x_BLHE.astype(wide(x_BLHE.dtype)), axis=1)[:, :, None]
  filtered_BFXHE = spectrum_BF1HE * response_FXH.astype(spectrum_BF1HE.dtype)[None, ..., None]
  return jnp.fft.irfft(filtered_BFXHE, x_BLHE.shape[1], axis=1).astype(x_BLHE.dtype)


def surrogate(kind: str, q_BLHE, k_BLHE):
  """Queries and keys, both (B, L, H, E), with changed phases over the whole sequence.

  random: one phase a batch item, head and bin, shared by queries, keys and channels; independent:
  one a channel too, of queries and keys each; amplitude: all 0; shift: pi / 4 added. Random phases
  are the same in every call. Source: FourierQK, phase controls.
  """
  if kind == 'shift':
    return tuple(shift_phases(a, np.pi / 4) for a in (q_BLHE, k_BLHE))
  batch, length, heads, width = q_BLHE.shape
  dtype = wide(q_BLHE.dtype)
  if kind == 'amplitude':
    phases = (jnp.zeros((1, 1, 1, 1), dtype),) * 2
  else:
    shape = (batch, length // 2 + 1, heads, width if kind == 'independent' else 1)
    seeds = (0, 1) if kind == 'independent' else (0, 0)
    phases = (random_phases(jax.random.key(seed), shape, dtype) for seed in seeds)
  return tuple(with_phases(a, p) for a, p in zip((q_BLHE, k_BLHE), phases, strict=True))


def with_phases(x_BLHE: jax.Array, phase_BFHE: jax.Array) -> jax.Array:
  """x with its Fourier phases over the length replaced (not shifted) by these: amplitudes stay.

  phase: radians, (B, L//2 + 1, H, E), or 1 in any place. Bin 0 and, for even L, the last
  bin take phase 0, so a mean loses its sign. Sees the whole sequence. Source: FourierQK, phase
  randomisation; zero phases are its amplitude-only control.
  """
  spectrum_BFHE, inner_F = _spectrum(x_BLHE)
  phase_BFHE = phase_BFHE.astype(spectrum_BFHE.real.dtype) * inner_F[None, :, None, None]
  size_BFHE = jnp.abs(spectrum_BFHE)
  turned_BFHE = jax.lax.complex(size_BFHE * jnp.cos(phase_BFHE), size_BFHE * jnp.sin(phase_BFHE))
  return jnp.fft.irfft(turned_BFHE, x_BLHE.shape[1], axis=1).astype(x_BLHE.dtype)


def shift_phases(x_BLHE: jax.Array, angle: float) -> jax.Array:
  """x with `angle`, in radians, added to its Fourier phases over the length.

  Bin 0 and, for even L, the last bin stay. Source: FourierQK, the fixed shift of pi / 4.
  """
  spectrum_BFHE, inner_F = _spectrum(x_BLHE)
  angle_F = jnp.asarray(angle, inner_F.dtype) * inner_F
  turn_F = jax.lax.complex(jnp.cos(angle_F), jnp.sin(angle_F))
  turned_BFHE = spectrum_BFHE * turn_F[None, :, None, None]
  return jnp.fft.irfft(turned_BFHE, x_BLHE.shape[1], axis=1).astype(x_BLHE.dtype)


def random_phases(key: jax.Array, shape: tuple[int, ...], dtype) -> jax.Array:
  """Uniform phases in [0, 2 pi), (B, ...): an example's are the same in every batch and dtype."""
  example_B = jnp.arange(shape[0], dtype=jnp.uint32)

  def draw(i):
    return jax.random.uniform(jax.random.fold_in(key, i), shape[1:], jnp.float32, 0, 2 * np.pi)

  return jax.vmap(draw)(example_B).astype(dtype)


def _axis(value_F, like_X):
  """A last axis beside the leading shape X."""
  return value_F.reshape((1,) * like_X.ndim + value_F.shape)


def _lags(width_X, taps):
  """Lags 0..taps-1 over the widths: (*X, taps)."""
  lag_T = jnp.arange(taps, dtype=width_X.dtype)
  return _axis(lag_T, width_X) / width_X[..., None]


def _unit(taps_PXT):
  """Joint unit L2 norm of the parts; lag 0 of a first part is 1, so the norm is never 0."""
  return taps_PXT / jnp.sqrt(jnp.sum(taps_PXT**2, (0, -1), keepdims=True))


def _spectrum(x_BLHE):
  """The rFFT over the length, and 1 at the bins that have a phase, 0 at those that are real."""
  length = x_BLHE.shape[1]
  spectrum_BFHE = jnp.fft.rfft(x_BLHE.astype(wide(x_BLHE.dtype)), axis=1)
  inner_F = np.arange(length // 2 + 1) * 2 % length != 0
  return spectrum_BFHE, jnp.asarray(inner_F, spectrum_BFHE.real.dtype)
