"""Energies that drive EGA's gates, and the gates. Signals are (B, *X, L), the length last."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from sgnjax.ops.chunks import History
from sgnjax.ops.statistics import Moments, inverse_deviation
from sgnjax.ops.wavelets import convolve, delayed


class GateState(NamedTuple):
  """What the gate carries from chunk to chunk.

  moments: of the energies so far (B, H or 1, S). segment_B: which segment they are of. history: the
  samples that filters look back at. basis: moments of the packets' costs. What the gate does not
  need is None.
  """

  moments: Moments | None
  segment_B: jax.Array
  history: History | None
  basis: Moments | None


def linear(x_BLD: jax.Array, w_HSD: jax.Array, b_HS: jax.Array) -> jax.Array:
  """`w . x_t + b`: (B, H, S, L). Source: EGA, linear energy."""
  return jnp.einsum('bld,hsd->bhsl', x_BLD, w_HSD) + b_HS[None, :, :, None]


def conv(y_BHTOL: jax.Array, bias_HSO: jax.Array, lengths, segments_BL=None) -> jax.Array:
  """`sum_o |b_o + sum_lag tap[lag] . x_{t - lag}|^2` of causal convolutions: (B, H, S, L).

  y: the inputs as every tap projects them (EGA-C: to O = 2 outputs), the taps of all scales one
  behind the other on axis T, of each scale the oldest first. Projected by one product and then
  delayed and summed: no convolution routine that could choose an FFT. Source: EGA, EGA-C.
  """
  energies, start = [], 0
  for s, length in enumerate(lengths):
    u_BHOL = bias_HSO[None, :, s, :, None]
    for lag in range(length):
      u_BHOL = u_BHOL + delayed(y_BHTOL[:, :, start + length - 1 - lag], lag, segments_BL)
    energies.append(jnp.sum(u_BHOL**2, axis=2))
    start += length
  return jnp.stack(energies, axis=2)


def admissible(log_omega: jax.Array, log_sigma: jax.Array) -> tuple[jax.Array, jax.Array]:
  """Frequency (radians a token) and width (tokens) of a Morlet wavelet from their logarithms.

  omega stays below 0.95 pi and sigma above 1e-3; then, where `omega sigma < 5`, omega becomes
  5 / sigma, which may exceed pi. Source: EGA, admissibility, in the order of its code.
  """
  omega = jnp.minimum(jnp.exp(log_omega), jnp.asarray(0.95 * np.pi, log_omega.dtype))
  sigma = jnp.maximum(jnp.exp(log_sigma), jnp.asarray(1e-3, log_sigma.dtype))
  return jnp.where(omega * sigma < 5, 5 / sigma, omega), sigma


def morlet_taps(omega_HS: jax.Array, sigma_HS: jax.Array, lengths, *, released: bool = False):
  """Real and imaginary taps, one (H, 2, T) a scale: `exp(-n^2 / 2 sigma^2) (cos, sin)(omega n)`.

  n counts back from the current token. released: n counts forward from the oldest tap, where the
  envelope of the paper's code peaks, with its 1e-8 under the fraction.
  """
  taps = []
  for s, length in enumerate(lengths):
    n_11T = jnp.arange(length, dtype=omega_HS.dtype)[None, None, :]
    width_H11 = 2 * sigma_HS[:, s, None, None] ** 2
    if released:
      width_H11 = width_H11 + jnp.asarray(1e-8, width_H11.dtype)
    phase_H1T = omega_HS[:, s, None, None] * n_11T
    wave_H2T = jnp.concatenate([jnp.cos(phase_H1T), jnp.sin(phase_H1T)], axis=1)
    wave_H2T = jnp.exp(-(n_11T**2) / width_H11) * wave_H2T
    taps.append(wave_H2T[:, :, ::-1] if released else wave_H2T)
  return taps


def morlet(u_BHL: jax.Array, taps: list[jax.Array], segments_BL=None) -> jax.Array:
  """`|sum_n tap_n u_{t - n}|^2` of each scale's complex taps: (B, H, S, L). Source: EGA, EGA-M."""
  waves = [convolve(u_BHL[:, :, None], taps_H2T, 1, segments_BL) for taps_H2T in taps]
  return jnp.stack([jnp.sum(wave_BH2L**2, axis=2) for wave_BH2L in waves], axis=2)


def uniform(key: jax.Array, bound_X: np.ndarray, shape, dtype) -> jax.Array:
  """Numbers (H, X, ...) uniform within +- the bound of each X: PyTorch's start of convolutions."""
  unit = jax.random.uniform(key, shape, dtype, minval=-1.0, maxval=1.0)
  return unit * jnp.asarray(bound_X, dtype).reshape(1, -1, *(1,) * (len(shape) - 2))


def log_gate(z_BHSX: jax.Array, tau_HS, alpha_HS, scale_logits_HS) -> jax.Array:
  """`log sum_s softmax(scale)_s sigmoid(alpha_s (z_s - tau_s))` over the scale axis 2 (EGA gate).

  z has any axes after (batch, head, scale); the result lacks the scale axis.
  """

  def spread(a_HS):
    return a_HS.reshape(1, *a_HS.shape, *(1,) * (z_BHSX.ndim - 3)).astype(z_BHSX.dtype)

  gate_BHSX = jax.nn.log_sigmoid(spread(alpha_HS) * (z_BHSX - spread(tau_HS)))
  if z_BHSX.shape[2] == 1:  # the only scale has the whole share
    return gate_BHSX[:, :, 0]
  share_BHSX = jax.nn.log_softmax(spread(scale_logits_HS), axis=2)
  return jax.nn.logsumexp(share_BHSX + gate_BHSX, axis=2)


class OfQueries(NamedTuple):
  """What the gate takes from the queries' side: arrays (B, H, L, S)."""

  mean: jax.Array
  slope: jax.Array


def by_queries(moments: Moments, tau_HS, alpha_HS, scale_logits_HS):
  """`log_gate` under each query's own moments (B, H, S, L), ready for tiles of queries and keys.

  Returns what `tile_log_gate` takes beside the keys' energies: of the queries, and of the heads.
  """
  moments = Moments(*(m_BHSL.swapaxes(2, 3) for m_BHSL in moments))
  scale_BHLS, mean_BHLS = inverse_deviation(moments), moments.mean
  slope_BHLS = alpha_HS.astype(scale_BHLS.dtype)[None, :, None, :] * scale_BHLS
  offset_HS = (alpha_HS * tau_HS).astype(scale_BHLS.dtype)
  share_HS = jax.nn.log_softmax(scale_logits_HS.astype(scale_BHLS.dtype), axis=1)
  return OfQueries(mean_BHLS, slope_BHLS), (offset_HS, share_HS)


def tile_log_gate(queries: OfQueries, energy_BHSX: jax.Array, heads) -> jax.Array:
  """log g of queries (L) and keys (S), (B, H, L, S): `log_gate` of z-normed energies (B, H, S, X).

  X: scales. Where the deviation is 0 the slope is, so that z is 0.
  """
  offset_HX, share_HX = heads
  bands = []
  for x in range(energy_BHSX.shape[-1]):
    mean_BHL1, slope_BHL1 = (a_BHLX[..., x, None] for a_BHLX in queries)
    z_BHLS = (energy_BHSX[:, :, None, :, x] - mean_BHL1) * slope_BHL1
    bands.append(_log_sigmoid(z_BHLS - offset_HX[None, :, None, None, x]))
  if len(bands) == 1:
    return bands[0]
  shares = (share_HX[None, :, None, None, x] for x in range(len(bands)))
  parts = [band_BHLS + share for band_BHLS, share in zip(bands, shares, strict=True)]
  return jax.nn.logsumexp(jnp.stack(parts, axis=2), axis=2)


def _log_sigmoid(u):
  """By one exponential; at 0, where its parts have no gradient, it is 1/2."""
  return jnp.minimum(u, jnp.zeros((), u.dtype)) - jnp.log1p(jnp.exp(-jnp.abs(u)))


def floored_weights(weights_BHLS: jax.Array, gate_BHXS: jax.Array) -> jax.Array:
  """Gated weights as the released code renormalises them: row sums floored at 1e-8 (EGA, code)."""
  gated_BHLS = weights_BHLS * gate_BHXS
  return gated_BHLS / jnp.maximum(jnp.sum(gated_BHLS, -1, keepdims=True), 1e-8)
