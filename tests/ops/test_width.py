"""Bases of the width: orthonormal, fixed, and what scipy computes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.fft

from sgnjax.errors import UserError
from sgnjax.ops.backend import assumed
from sgnjax.ops.dct import MATRIX_UP_TO
from sgnjax.ops.width import (
  BASES,
  analyse,
  folds,
  orthogonal_matrix,
  permutation,
  synthesise,
  width_filter,
  width_mix,
)

pytestmark = pytest.mark.usefixtures('float64')


@pytest.mark.parametrize('width', [2, 33, 256])
@pytest.mark.parametrize('basis', BASES)
def test_every_basis_is_orthonormal(basis, width):
  coefficients_DK = np.asarray(analyse(jnp.eye(width), basis))
  np.testing.assert_allclose(coefficients_DK @ coefficients_DK.T, np.eye(width), atol=1e-12)
  x = np.random.default_rng(0).normal(size=(3, width))
  back = synthesise(analyse(jnp.asarray(x), basis), basis)
  np.testing.assert_allclose(back, x, atol=1e-12)


def test_the_bases_are_what_they_are_called():
  x = np.random.default_rng(0).normal(size=(3, 48))
  np.testing.assert_allclose(analyse(jnp.asarray(x)), scipy.fft.dct(x, norm='ortho'), atol=1e-12)
  shuffled = x[:, permutation(48)]
  np.testing.assert_allclose(
    analyse(jnp.asarray(x), 'permuted'), scipy.fft.dct(shuffled, norm='ortho'), atol=1e-12
  )
  assert not np.array_equal(permutation(48), np.arange(48))
  q_DD = orthogonal_matrix(48)
  np.testing.assert_allclose(analyse(jnp.asarray(x), 'orthogonal'), x @ q_DD.T, atol=1e-12)
  # No trace of the axes or of a symmetry: entries like N(0, 1/D).
  assert np.abs(q_DD).max() < 0.8
  assert np.abs(q_DD - q_DD.T).max() > 0.3


@pytest.mark.parametrize('basis', BASES)
def test_the_filter_is_a_symmetric_matrix_with_the_weights_as_eigenvalues(basis):
  w_D = np.random.default_rng(1).normal(size=16)
  m_DD = np.asarray(width_filter(analyse(jnp.eye(16)[None], basis), jnp.asarray(w_D), basis=basis))[
    0
  ]
  np.testing.assert_allclose(m_DD, m_DD.T, atol=1e-12)
  np.testing.assert_allclose(np.linalg.eigvalsh(m_DD), np.sort(w_D), atol=1e-12)


def test_an_unknown_basis_is_named():
  with pytest.raises(UserError, match="did you mean 'orthogonal'"):
    analyse(jnp.ones(4), 'orthogonl')


@pytest.mark.parametrize('released', [False, True])
@pytest.mark.parametrize('basis', BASES)
def test_folded_into_a_matrix_the_filter_and_its_gradients_are_the_same(basis, released):
  rng = np.random.default_rng(2)
  x, w, gradient = (jnp.asarray(rng.normal(size=s)) for s in ((2, 40, 24), (24,), (2, 40, 24)))

  def apart(x, w):
    return width_filter(analyse(x, basis), w, basis=basis, released=released)

  def folded(x, w):
    return width_mix(x, w, basis=basis, released=released)

  assert folds(24, 80, basis)
  assert not folds(24, 24, basis)  # the matrix costs as much as so many tokens
  for ours, theirs in zip(*(jax.vjp(f, x, w)[1](gradient) for f in (folded, apart)), strict=True):
    np.testing.assert_allclose(ours, theirs, atol=1e-12)
  np.testing.assert_allclose(folded(x, w), apart(x, w), atol=1e-12)


def test_folding_follows_the_transform_of_the_backend():
  for kind, width in (('cpu', 2 * MATRIX_UP_TO['cpu']), ('tpu', 2 * MATRIX_UP_TO['tpu'])):
    with assumed(kind):
      assert folds(width, 10**6)
      assert not folds(width + 1, 10**6)
      assert folds(width + 1, 10**6, 'orthogonal')
