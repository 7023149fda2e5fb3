"""Bases of the width: orthonormal, fixed, and what scipy computes."""

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.fft

from sgnjax.errors import UserError
from sgnjax.ops.width import (
  BASES,
  analyse,
  orthogonal_matrix,
  permutation,
  synthesise,
  width_filter,
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
