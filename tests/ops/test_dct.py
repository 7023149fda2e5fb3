import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.fft

from sgnjax.errors import UserError
from sgnjax.ops.dct import PATHS, dct, dct_matrix, idct

SIZES = (1, 2, 7, 8, 64, 509)
TOLERANCE = {jnp.float64: 1e-12, jnp.float32: 2e-6, jnp.bfloat16: 6e-3}


@pytest.mark.parametrize('path', PATHS)
@pytest.mark.parametrize('n', SIZES)
def test_both_transforms_agree_with_scipy_on_every_axis(n, path):
  rng = np.random.default_rng(n)
  axes = (0, 1, 2, -2)
  arrays = [rng.normal(size=np.insert((3, 2), axis % 3, n)) for axis in axes]

  @jax.jit
  def both(arrays):
    return [
      (dct(x, axis, path=path), idct(x, axis, path=path))
      for x, axis in zip(arrays, axes, strict=True)
    ]

  with jax.enable_x64(True):
    ours = both([jnp.asarray(x) for x in arrays])
  for x, axis, (forward, back) in zip(arrays, axes, ours, strict=True):
    np.testing.assert_allclose(forward, scipy.fft.dct(x, axis=axis, norm='ortho'), atol=1e-12)
    np.testing.assert_allclose(back, scipy.fft.idct(x, axis=axis, norm='ortho'), atol=1e-12)


@pytest.mark.parametrize('path', PATHS)
@pytest.mark.parametrize('dtype', list(TOLERANCE))
@pytest.mark.parametrize('n', [7, 64])
def test_dtype_is_kept_round_trip_and_parseval(n, dtype, path):
  with jax.enable_x64(True):
    x = jnp.asarray(np.random.default_rng(n).normal(size=(5, n)), dtype)
    y = jax.jit(dct, static_argnames='path')(x, path=path)
    back = jax.jit(idct, static_argnames='path')(y, path=path)
    assert y.dtype == back.dtype == dtype
    truth = scipy.fft.dct(np.asarray(x, np.float64), norm='ortho')
    scale = np.abs(truth).max()
    tolerance = TOLERANCE[dtype] * scale
    np.testing.assert_allclose(np.asarray(y, np.float64), truth, rtol=0, atol=tolerance)
    np.testing.assert_allclose(
      np.asarray(back, np.float64), np.asarray(x, np.float64), rtol=0, atol=2 * tolerance
    )
    norms = [np.linalg.norm(np.asarray(a, np.float64), axis=-1) for a in (x, y)]
    np.testing.assert_allclose(*norms, rtol=TOLERANCE[dtype])


@pytest.mark.parametrize(('transform', 'inverse'), [(dct, idct), (idct, dct)])
@pytest.mark.parametrize('path', PATHS)
@pytest.mark.parametrize('n', [1, 7, 8])
def test_gradient_is_the_transpose(n, path, transform, inverse):
  @jax.jit
  def both(x, cotangent):
    _, pullback = jax.vjp(lambda x: transform(x, path=path), x)
    return pullback(cotangent)[0], inverse(cotangent, path=path)

  with jax.enable_x64(True):
    np.testing.assert_allclose(*both(*np.random.default_rng(n).normal(size=(2, 3, n))), atol=1e-13)


@pytest.mark.parametrize('n', [1, 2, 64, 509])
def test_matrix_is_orthogonal_and_is_the_transform(n):
  with jax.enable_x64(True):
    c = np.asarray(dct_matrix(n, jnp.float64))
  np.testing.assert_allclose(c @ c.T, np.eye(n), atol=1e-12)
  np.testing.assert_allclose(c, scipy.fft.dct(np.eye(n), axis=0, norm='ortho'), atol=1e-12)
  assert dct_matrix(n, jnp.bfloat16).dtype == jnp.bfloat16


@pytest.mark.parametrize('n', [8, 509])
def test_chosen_path_works_under_jit(n):
  x = np.random.default_rng(0).normal(size=(2, n)).astype(np.float32)
  np.testing.assert_allclose(
    jax.jit(dct)(x), scipy.fft.dct(x.astype(np.float64), norm='ortho'), atol=1e-5
  )


def test_golden_coefficients(golden):
  data = golden('chiar_entropy')
  with jax.enable_x64(True):
    ours = dct(jnp.asarray(data['x'], jnp.float64), path='fft')
  np.testing.assert_allclose(ours, data['dct_ortho'], atol=1e-11)


@pytest.mark.parametrize('n', [1, 2, 7, 64])
def test_a_gate_gives_a_toeplitz_part_and_a_reflection(n):
  """`C^T diag(G) C` has the entries `(g(t - s) + g(t + s + 1)) / 2`."""
  gate = np.random.default_rng(n).normal(size=n)
  with jax.enable_x64(True):
    operator = np.asarray(idct(jnp.asarray(gate)[:, None] * dct(jnp.eye(n), 0), 0))
  square = np.where(np.arange(n) == 0, 1, 2) / n
  t, s = np.arange(n)[:, None], np.arange(n)[None, :]

  def g(lag):
    return np.cos(np.pi / n * lag[..., None] * np.arange(n)) @ (square * gate)

  np.testing.assert_allclose(operator, (g(t - s) + g(t + s + 1)) / 2, rtol=0, atol=1e-13)


def test_wrong_path_is_named():
  with pytest.raises(UserError, match="'fftt' is not known; did you mean 'fft'"):
    dct(jnp.ones(4), path='fftt')


def test_empty_axis_is_named():
  with pytest.raises(UserError, match='axis 0'):
    dct(jnp.ones((0, 3)), axis=0)
