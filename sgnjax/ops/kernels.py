"""Kernels with a given frequency response, and the convolutions that apply them to a sequence."""

import jax
import jax.numpy as jnp
import numpy as np

from sgnjax.errors import UserError
from sgnjax.ops.dtypes import wide


def one_sided_kernel(response: jax.Array) -> jax.Array:
  """Causal kernel whose response has `response` as its real part (discrete Kramers-Kronig).

  response: real, (N + 1, *C), the points of an rFFT grid of length 2N. Result: h of lags 0..N,
  (N + 1, *C): `Re rfft(h, 2N, axis=0) == response`; a response of ones gives the identity.
  Raises UserError for fewer than two points.
  """
  r = even_kernel(response)
  n = r.shape[0] - 1
  twice = np.where(np.arange(n + 1) % n == 0, 1.0, 2.0)  # lags 0 and N are their own mirror images
  return r * jnp.asarray(twice, r.dtype).reshape(-1, *(1,) * (r.ndim - 1))


def even_kernel(response: jax.Array) -> jax.Array:
  """`irfft(response, 2N)[:N + 1]`: the kernel r[|tau|] with a real response, lags 0..N on axis 0.

  response: as in `one_sided_kernel`. Lag N closes the period of 2N once; applied on both sides, as
  `even_conv` does to inputs longer than N, it counts twice.
  """
  n = response.shape[0] - 1
  if n < 1:
    raise UserError(f'a kernel needs a response of at least 2 points, but it has {n + 1}')
  dtype = wide(response.dtype)
  r = jnp.fft.irfft(response.astype(dtype), 2 * n, axis=0)
  return r[: n + 1].astype(response.dtype)


def causal_conv(x: jax.Array, h: jax.Array) -> jax.Array:
  """`y_t = sum_tau h[tau] x[t - tau]`, zero before the start, by zero-padded FFT, O(L log L).

  x: (B, L, *C); h: (T, *C') with C' broadcastable to C. Lags beyond L are cut, so h may be longer
  than x. FFT in float32 or wider; the result has x's shape and dtype.
  """
  x_wide, h_wide = _prepare(x, h)
  n = _fft_length(x_wide, h_wide)
  response = jnp.fft.rfft(h_wide, n, axis=0)
  return _filter(x_wide, response, n).astype(x.dtype)


def even_conv(x: jax.Array, r: jax.Array) -> jax.Array:
  """`y_t = sum_s r[|t - s|] x_s`, zero outside, by zero-padded FFT, O(L log L).

  Shapes and dtypes as in `causal_conv`. Zeros behind the sequence change nothing but rounding.
  """
  x_wide, r_wide = _prepare(x, r)
  n = _fft_length(x_wide, r_wide)
  # The response of both sides is twice the real part of one side, with lag 0 counted once.
  response = 2 * jnp.real(jnp.fft.rfft(r_wide, n, axis=0)) - r_wide[:1]
  return _filter(x_wide, response, n).astype(x.dtype)


def causal_conv_direct(x: jax.Array, h: jax.Array) -> jax.Array:
  """`causal_conv` by explicit sums, O(L T): for short kernels; later inputs have no influence."""
  x_wide, h_wide = _prepare(x, h)

  def add_lag(carry, h_C):
    y, delayed = carry
    y = y + h_C[None, None] * delayed
    return (y, jnp.concatenate([jnp.zeros_like(delayed[:, :1]), delayed[:, :-1]], 1)), None

  (y, _), _ = jax.lax.scan(add_lag, (jnp.zeros_like(x_wide), x_wide), h_wide)
  return y.astype(x.dtype)


def truncated_dct_operator(gate: jax.Array) -> jax.Array:
  """`tril(C^T diag(G) C)` per channel: (N, D) gate to dense (N, N, D), entry [t, s] zero for s > t.

  The published SGN operator without its view of the future. Built from its Toeplitz and reflected
  parts, `M[t, s] = (g(t - s) + g(t + s + 1)) / 2`, `g(tau) = sum_k a_k^2 G_k cos(pi k tau / N)`.
  """
  n = gate.shape[0]
  dtype = wide(gate.dtype)
  k_K = np.arange(n)
  cosines = np.cos(np.pi / n * (np.arange(2 * n)[:, None] * k_K[None, :] % (2 * n)))
  cosines = cosines * np.where(k_K == 0, 1.0, 2.0)[None, :] / n
  g = jnp.matmul(
    jnp.asarray(cosines, dtype), gate.astype(dtype), precision=jax.lax.Precision.HIGHEST
  )
  t_T1, s_1S = np.arange(n)[:, None], np.arange(n)[None, :]
  operator_TSD = (g[abs(t_T1 - s_1S)] + g[t_T1 + s_1S + 1]) / 2
  causal = jnp.asarray(s_1S <= t_T1)[:, :, None]
  return jnp.where(causal, operator_TSD, jnp.zeros((), dtype)).astype(gate.dtype)


def fast_length(n: int) -> int:
  """Smallest 2^a 3^b 5^c that is at least n: the lengths FFTs are quick at."""
  best = 1 << max(n - 1, 0).bit_length()
  five = 1
  while five < best:
    odd = five
    while odd < best:
      best = min(best, odd << max(-(-n // odd) - 1, 0).bit_length())
      odd *= 3
    five *= 5
  return best


def _prepare(x, h):
  """Both in the dtype of the computation, the kernel cut to the lags that meet the sequence."""
  if h.ndim != x.ndim - 1:
    raise ValueError(f'kernel {h.shape} does not fit input {x.shape}: expected (lags, *channels)')
  dtype = wide(x.dtype, h.dtype)
  return x.astype(dtype), h[: x.shape[1]].astype(dtype)


def _fft_length(x, h):
  return fast_length(x.shape[1] + h.shape[0] - 1)


def _filter(x, response, n):
  spectrum = jnp.fft.rfft(x, n, axis=1)
  y = jnp.fft.irfft(spectrum * response.astype(spectrum.dtype)[None], n, axis=1)
  return y[:, : x.shape[1]]
