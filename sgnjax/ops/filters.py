"""Frequency responses of the spectral filters, their norms, and the circular band-pass."""

import jax
import jax.numpy as jnp

from sgnjax.errors import check_choice
from sgnjax.ops.dtypes import wide

NORMS = ('sum', 'l2')
FLOOR = 1e-8


def gaussian(bin_F: jax.Array, centre_H: jax.Array, sigma) -> jax.Array:
  """`exp(-(b - f_h)^2 / 2 sigma^2)`: (H, F); bins, centres and sigma in one unit (FourierQK, 3)."""
  distance_HF = (bin_F[None, :] - centre_H[:, None]) / sigma
  return jnp.exp(-(distance_HF**2) / 2)


def mexican_hat(omega_F: jax.Array, scale_X: jax.Array) -> jax.Array:
  """`(s w)^2 exp(-(s w)^2 / 2)`: (*X, F), the second derivative of a Gaussian (FourierQK, 3).

  omega: radians per token; scale: tokens, any shape X. It peaks at `s w = sqrt(2)`, so a scale of
  `sqrt(2) p / 2 pi` picks the period p.
  """
  square_XF = (scale_X[..., None] * omega_F.reshape((1,) * scale_X.ndim + omega_F.shape)) ** 2
  return square_XF * jnp.exp(-square_XF / 2)


def dc(n: int, heads: int) -> jax.Array:
  """One at bin 0 of the n//2 + 1 bins, for every head: (heads, n//2 + 1)."""
  return jnp.zeros((heads, n // 2 + 1)).at[:, 0].set(1)


def nyquist(n: int, heads: int) -> jax.Array:
  """One at the last bin, for every head: (heads, n//2 + 1). For odd n it lies below one half."""
  return jnp.zeros((heads, n // 2 + 1)).at[:, -1].set(1)


def normalise(response: jax.Array, kind: str, *, reference: jax.Array | None = None) -> jax.Array:
  """The response over its norm along the last axis: 'sum' (unit sum) or 'l2' (unit length).

  Norms are floored at 1e-8. reference: take the norm of this response instead, of the same leading
  shape, as for one filter on a finer grid. Raises UserError for another kind.
  Source: FourierQK; 'sum' is the spectral-compression paper, 'l2' the frequency ablation.
  """
  check_choice('filter norm', kind, NORMS)
  basis = response if reference is None else reference
  if kind == 'sum':
    norm = jnp.maximum(jnp.sum(basis, -1, keepdims=True), FLOOR)
  else:  # floored under the root, where the gradient of a zero response is still finite
    norm = jnp.sqrt(jnp.maximum(jnp.sum(basis**2, -1, keepdims=True), FLOOR**2))
  return response / norm


def band_pass(x_BLHE: jax.Array, response_HF: jax.Array) -> jax.Array:
  """`irfft(rfft(x) * w_h)` over the length: circular, so it sees the whole sequence (FourierQK, 3).

  response: real, (H, L//2 + 1), one a head, shared by its channels. FFT in float32 or wider; the
  result has x's shape and dtype.
  """
  spectrum_BFHE = jnp.fft.rfft(x_BLHE.astype(wide(x_BLHE.dtype)), axis=1)
  filtered_BFHE = spectrum_BFHE * response_HF.T.astype(spectrum_BFHE.dtype)[None, :, :, None]
  return jnp.fft.irfft(filtered_BFHE, x_BLHE.shape[1], axis=1).astype(x_BLHE.dtype)
