"""Kernels with a given frequency response, and the convolutions that apply them to a sequence."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from sgnjax.errors import UserError
from sgnjax.ops.dtypes import wide
from sgnjax.ops.right_angle import sequence, spectrum


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


def quadrature_kernel(response: jax.Array) -> jax.Array:
  """Causal kernel whose response has `response` as its imaginary part, but for both end bins.

  response: as in `one_sided_kernel`. Result: h of lags 0..N, twice the odd kernel, so h[0] = h[N] =
  0 and `Im rfft(h, 2N, axis=0) == response` at bins 0 < k < N; there it is 0 at bins 0 and N.
  Source: FourierQK, the analytic branch `irfft(1j * w * rfft(x))`, made causal.
  """
  return 2 * odd_kernel(response)


def odd_kernel(response: jax.Array) -> jax.Array:
  """`irfft(1j * response, 2N)[:N + 1]`: r[tau] of the kernel `sign(tau) r[|tau|]`, lags 0..N.

  response: as in `one_sided_kernel`; bins 0 and N give nothing, and r[0] = r[N] = 0.
  """
  n = response.shape[0] - 1
  if n < 1:
    raise UserError(f'a kernel needs a response of at least 2 points, but it has {n + 1}')
  wide_response = response.astype(wide(response.dtype))
  turned = jax.lax.complex(jnp.zeros_like(wide_response), wide_response)
  # Both ends are zero for every response; the transform would leave rounding there.
  r = jnp.fft.irfft(turned, 2 * n, axis=0)[1:n]
  return jnp.pad(r, [(1, 1), *[(0, 0)] * (r.ndim - 1)]).astype(response.dtype)


def complex_kernel(real: jax.Array, imag: jax.Array) -> tuple[jax.Array, jax.Array]:
  """`k = irfft(real + i imag, 2N)` as two one-sided kernels, (k[0..N], k[0..-N]).

  real, imag: as in `one_sided_kernel`; the imaginary part has no effect at bins 0 and N. The first
  kernel alone is the causal one nearest to the response in least squares: a response that is causal
  already comes back whole. Without an imaginary part both are `even_kernel(real)`.
  """
  even, odd = even_kernel(real), odd_kernel(imag)
  return even + odd, even - odd


def even_kernel_2d(response: jax.Array) -> jax.Array:
  """`even_kernel` along the first two axes: (R + 1, C + 1, *D) to r[|i|, |j|], the same shape."""
  return jnp.moveaxis(even_kernel(jnp.moveaxis(even_kernel(response), 1, 0)), 0, 1)


def causal_conv(x: jax.Array, h: jax.Array) -> jax.Array:
  """`y_t = sum_tau h[tau] x[t - tau]`, zero before the start, by FFT, O(L log L).

  x: (B, L, *C); h: (T, *C') with C' broadcastable to C. Lags beyond L are cut, so h may be longer
  than x. FFT in float32 or wider; the result has x's shape and dtype. The backward pass reads the
  spectra of both: 8 bytes a number of x in float32, where T is L.
  """
  x_wide, h_wide = _prepare(x, h)
  forward, back = _transforms(x.shape[1], h_wide.shape[0])
  return back(_product(forward(x_wide), forward(h_wide[None]))).astype(x.dtype)


def even_conv(x: jax.Array, r: jax.Array) -> jax.Array:
  """`y_t = sum_s r[|t - s|] x_s`, zero outside, by FFT, O(L log L).

  Shapes and dtypes as in `causal_conv`. Zeros behind the sequence change nothing but rounding.
  """
  x_wide, r_wide = _prepare(x, r)
  forward, back = _transforms(x.shape[1], r_wide.shape[0])
  # The response of both sides is twice the real part of one side, with lag 0 counted once.
  response = 2 * jnp.real(forward(r_wide[None])) - r_wide[0][None, ..., None]
  return back(_product(forward(x_wide), response)).astype(x.dtype)


def two_sided_conv(x: jax.Array, past: jax.Array, future: jax.Array) -> jax.Array:
  """`y_t = sum_{s <= t} past[t - s] x_s + sum_{s > t} future[s - t] x_s`, zero outside, O(L log L).

  Two kernels of one shape that agree at lag 0; else as `even_conv`, which it is where they agree.
  """
  x_wide, past_wide = _prepare(x, past)
  _, future_wide = _prepare(x, future)
  forward, back = _transforms(x.shape[1], past_wide.shape[0])
  response = forward(past_wide[None]) + jnp.conj(forward(future_wide[None]))
  lag_0 = past_wide[0][None, ..., None].astype(response.dtype)
  return back(_product(forward(x_wide), response - lag_0)).astype(x.dtype)


def even_conv_2d(x: jax.Array, r: jax.Array) -> jax.Array:
  """`y_ij = sum_kl r[|i - k|, |j - l|] x_kl`, zero outside the grid, by zero-padded FFT.

  x: (B, rows, columns, D); r: (T, S, D). FFT in float32 or wider; x's shape and dtype.
  """
  dtype = wide(x.dtype, r.dtype)
  rows, columns = x.shape[1:3]
  r = r[:rows, :columns].astype(dtype)
  size = tuple(fast_length(n + taps - 1) for n, taps in zip((rows, columns), r.shape, strict=False))
  both_sides = r
  for axis, (n, taps) in enumerate(zip(size, r.shape, strict=False)):
    distance = np.minimum(np.arange(n), n - np.arange(n))
    inside = jnp.asarray(distance < taps).reshape((n, 1, 1) if axis == 0 else (1, n, 1))
    both_sides = jnp.take(both_sides, np.minimum(distance, taps - 1).astype(np.int32), axis=axis)
    both_sides = jnp.where(inside, both_sides, jnp.zeros((), dtype))
  spectrum = jnp.fft.rfft2(x.astype(dtype), size, axes=(1, 2))
  response = jnp.fft.rfft2(both_sides, axes=(0, 1))
  y = jnp.fft.irfft2(spectrum * response[None], size, axes=(1, 2))
  return y[:, :rows, :columns].astype(x.dtype)


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


def turned(length: int, lags: int) -> bool:
  """Whether a convolution is of complex FFTs of the length, which takes every number of lags.

  Real FFTs with zeros behind them grow with the lags. Of 1,024 tokens on a CPU, with the gradient,
  they took 0.8 of the complex ones' time at 64 lags, as long at 384 (1,440 points), 1.15 at 512
  (1,536, where this turns) and 1.5 at 1,024; of other devices it is reckoned.
  """
  return 2 * fast_length(length + min(lags, length) - 1) > 3 * fast_length(length)


def _transforms(length, lags):
  """Sequences (B, L, *C) to spectra (B, *C, F), and back."""
  if turned(length, lags):
    n = fast_length(length)
    return functools.partial(spectrum, n=n), functools.partial(sequence, length=length)
  n = fast_length(length + lags - 1)
  return (
    lambda x: jnp.moveaxis(jnp.fft.rfft(x, n, axis=1), 1, -1),
    lambda y: jnp.moveaxis(jnp.fft.irfft(y, n), -1, 1)[:, :length],
  )


def _product(spectrum_BCF, response_1CF):
  return spectrum_BCF * response_1CF.astype(spectrum_BCF.dtype)
