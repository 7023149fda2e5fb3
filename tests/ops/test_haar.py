import jax
import jax.numpy as jnp
import numpy as np
import pytest
import pywt

from sgnjax.ops.haar import (
  causal_haar_kernel,
  causal_haar_levels,
  haar,
  haar_levels,
  ihaar,
  resample_haar_gate,
)

pytestmark = pytest.mark.usefixtures('float64')


def normal(*shape, seed=0):
  return np.random.default_rng(seed).normal(size=shape)


@pytest.mark.parametrize('n', [2, 8, 64])
def test_powers_of_two_agree_with_pywavelets(n):
  x = normal(n, 3)
  truth = np.concatenate(pywt.wavedec(x, 'haar', axis=0))
  np.testing.assert_allclose(haar(jnp.asarray(x), axis=0), truth, atol=1e-13)


@pytest.mark.parametrize('n', [1, 2, 3, 7, 24, 31])
def test_any_length_is_orthonormal_and_comes_back(n):
  w, back, narrow = jax.jit(
    lambda x: (w := haar(x, axis=0), ihaar(w, axis=0), ihaar(haar(x.astype(jnp.bfloat16))))
  )(jnp.eye(n))
  np.testing.assert_allclose(w @ w.T, np.eye(n), atol=1e-14)
  np.testing.assert_allclose(back, np.eye(n), atol=1e-14)
  assert narrow.dtype == jnp.bfloat16
  np.testing.assert_allclose(narrow.astype(jnp.float64), np.eye(n), atol=2e-2)


def test_an_odd_leftover_passes_on():
  y = haar(jnp.asarray([1.0, 3.0, 5.0]))
  s = np.sqrt(0.5)
  np.testing.assert_allclose(y, [s * (4 * s + 5), s * (4 * s - 5), -2 * s], atol=1e-14)
  np.testing.assert_array_equal(haar_levels(3), [0, 2, 1])
  np.testing.assert_array_equal(haar_levels(8), [0, 3, 2, 2, 1, 1, 1, 1])


@pytest.mark.parametrize('lags', [2, 13, 65])
def test_causal_kernel_is_the_recursion_of_running_means(lags):
  levels = causal_haar_levels(lags)
  assert 2**levels <= lags < 2 ** (levels + 1)
  gate, x = normal(levels + 1, 2), normal(90, 2, seed=1)
  average, y = x, 0
  for level in range(1, levels + 1):
    delay = 2 ** (level - 1)
    delayed = np.concatenate([np.zeros((delay, 2)), average[:-delay]])
    coarser = (average + delayed) / 2
    y = y + gate[levels + 1 - level] * (average - coarser)
    average = coarser
  y = y + gate[0] * average
  h = np.asarray(causal_haar_kernel(jnp.asarray(gate)))
  ours = np.stack([np.convolve(x[:, d], h[:, d])[:90] for d in range(2)], axis=1)
  np.testing.assert_allclose(ours, y, atol=1e-13)
  ones = causal_haar_kernel(jnp.ones((levels + 1, 1)))
  np.testing.assert_allclose(ones[:, 0], np.eye(2**levels)[0], atol=1e-15)


@pytest.mark.parametrize('length', [1, 2, 48, 63, 128])
def test_a_gate_of_levels_and_smooth_places_follows_the_length(length):
  """Level by level the same values, wherever in the sequence: frequencies per token are kept."""

  def smooth(n):
    level = haar_levels(n)
    place = np.concatenate([(np.arange(c) + 0.5) / c for c in np.bincount(level)[::-1] if c])
    place = np.concatenate([[0.0], place[:-1]])  # the last of these is the average's
    return np.stack([1.0 * np.minimum(level, 6), np.where(level == 0, 0, place)], axis=1)

  ours = np.asarray(resample_haar_gate(jnp.asarray(smooth(64)), length))
  truth = smooth(length)
  np.testing.assert_allclose(ours[:, 0], truth[:, 0], atol=1e-13)
  # Half a coefficient at either end of a level is held.
  level = haar_levels(length)
  inner = (level > 0) & (level < 3)
  np.testing.assert_allclose(ours[inner, 1], truth[inner, 1], atol=0.5 / 16)
