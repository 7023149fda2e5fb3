"""Filters on sequences by complex FFTs of the sequence's own length, without zeros behind it.

A sequence turned by a right angle over n points, `x_s exp(i pi s / 2n)`, is multiplied modulo
`z^n = i`: what a product carries beyond its first n points comes back as their imaginary part, and
the real part is the product without it. So real rows need one complex FFT of n points where zero
padding takes a real one of 2n, which is as large; no zeros are written or read, and the transposes
that autodiff takes are as cheap. Source: right-angle circular convolution, Nussbaumer 1981.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from sgnjax.ops.rows import length_last, length_second


def spectrum(x_BLC: jax.Array, n: int) -> jax.Array:
  """`sum_s x_s z_k^s` at the n points `z_k = exp(i pi (1 - 4k) / 2n)`: (B, L, *C) to (B, *C, n).

  x: real, L <= n. On the circle, so of `x_-s` in place of `x_s` it is the conjugate.
  """
  return jnp.fft.fft(_turned(x_BLC, n))


def sequence(y_BCN: jax.Array, length: int) -> jax.Array:
  """Of a product of spectra its first `length` coefficients: (B, *C, n) to (B, L, *C), real.

  Right where no power `j - 2n` or `j + 2n` of z occurs in the product for any j < length.
  """
  return _turned_back(jnp.fft.ifft(y_BCN), length)


def _turned(x_BLC, n):

  def parts(rows_BRC, first):
    at = (rows_BRC.shape[1], *(1,) * (rows_BRC.ndim - 2))
    angle_N = (jnp.asarray(a, rows_BRC.dtype) for a in _right_angle(n))
    cos, sin = (jax.lax.dynamic_slice_in_dim(a_N, first, at[0]).reshape(1, *at) for a_N in angle_N)
    return [(jax.lax.complex(rows_BRC * cos, rows_BRC * sin), first)]

  return length_last(x_BLC, n, parts)


def _turned_back(y_BCN, length):
  n = y_BCN.shape[-1]
  dtype = jnp.finfo(y_BCN.dtype).dtype
  at = (1, length, *(1,) * (y_BCN.ndim - 2))

  def join(y_BCN):
    cos, sin = (jnp.asarray(a[:length].reshape(at), dtype) for a in _right_angle(n))
    y_BLC = jnp.moveaxis(y_BCN[..., :length], -1, 1)
    return jnp.real(y_BLC) * cos + jnp.imag(y_BLC) * sin

  return length_second(y_BCN, length, join, lambda g_BLC: jnp.conj(_turned(g_BLC, n)))


@functools.cache
def _right_angle(n: int) -> tuple[np.ndarray, np.ndarray]:
  turn_N = np.pi / 2 / n * np.arange(n)
  return np.cos(turn_N), np.sin(turn_N)
