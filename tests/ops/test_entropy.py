import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.fft
import scipy.special

from sgnjax.errors import UserError
from sgnjax.ops.entropy import spectral_entropy, thresholds, white_entropy
from sgnjax.ops.width import analyse

pytestmark = pytest.mark.usefixtures('float64')


def entropy64(x, **kwargs):
  return np.asarray(spectral_entropy(jnp.asarray(x, jnp.float64), **kwargs))


def test_golden_entropy_in_both_scalings(golden):
  data = golden('chiar_entropy')
  # The golden file puts 1e-8 under log D in both scalings, ours only in the released one.
  np.testing.assert_allclose(entropy64(data['x']), data['entropy_ortho'], atol=1e-8)
  np.testing.assert_allclose(entropy64(data['x'], released=True), data['entropy_ref'], atol=1e-12)


def test_golden_routes_are_equal(golden):
  data = golden('chiar_entropy')
  for i, pair in enumerate(data['tau_pairs'].astype(np.float64)):
    for released, name in ((False, 'route_ortho'), (True, 'route_ref')):
      route = entropy64(data['x'], released=released) > pair.mean()
      np.testing.assert_array_equal(route, data[name][i])
  assert (data['route_ortho'] != data['route_ref']).any()


def test_golden_calibration(golden):
  data = golden('chiar_tau')
  tokens = data['embedding'][data['ids']]
  released, ours = entropy64(tokens, released=True), entropy64(tokens)
  np.testing.assert_allclose(released, data['entropy'], atol=1e-12)
  low, high = thresholds(released)
  assert (low, high) == pytest.approx((float(data['tau_low']), float(data['tau_high'])), abs=1e-12)
  assert (low + high) / 2 == pytest.approx(float(data['tau_mid']), abs=1e-12)
  np.testing.assert_array_equal(released > (low + high) / 2, data['route'])
  low, high = thresholds(ours)
  assert (low, high) == pytest.approx(
    (float(data['tau_low_ortho']), float(data['tau_high_ortho'])), abs=1e-8
  )
  np.testing.assert_array_equal(ours > (low + high) / 2, data['route_ortho'])


def test_golden_entropy_of_a_layer(golden):
  data = golden('chiar_layer')
  np.testing.assert_allclose(entropy64(data['x'], released=True), data['entropy'], atol=1e-7)
  np.testing.assert_allclose(entropy64(data['x']), data['entropy_ortho'], atol=1e-7)
  tau = (data['tau_low'] + data['tau_high']) / 2
  np.testing.assert_array_equal(entropy64(data['x'], released=True) > tau, data['route'])


@pytest.mark.parametrize('width', [2, 7, 64])
def test_extremes(width):
  rows = scipy.fft.idct(np.stack([np.eye(width)[1], np.ones(width)]), norm='ortho')
  np.testing.assert_allclose(entropy64(rows), [0, 1], atol=1e-6)


@pytest.mark.parametrize('basis', ['dct', 'orthogonal', 'permuted'])
def test_white_noise_has_its_known_mean_in_every_basis(basis):
  x = np.random.default_rng(0).normal(size=(4000, 256))
  # Of relative powers that are Dirichlet(1/2); 4000 tokens leave an error of 0.00016.
  exact = (scipy.special.digamma(129) - scipy.special.digamma(1.5)) / np.log(256)
  assert entropy64(x, basis=basis).mean() == pytest.approx(exact, abs=8e-4)
  assert white_entropy(256) == pytest.approx(exact, abs=1e-3)
  assert white_entropy(1024) == pytest.approx(0.8947, abs=5e-5)


@pytest.mark.parametrize('basis', ['orthogonal', 'permuted'])
def test_the_entropy_of_another_basis_is_of_its_own_coefficients(basis):
  x = np.cumsum(np.random.default_rng(0).normal(size=(50, 64)), -1)  # smooth: the DCT compacts it
  coefficients = np.asarray(analyse(jnp.asarray(x), basis))
  p = coefficients**2 / np.sum(coefficients**2, -1, keepdims=True)
  expected = -np.sum(p * np.log(p), -1) / np.log(64)
  np.testing.assert_allclose(entropy64(x, basis=basis), expected, atol=1e-6)
  assert entropy64(x, basis=basis).mean() > entropy64(x).mean() + 0.2


def test_bfloat16_input_gives_a_float32_entropy():
  x = jnp.asarray(np.random.default_rng(0).normal(size=(3, 64)), jnp.bfloat16)
  ours = jax.jit(spectral_entropy)(x)
  assert ours.dtype == jnp.float32
  np.testing.assert_allclose(ours, entropy64(np.asarray(x, np.float64)), atol=2e-6)


@pytest.mark.parametrize('released', [False, True])
def test_gradient_of_a_zero_token_is_finite(released):
  grad = jax.grad(lambda x: jnp.sum(spectral_entropy(x, released=released)))(jnp.zeros((2, 8)))
  np.testing.assert_array_equal(grad, 0)


def test_percentiles_are_linear():
  assert thresholds(np.arange(101.0)) == pytest.approx((33, 67))
  assert thresholds([0.0, 1.0], 25, 50) == pytest.approx((0.25, 0.5))


def test_width_of_one_is_refused():
  with pytest.raises(UserError, match='at least 2'):
    spectral_entropy(jnp.ones((3, 1)))
