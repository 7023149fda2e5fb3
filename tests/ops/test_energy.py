"""Energies against the golden files and numpy, in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sgnjax.ops import energy

pytestmark = pytest.mark.usefixtures('float64')

LENGTHS = (3, 7, 15, 31)


def noise(*shape, seed=0):
  return jnp.asarray(np.random.default_rng(seed).normal(size=shape))


def test_golden_morlet_frequencies_widths_and_energies(golden):
  g = {name: jnp.asarray(a, jnp.float64) for name, a in golden('egaM').items() if name != 'meta'}
  omega_HS, sigma_HS = energy.admissible(g['log_omega0'], g['log_sigma'])
  np.testing.assert_allclose(omega_HS, g['omega_used'], rtol=1e-6)
  np.testing.assert_allclose(sigma_HS, g['sigma_used'], rtol=1e-6)

  @jax.jit
  def energies(x_BLD, omega_HS, sigma_HS):
    taps = energy.morlet_taps(omega_HS, sigma_HS, LENGTHS, released=True)
    return energy.morlet(jnp.mean(x_BLD, -1)[:, None], taps)

  got = energies(g['x'], omega_HS, sigma_HS)
  np.testing.assert_allclose(got, g['energy'], rtol=1e-5, atol=1e-6)


def test_morlet_sees_most_of_the_current_token_the_released_one_of_the_oldest():
  one_11 = jnp.ones((1, 1))
  for released, lag in ((False, 0), (True, 8)):
    (taps_12T,) = energy.morlet_taps(one_11, 3 * one_11, (9,), released=released)
    envelope_T = np.hypot(*np.asarray(taps_12T[0]))
    n_T = np.arange(9)
    expected_T = np.exp(-((n_T[::-1] if released else n_T) ** 2) / 18)
    np.testing.assert_allclose(envelope_T, expected_T, atol=1e-8)
    assert np.argmax(envelope_T) == lag
  low, width = energy.admissible(jnp.log(jnp.asarray([0.1, 9.0])), jnp.log(jnp.asarray([2.0, 9.0])))
  np.testing.assert_allclose(low, [2.5, 0.95 * np.pi])
  np.testing.assert_allclose(width, [2.0, 9.0])


def test_conv_energy_is_that_of_numpy_within_each_segment():
  lengths = (2, 5)
  x_BLD, taps_HTDO, bias_HSO = noise(2, 11, 3), noise(2, 7, 3, 2, seed=1), noise(2, 2, 2, seed=2)
  segments_BL = jnp.asarray([[0] * 11, [4] * 6 + [5] * 5])
  y_BHTOL = jnp.einsum('bld,htdo->bhtol', x_BLD, taps_HTDO)
  got = energy.conv(y_BHTOL, bias_HSO, lengths, segments_BL)
  for b, pieces in ((0, [(0, 11)]), (1, [(0, 6), (6, 11)])):
    for begin, end in pieces:
      x_LD = np.asarray(x_BLD[b, begin:end])
      for s, (first, n) in enumerate(zip((0, 2), lengths, strict=True)):
        taps_TDO = np.asarray(taps_HTDO[1, first : first + n])
        for t in range(end - begin):
          u_O = np.array(bias_HSO[1, s])
          for lag in range(min(n, t + 1)):
            u_O += x_LD[t - lag] @ taps_TDO[n - 1 - lag]
          np.testing.assert_allclose(got[b, 1, s, begin + t], np.sum(u_O**2), rtol=1e-12)
