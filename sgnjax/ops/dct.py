"""Orthonormal DCT-II and DCT-III along any axis, by one FFT of the same length or by a matrix."""

import jax
import jax.numpy as jnp
import numpy as np

from sgnjax.errors import UserError, check_choice
from sgnjax.ops.backend import backend
from sgnjax.ops.dtypes import wide
from sgnjax.ops.rows import length_last, length_second

PATHS = ('fft', 'matrix')
# Up to this length one product with the dense matrix is taken for the FFT and its reordering. On a
# CPU (`ops/crossover` of docs/results/speed.md) it takes 0.8 of the FFT's time at 128 points, with
# the gradient less than half; at 256 it won on a quiet machine and not on a busy one, at 512 it
# lost. That of tpu is by `tpu/dct` there, programs compiled for a v5e and its data sheet; that of
# gpu is reckoned, and `gpu/dct` of --job=benchmark is there to say.
MATRIX_UP_TO = {'cpu': 128, 'gpu': 256, 'tpu': 2048}


def dct(x: jax.Array, axis: int = -1, *, path: str | None = None) -> jax.Array:
  """Orthonormal DCT-II: `X_k = a_k sum_n x_n cos(pi k (2n + 1) / 2N)`, a_0^2 = 1/N, a_k^2 = 2/N.

  x: real, any shape; the result has its shape and dtype. Computed in float32 or wider; `||X|| =
  ||x||`. path: 'fft' (O(N log N)), 'matrix' (O(N^2)), None to choose by length and backend.
  Raises UserError for an unknown path or an empty axis. Source: SGN, section 3; the FFT form is
  Makhoul's reordering (1980).
  """
  return _transform(x, axis, path, _dct_fft, dct_matrix)


def idct(x: jax.Array, axis: int = -1, *, path: str | None = None) -> jax.Array:
  """Orthonormal DCT-III, the inverse and the transpose of `dct`; same arguments."""
  return _transform(x, axis, path, _idct_fft, lambda n, dtype: dct_matrix(n, dtype).T)


def dct_gate(x_BLC: jax.Array, gate_LC: jax.Array, *, path: str | None = None) -> jax.Array:
  """`idct(gate * dct(x))` along axis 1, of (B, L, *C) and (L, *C); path as in `dct`.

  By FFT the coefficients are never put in order: the twiddled spectrum u has coefficient k in its
  real part and, negative, N - k in its imaginary part, and the inverse takes both from there. So a
  gate is two real factors between twiddles, and the amplitudes a_k cancel.
  """
  n = x_BLC.shape[1]
  dtype = wide(x_BLC.dtype)
  x, gate = x_BLC.astype(dtype), gate_LC.astype(dtype)[None]
  if chosen_path(n, path) == 'matrix':
    y = idct(gate * dct(x, 1, path='matrix'), 1, path='matrix')
  else:
    y = _dct_gate_fft(x, gate)
  return y.astype(x_BLC.dtype)


def dct_matrix(n: int, dtype) -> jax.Array:
  """The matrix C (n, n) of the orthonormal DCT-II, `dct(x) == C @ x`; row k is frequency k."""
  k_K, n_N = np.arange(n)[:, None], np.arange(n)[None, :]
  # The angle is reduced as an integer: cosines of large arguments would lose digits.
  c_KN = np.cos(np.pi / (2 * n) * (k_K * (2 * n_N + 1) % (4 * n)))
  return jnp.asarray(c_KN * _amplitudes(n)[:, None], dtype)


def _amplitudes(n: int) -> np.ndarray:
  """a_k: sqrt(1/n) at k = 0, sqrt(2/n) elsewhere."""
  return np.sqrt(np.where(np.arange(n) == 0, 1.0, 2.0) / n)


def matrix_up_to() -> int:
  """Number of points up to which a DCT is a product with the matrix on this backend."""
  return MATRIX_UP_TO.get(backend(), MATRIX_UP_TO['cpu'])


def chosen_path(n: int, path: str | None = None) -> str:
  """The path given, or the one for a DCT of n points on this backend. Raises UserError."""
  if path is None:
    path = 'matrix' if n <= matrix_up_to() else 'fft'
  check_choice('DCT path', path, PATHS)
  return path


def _transform(x, axis, path, by_fft, matrix):
  n = x.shape[axis]
  if n == 0:
    raise UserError(f'a DCT needs at least one point, but axis {axis} of {x.shape} is empty')
  path = chosen_path(n, path)
  dtype = wide(x.dtype)
  x_XN = jnp.moveaxis(x, axis, -1).astype(dtype)
  if path == 'fft':
    y_XN = by_fft(x_XN)
  else:
    y_XN = jnp.einsum('kn,...n->...k', matrix(n, dtype), x_XN, precision=jax.lax.Precision.HIGHEST)
  return jnp.moveaxis(y_XN, -1, axis).astype(x.dtype)


def _twiddles(n: int, dtype) -> jax.Array:
  """exp(-i pi k / 2n) for the n//2 + 1 frequencies of an rFFT."""
  return jnp.asarray(np.exp(-0.5j * np.pi / n * np.arange(n // 2 + 1)), dtype)


def _row(a: np.ndarray, like: jax.Array) -> jax.Array:
  """A vector shaped to meet the last axis of `like`."""
  return jnp.asarray(a, like.dtype).reshape((1,) * (like.ndim - 1) + a.shape)


def _dct_fft(x_XN):
  n = x_XN.shape[-1]
  v_XN = jnp.concatenate([x_XN[..., ::2], x_XN[..., 1::2][..., ::-1]], -1)
  z_XF = jnp.fft.rfft(v_XN)
  z_XF = z_XF * _row(_twiddles(n, z_XF.dtype), z_XF)
  # v is real, so frequency n - k is the conjugate of k: its cosine sum is minus the sine sum of k.
  upper = -jnp.imag(z_XF)[..., 1 : (n + 1) // 2][..., ::-1]
  y_XN = jnp.concatenate([jnp.real(z_XF), upper], -1)
  return y_XN * _row(_amplitudes(n), y_XN)


def _idct_fft(y_XN):
  n = y_XN.shape[-1]
  # n a_k: the inverse of the amplitude, and the 1/n of the inverse FFT undone.
  y_XN = y_XN / _row(_amplitudes(n), y_XN)
  mirrored = jnp.concatenate([jnp.zeros_like(y_XN[..., :1]), y_XN[..., :0:-1]], -1)
  half = n // 2 + 1
  z_XF = jax.lax.complex(y_XN[..., :half], -mirrored[..., :half])
  z_XF = z_XF * _row(jnp.conj(_twiddles(n, z_XF.dtype)), z_XF)
  v_XN = jnp.fft.irfft(z_XF, n)
  even, odd = v_XN[..., : (n + 1) // 2], v_XN[..., (n + 1) // 2 :][..., ::-1]
  x_XN = jnp.zeros_like(y_XN).at[..., ::2].set(even)
  return x_XN.at[..., 1::2].set(odd)


def _evens_first(n):
  """Rows 0, 2, 4, ... and then the odd ones backwards, as `length_last` takes them."""

  def parts(rows_BRC, first):
    odd_BRC = rows_BRC[:, 1::2][:, ::-1]
    return [(rows_BRC[:, ::2], first // 2), (odd_BRC, n - first // 2 - odd_BRC.shape[1])]

  return parts


def _dct_gate_fft(x_BLC, gate_1LC):
  n = x_BLC.shape[1]
  half, order = n // 2 + 1, _evens_first(n)
  z_BCF = jnp.fft.rfft(length_last(x_BLC, n, order))
  gate_1CL = length_last(gate_1LC, n, lambda rows_BRC, first: [(rows_BRC, first)])
  # Behind coefficient 0 the imaginary part is 0, so that its factor may be any.
  mirrored_1CF = jnp.concatenate([gate_1CL[..., :1], gate_1CL[..., : n - half : -1]], -1)
  twiddles = _row(_twiddles(n, z_BCF.dtype), z_BCF)
  u_BCF = twiddles * z_BCF
  y_BCF = jax.lax.complex(jnp.real(u_BCF) * gate_1CL[..., :half], jnp.imag(u_BCF) * mirrored_1CF)
  v_BCN = jnp.fft.irfft(jnp.conj(twiddles) * y_BCF, n)

  def in_order(v_BCN):
    v_BNC = jnp.moveaxis(v_BCN, -1, 1)
    even_BMC, odd_BMC = v_BNC[:, : (n + 1) // 2], v_BNC[:, (n + 1) // 2 :][:, ::-1]
    if n % 2:
      odd_BMC = jnp.concatenate([odd_BMC, jnp.zeros_like(even_BMC[:, :1])], 1)
    return jnp.stack([even_BMC, odd_BMC], 2).reshape(x_BLC.shape[0], -1, *v_BNC.shape[2:])[:, :n]

  return length_second(v_BCN, n, in_order, lambda g_BLC: length_last(g_BLC, n, order))
