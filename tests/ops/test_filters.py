import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sgnjax.errors import UserError
from sgnjax.ops import filters

BINS = 33


@pytest.fixture(autouse=True)
def _float64():
  with jax.enable_x64(True):
    yield


def published(name, data):
  """The response of a golden file, normalised, from its parameters."""
  length, heads = data['x'].shape[1], 4
  if name.endswith(('dc', 'nyquist')):
    raw = (filters.dc if name.endswith('dc') else filters.nyquist)(length, heads)
  elif name.endswith('mexhat4'):
    omega_F = 2 * jnp.pi * jnp.arange(BINS, dtype=jnp.float64) / length
    raw = filters.mexican_hat(omega_F, jnp.exp(jnp.asarray(data['log_scales'], jnp.float64)))
  else:
    centre_H = jnp.exp(jnp.asarray(data['log_freq'], jnp.float64))
    raw = filters.gaussian(jnp.arange(BINS, dtype=jnp.float64), centre_H, float(data['sigma']))
  return filters.normalise(raw, 'l2' if name.startswith('fqk5a') else 'sum')


NAMES = ['fqk5b_gauss2', 'fqk5b_gauss0p5', 'fqk5b_gauss16', 'fqk5b_mexhat4']
NAMES += ['fqk5b_dc', 'fqk5b_nyquist', 'fqk5a_learned']


@pytest.mark.parametrize('name', NAMES)
def test_golden_filter_and_filtered_queries(golden, name):
  data = golden(name)
  response = published(name, data)
  np.testing.assert_allclose(response, data['filter'], atol=1e-7)
  x = data['x'].astype(np.float64)
  q_BLHE = (x @ data['w_q'].astype(np.float64)).reshape(*x.shape[:2], 4, 8)
  first = response[:, 0] if response.ndim == 3 else response
  ours = filters.band_pass(jnp.asarray(q_BLHE), first)
  truth = data['q_filt_b0_k0' if response.ndim == 3 else 'q_filt_b0']
  np.testing.assert_allclose(np.asarray(ours)[0].transpose(1, 0, 2), truth, atol=3e-7)


@pytest.mark.parametrize('length', [1, 2, 7, 8, 31])
def test_band_pass_is_a_circular_convolution(length):
  rng = np.random.default_rng(length)
  x, response = rng.normal(size=(2, length, 3, 2)), rng.uniform(size=(3, length // 2 + 1))
  c = np.fft.irfft(response, length)
  truth = np.zeros(x.shape)
  for t in range(length):
    for s in range(length):
      truth[:, t] += c[:, (t - s) % length, None] * x[:, s]
  np.testing.assert_allclose(
    filters.band_pass(jnp.asarray(x), jnp.asarray(response)), truth, atol=1e-13
  )


@pytest.mark.parametrize('dtype', [jnp.float32, jnp.bfloat16])
def test_band_pass_keeps_dtype(dtype):
  x = jnp.asarray(np.random.default_rng(0).normal(size=(1, 16, 2, 3)), dtype)
  y = filters.band_pass(x, jnp.ones((2, 9), jnp.float32))
  assert y.dtype == dtype
  np.testing.assert_allclose(np.asarray(y, np.float64), np.asarray(x, np.float64), atol=1e-6)


@pytest.mark.parametrize('period', [50.0, 26.0, 10.0, 5.0])
def test_mexican_hat_peaks_at_its_period(period):
  frequency = jnp.arange(50001, dtype=jnp.float64) / 100000
  scale = jnp.asarray([2**0.5 * period / (2 * np.pi)], jnp.float64)
  response = filters.mexican_hat(2 * jnp.pi * frequency, scale)
  assert response.shape == (1, 50001)
  assert float(frequency[jnp.argmax(response[0])]) == pytest.approx(1 / period, abs=2e-5)


@pytest.mark.parametrize(('kind', 'order'), [('sum', 1), ('l2', 2)])
def test_normalise_to_unit_norm_with_a_floor(kind, order):
  response = jnp.asarray(np.random.default_rng(0).uniform(size=(3, 4, 9)))
  unit = filters.normalise(response, kind)
  np.testing.assert_allclose(np.linalg.norm(unit, order, axis=-1), 1, atol=1e-14)
  tiny = filters.normalise(jnp.full((1, 4), 1e-12), kind)
  np.testing.assert_allclose(tiny, 1e-4, rtol=1e-12)
  grad = jax.grad(lambda r: jnp.sum(filters.normalise(r, kind)))(jnp.zeros((1, 4)))
  np.testing.assert_allclose(grad, 1e8)


def test_normalise_by_a_reference_on_another_grid():
  fine, coarse = jnp.ones((2, 17)), jnp.full((2, 9), 2.0)
  np.testing.assert_allclose(filters.normalise(fine, 'sum', reference=coarse), 1 / 18)


def test_unknown_norm_is_named():
  with pytest.raises(UserError, match="'l3' is not known; did you mean 'l2'"):
    filters.normalise(jnp.ones((1, 4)), 'l3')


@pytest.mark.parametrize('n', [8, 9])
def test_one_hot_filters(n):
  np.testing.assert_array_equal(filters.dc(n, 2), np.eye(n // 2 + 1)[[0, 0]])
  np.testing.assert_array_equal(filters.nyquist(n, 2), np.eye(n // 2 + 1)[[-1, -1]])
