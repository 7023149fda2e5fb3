"""Wavelets against PyWavelets, the golden files and brute force, in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import pywt

from sgnjax.errors import UserError
from sgnjax.ops import wavelets

pytestmark = pytest.mark.usefixtures('float64')

LEVELS = 3
atrous = jax.jit(wavelets.atrous, static_argnums=3)


def noise(*shape, seed=0):
  return jnp.asarray(np.random.default_rng(seed).normal(size=shape))


def pair(name):
  return tuple(map(jnp.asarray, wavelets.filters(name)))


def shannon(u):
  """Cost and energy of some coefficients."""
  p = np.asarray(u) ** 2
  return -np.sum(p[p > 0] * np.log(p[p > 0])), np.sum(p)


def decimated(x, name):
  """PyWavelets' transform, the coarsest first, whatever it thinks of the levels."""
  details = []
  for _ in range(LEVELS):
    x, detail = pywt.dwt(x, name, mode='zero')
    details.insert(0, detail)
  return [x, *details]


@pytest.mark.parametrize('name', ['db2', 'db4'])
def test_golden_transform(golden, name):
  g = golden(f'wavelet_{name}')
  low, high = pair(name)
  np.testing.assert_allclose(low, g['dec_lo'], atol=1e-14)
  np.testing.assert_allclose(high, g['dec_hi'], atol=1e-14)
  x_BL = jnp.asarray(g['x'], jnp.float64)
  detail_BJL, approximation_BL = atrous(x_BL, low, high, LEVELS)
  np.testing.assert_allclose(detail_BJL, g['atrous_detail'], atol=1e-10)
  np.testing.assert_allclose(detail_BJL**2, g['atrous_energy'], rtol=1e-6, atol=1e-7)
  np.testing.assert_allclose(approximation_BL, g['atrous_approx'], atol=1e-10)
  # Sampled, it is PyWavelets' decimated transform.
  extended_BL = jnp.pad(x_BL, ((0, 0), (0, 80)))
  detail_BJL, _ = atrous(extended_BL, low, high, LEVELS)
  coarse = decimated(np.array(x_BL), name)
  for j in range(1, LEVELS + 1):
    expected_BK = coarse[-j]
    np.testing.assert_allclose(expected_BK, g[f'decimated_detail_{j}'], atol=1e-12)
    got_BK = detail_BJL[:, j - 1, 2**j - 1 :: 2**j][:, : expected_BK.shape[1]]
    np.testing.assert_allclose(got_BK, expected_BK, atol=1e-12)


@pytest.mark.parametrize('name', ['db1', 'db3', 'sym4'])
def test_packets_sampled_are_those_of_pywavelets_in_order_of_frequency(name):
  x_L = noise(32)
  extended_BL = jnp.pad(x_L, (0, 64))[None, :]
  nodes = jax.jit(wavelets.packets, static_argnums=3)(extended_BL, *pair(name), LEVELS)
  tree = pywt.WaveletPacket(np.array(x_L), name, mode='zero', maxlevel=LEVELS)
  for j in range(1, LEVELS + 1):
    for f, node in enumerate(tree.get_level(j, 'freq')):
      got = nodes[j][0, f, 2**j - 1 :: 2**j][: len(node.data)]
      np.testing.assert_allclose(got, node.data, atol=1e-12)


def every_basis(j=0, f=0):
  """All bases of a packet tree, as lists of (level, frequency)."""
  yield [(j, f)]
  if j < LEVELS:
    for first in every_basis(j + 1, 2 * f):
      for second in every_basis(j + 1, 2 * f + 1):
        yield first + second


@pytest.mark.parametrize('kind', ['noise', 'tone', 'click', 'chirp'])
def test_best_basis_has_the_least_entropy_of_all_bases(kind):
  t_L = np.arange(64)
  x_L = {
    'noise': np.array(noise(64, seed=3)),
    'tone': np.sin(2 * np.pi * t_L * 0.17),
    'click': np.eye(64)[20],
    'chirp': np.sin(0.02 * t_L**2),
  }[kind]
  tree = pywt.WaveletPacket(x_L, 'db2', mode='periodization', maxlevel=LEVELS)
  levels = [[tree], *(tree.get_level(j, 'freq') for j in range(1, LEVELS + 1))]
  sums = [[shannon(node.data) for node in level] for level in levels]
  costs, energies = ([jnp.asarray([[node[i]] for node in level]) for level in sums] for i in (0, 1))
  chosen = wavelets.best_basis(costs, energies)
  nodes = [(j, f) for j in range(LEVELS + 1) for f in range(2**j) if chosen[j][f, 0]]
  bases = list(every_basis())
  assert len(bases) == 26
  total = [sum(sums[j][f][0] for j, f in basis) for basis in bases]
  assert sorted(nodes) == sorted(bases[int(np.argmin(total))])
  if kind == 'click':
    assert nodes == [(0, 0)]


@pytest.mark.parametrize('whole', [True, False])
def test_the_choice_is_of_shift_averaged_entropy_and_blind_unless_whole(whole):
  x_BL = jnp.sin(0.9 * jnp.arange(40.0))[None, :] + 0.1 * noise(1, 40)
  low, high = pair('db2')

  @jax.jit
  def choose(x_BL):
    nodes = wavelets.packets(x_BL, low, high, 2)
    return nodes, wavelets.packet_basis(nodes, whole=whole)[0]

  nodes, chosen = choose(x_BL)
  for end in (40,) if whole else (1, 9, 26, 40):
    sums = [[shannon(node[:end]) for node in np.asarray(level[0])] for level in nodes]
    costs, energies = (
      [jnp.asarray([[n[i] / 2**j] for n in level]) for j, level in enumerate(sums)] for i in (0, 1)
    )
    expected = wavelets.best_basis(costs, energies)
    for got, want in zip(chosen, expected, strict=True):
      np.testing.assert_array_equal(got[0, :, end - 1 if not whole else 0], want[:, 0])
  _, other = choose(x_BL.at[:, 25:].set(20 * np.eye(15)[:1]))
  same = [np.array_equal(a[..., :25], b[..., :25]) for a, b in zip(chosen, other, strict=True)]
  assert all(same) != whole


def test_packet_energies_of_any_basis_sum_to_the_signal_and_to_the_octaves():
  x_BL = jnp.pad(noise(2, 20), ((0, 0), (0, 80)))
  low, high = pair('db3')
  nodes = jax.jit(wavelets.packets, static_argnums=3)(x_BL, low, high, LEVELS)
  energies = jax.jit(wavelets.packet_energies)
  for basis in list(every_basis())[::3]:
    chosen = [
      jnp.asarray([[(j, f) in basis] for f in range(2**j)])[None] for j in range(LEVELS + 1)
    ]
    energy_BSL = energies(nodes, chosen)
    assert energy_BSL.shape == (2, LEVELS + 1, 100)
    np.testing.assert_allclose(jnp.sum(energy_BSL, (1, 2)), jnp.sum(x_BL**2, 1), rtol=1e-10)
  octaves = {(1, 1), (2, 1), (3, 1), (3, 0)}
  chosen = [
    jnp.asarray([[(j, f) in octaves] for f in range(2**j)])[None] for j in range(LEVELS + 1)
  ]
  detail_BJL, approximation_BL = atrous(x_BL, low, high, LEVELS)
  weight_1J1 = jnp.asarray([1 / 2, 1 / 4, 1 / 8])[None, :, None]
  expected = jnp.concatenate(
    [weight_1J1 * detail_BJL**2, approximation_BL[:, None] ** 2 / 8], axis=1
  )
  np.testing.assert_allclose(energies(nodes, chosen), expected, atol=1e-12)


def test_any_angles_give_an_orthonormal_pair_of_filters():
  low_HT = jax.jit(wavelets.lattice)(3 * noise(5, 3))
  high_HT = wavelets.conjugate(low_HT)
  assert low_HT.shape == (5, 8)
  for low, high in zip(np.asarray(low_HT), np.asarray(high_HT), strict=True):
    for shift in range(4):
      for a, b, value in ((low, low, 1), (high, high, 1), (low, high, 0)):
        product = np.dot(a[2 * shift :], b[: 8 - 2 * shift])
        assert abs(product - (value if shift == 0 else 0)) < 1e-14
    assert abs(np.sum(low) - 2**0.5) < 1e-14
    assert abs(np.sum(high)) < 1e-14


@pytest.mark.parametrize('name', ['db1', 'db4', 'sym7'])
def test_angles_of_a_wavelet_give_it_back(name):
  low, high = wavelets.filters(name)
  again = jax.jit(wavelets.lattice)(jnp.asarray(wavelets.lattice_angles(low)))
  np.testing.assert_allclose(again, low, atol=1e-11)
  np.testing.assert_allclose(wavelets.conjugate(again), high, atol=1e-11)


def test_filters_that_are_no_orthonormal_pair_are_refused():
  with pytest.raises(UserError, match="did you mean 'db4'"):
    wavelets.filters('db4x')
  with pytest.raises(UserError, match='not orthogonal'):
    wavelets.filters('bior2.2')
  with pytest.raises(UserError, match='no lattice'):
    wavelets.lattice_angles(np.asarray([0.5, 0.5, 0.4, 0.1]))


def test_mirrored_samples_are_those_of_numpy_in_each_rows_own_length():
  x_BXL = noise(4, 2, 9)
  lengths = (9, 4, 1, 0)
  mask_BL = jnp.arange(9)[None, :] < jnp.asarray(lengths)[:, None]
  x_BXL = jnp.where(mask_BL[:, None, :], x_BXL, 0.0)
  got = wavelets.mirrored(x_BXL, 14, mask_BL)
  for b, n in enumerate(lengths):
    expected = np.zeros((2, 14))
    if n:
      expected = np.pad(x_BXL[b, :, :n], ((0, 0), (14, 0)), mode='reflect')[:, :14]
    np.testing.assert_array_equal(got[b, :, :14], expected)
    np.testing.assert_array_equal(got[b, :, 14:], x_BXL[b])
  np.testing.assert_array_equal(wavelets.mirrored(x_BXL[:1], 14), got[:1])


def test_transforms_are_blind_bit_for_bit_and_stay_in_their_segment():
  x_BL = noise(2, 20).astype('float32')
  low, high = (a.astype('float32') for a in pair('db2'))

  @jax.jit
  def transforms(x_BL, segments_BL):
    nodes = wavelets.packets(x_BL, low, high, 2, segments_BL)
    chosen, _ = wavelets.packet_basis(nodes, whole=False, segments_BL=segments_BL)
    details, _ = wavelets.atrous(x_BL, low, high, 2, segments_BL)
    return details, wavelets.packet_energies(nodes, chosen)

  one_BL = jnp.zeros((2, 20), jnp.int32)
  for t in (1, 12, 19):
    other_BL = x_BL.at[:, t:].set(5)
    for a, b in zip(transforms(x_BL, one_BL), transforms(other_BL, one_BL), strict=True):
      np.testing.assert_array_equal(a[..., :t], b[..., :t])
      assert np.all(np.any(a[..., t:] != b[..., t:], axis=1))
  two_BL = one_BL.at[:, 10:].set(1)
  first, second = (transforms(x, one_BL[:, :10]) for x in (x_BL[:, :10], x_BL[:, 10:]))
  for packed, a, b in zip(transforms(x_BL, two_BL), first, second, strict=True):
    np.testing.assert_allclose(packed, np.concatenate([a, b], axis=-1), atol=1e-5)
