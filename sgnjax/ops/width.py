"""Orthonormal bases of a token's width: the DCT, and two controls without an order of channels."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from sgnjax.errors import check_choice
from sgnjax.ops.dct import chosen_path, dct, idct
from sgnjax.ops.dtypes import wide

BASES = ('dct', 'orthogonal', 'permuted')
# Of both controls: constants, the same in every layer and run. No seed that data is drawn from too:
# numbers of the same stream are correlated with the matrix made of them.
SEED = 4_183_607


@functools.cache
def orthogonal_matrix(width: int) -> np.ndarray:
  """A fixed random orthogonal matrix (D, D) in float64, uniform over all of them (Haar measure)."""
  normal_DD = np.random.default_rng(SEED).standard_normal((width, width))
  q_DD, r_DD = np.linalg.qr(normal_DD)
  # A positive diagonal makes the factors unique, so that no library's sign convention shows.
  return q_DD * np.where(np.diag(r_DD) < 0, -1.0, 1.0)[None, :]


@functools.cache
def permutation(width: int) -> np.ndarray:
  """A fixed random order of the channels, int32 whatever the width of integers is."""
  return np.random.default_rng(SEED).permutation(width).astype(np.int32)


def analyse(x: jax.Array, basis: str = 'dct') -> jax.Array:
  """Coefficients over the last axis: `dct(x)`, `Q x`, or `dct(x[permutation])`; norms are kept.

  x: real, (..., D); the result has its shape and dtype, computed in float32 or wider. Raises
  UserError for an unknown basis. Source: CHIAR-Former, spectral router; the others are controls.
  """
  check_choice('basis', basis, BASES)
  if basis == 'orthogonal':
    return _product('kn,...n->...k', x)
  return dct(x if basis == 'dct' else jnp.take(x, permutation(x.shape[-1]), axis=-1))


def synthesise(coefficients: jax.Array, basis: str = 'dct') -> jax.Array:
  """The inverse and the transpose of `analyse`; same arguments."""
  check_choice('basis', basis, BASES)
  if basis == 'orthogonal':
    return _product('kn,...k->...n', coefficients)
  x = idct(coefficients)
  return (
    x
    if basis == 'dct'
    else jnp.take(x, np.argsort(permutation(x.shape[-1])).astype(np.int32), axis=-1)
  )


def _product(axes: str, x: jax.Array) -> jax.Array:
  dtype = wide(x.dtype)
  q_DD = jnp.asarray(orthogonal_matrix(x.shape[-1]), dtype)
  return jnp.einsum(axes, q_DD, x.astype(dtype), precision=jax.lax.Precision.HIGHEST).astype(
    x.dtype
  )


def width_filter(
  coefficients_BLD: jax.Array, w_D: jax.Array, *, basis: str = 'dct', released: bool = False
) -> jax.Array:
  """`synthesise(w * analyse(x))` from `analyse(x)`: mixes channels, never tokens.

  released: twice that, as the paper's code computes with its unscaled inverse. Source:
  CHIAR-Former, DCT operator.
  """
  weights_D = w_D.astype(coefficients_BLD.dtype) * (2 if released else 1)
  return synthesise(coefficients_BLD * weights_D[None, None, :], basis)


def width_operator(w_D: jax.Array, *, basis: str = 'dct', released: bool = False) -> jax.Array:
  """`width_filter(analyse(x))` as the symmetric matrix (D, D) that it is, in float32 or wider."""
  units_1DD = jnp.eye(w_D.shape[0], dtype=wide(w_D.dtype))[None]
  return width_filter(analyse(units_1DD, basis), w_D, basis=basis, released=released)[0]


def folds(width: int, tokens: int, basis: str = 'dct') -> bool:
  """Whether one product of each token with `width_operator` beats two transforms.

  By reckoning: where a transform is a product, and for a DCT up to twice that width, since one
  product stands against two FFTs. The matrix is made anew in every step, as for so many tokens as
  it has rows. Never where the number of tokens is a symbol, as in exported programs.
  """
  if not isinstance(tokens, int):
    return False
  dense = basis == 'orthogonal' or chosen_path(-(-width // 2)) == 'matrix'
  return dense and tokens > width


def width_mix(
  x_BLD: jax.Array, w_D: jax.Array, *, basis: str = 'dct', released: bool = False
) -> jax.Array:
  """`width_filter(analyse(x))` where nothing else asks for the coefficients; x's dtype.

  By a matrix where `folds` says so. Source: CHIAR-Former, DCT operator.
  """
  dtype = wide(x_BLD.dtype)
  x, w_D = x_BLD.astype(dtype), w_D.astype(dtype)
  if folds(x.shape[-1], x.shape[0] * x.shape[1], basis):
    m_DD = width_operator(w_D, basis=basis, released=released)
    y = jnp.einsum('bld,de->ble', x, m_DD, precision=jax.lax.Precision.HIGHEST)
  else:
    y = width_filter(analyse(x, basis), w_D, basis=basis, released=released)
  return y.astype(x_BLD.dtype)
