import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sgnjax.ops import statistics
from sgnjax.ops.attention import visible

pytestmark = pytest.mark.usefixtures('float64')

sequence_znorm = jax.jit(statistics.sequence_znorm)
prefix_moments = jax.jit(statistics.prefix_moments)


@jax.jit
def prefix_znorm(e, segments=None, mask=None):
  """Each element under the moments of the elements up to it."""
  moments = statistics.prefix_moments(e, segments=segments, mask=mask)
  real = True if mask is None else mask.reshape(e.shape[0], *(1,) * (e.ndim - 2), e.shape[-1])
  return statistics.znorm(e, moments, real).astype(e.dtype)


@jax.jit
def query_znorm(e, segments=None, mask=None):
  """Each key (last axis) under the moments of what each query (the axis before) sees."""
  moments = statistics.prefix_moments(e, segments=segments, mask=mask)
  moments = statistics.Moments(*(m[..., None] for m in moments))
  length = e.shape[-1]
  seen = visible(length, causal=True, mask_BL=mask, segments_BL=segments)
  seen = seen.reshape(seen.shape[0], *(1,) * (e.ndim - 2), length, length)
  return statistics.znorm(e[..., None, :], moments, seen).astype(e.dtype)


@jax.jit
def all_three(e, **options):
  functions = (prefix_moments, prefix_znorm, query_znorm)
  return [function(e, **options) for function in functions]


B, H, S, L = 2, 3, 2, 13
MASK = np.random.default_rng(7).random((B, L)) < 0.7
MASK[0, :2] = False
SEGMENTS = np.array([[0] * 4 + [1] + [2] * 8, [5] * 6 + [4] * 7], np.int32)
CASES = [(False, False), (True, False), (False, True), (True, True)]
ZNORMS = [sequence_znorm, prefix_znorm, query_znorm]


def energies(*shape, seed=0):
  return np.random.default_rng(seed).normal(size=shape)


def case(masked, segmented):
  mask = MASK if masked else np.ones((B, L), bool)
  segments = SEGMENTS if segmented else np.zeros((B, L), np.int32)
  options = {'mask': jnp.asarray(mask)} if masked else {}
  if segmented:
    options['segments'] = jnp.asarray(segments)
  return mask, segments, options


def seen_by(mask, segments, b, i):
  """Positions that count at position i of example b."""
  return [j for j in range(i + 1) if mask[b, j] and segments[b, j] == segments[b, i]]


def z_of(values, reference):
  if len(reference) == 0 or np.std(reference) == 0:
    return np.zeros_like(values)
  return (values - np.mean(reference)) / max(np.std(reference), 1e-8)


@pytest.mark.parametrize('masked', [False, True])
@pytest.mark.parametrize('shape', [(B, L), (B, H, L), (B, H, S, L)])
def test_sequence_against_a_loop(shape, masked):
  e = energies(*shape)
  mask, _, options = case(masked, False)
  truth = np.zeros(shape)
  for index in np.ndindex(shape[:-1]):
    real = mask[index[0]]
    truth[index][real] = z_of(e[index][real], e[index][real])
  np.testing.assert_allclose(sequence_znorm(jnp.asarray(e), **options), truth, atol=1e-13)


@pytest.mark.parametrize(('masked', 'segmented'), CASES)
@pytest.mark.parametrize('shape', [(B, L), (B, H, S, L)])
def test_prefix_and_query_against_loops(shape, masked, segmented):
  e = energies(*shape)
  mask, segments, options = case(masked, segmented)
  moments = np.zeros((3, *shape))
  prefix, query = np.zeros(shape), np.zeros((*shape, L))
  for *index, i in np.ndindex(shape):
    row, at = e[tuple(index)], (*index, i)
    seen = seen_by(mask, segments, index[0], i)
    known = row[seen]
    if seen:
      moments[(slice(None), *at)] = len(seen), known.mean(), known.size * known.var()
    if mask[index[0], i]:
      prefix[at] = z_of(row[i], known)
      query[(*at, seen)] = z_of(known, known)
  for ours, truth in zip(
    all_three(jnp.asarray(e), **options), (moments, prefix, query), strict=True
  ):
    np.testing.assert_allclose(ours, truth, atol=1e-12)


def test_golden_energies(golden):
  files = [golden(name) for name in ('ega1', 'ega2', 'ega4')]
  energy, z = (np.concatenate([f[key] for f in files], 2) for key in ('energy', 'energy_z'))
  energy = jnp.asarray(energy, jnp.float64)
  ours = sequence_znorm(energy)
  np.testing.assert_allclose(ours, z, atol=1e-6)
  # The last position sees the whole sequence, so there all three statistics agree.
  _, prefix, query = all_three(energy)
  np.testing.assert_allclose(query[..., -1, :], ours, atol=1e-12)
  np.testing.assert_allclose(prefix[..., -1], ours[..., -1], atol=1e-12)


@pytest.mark.parametrize('znorm', ZNORMS)
@pytest.mark.parametrize('length', [1, 6])
def test_equal_energies_give_zero_with_finite_gradients(znorm, length):
  @jax.jit
  @jax.value_and_grad
  def size(e):
    z = znorm(e)
    return jnp.sum(jnp.abs(z) + z)

  for value in (0.0, 0.7, -1e4 / 3):
    total, grad = size(jnp.full((1, 2, length), value, jnp.float32))
    assert total == 0
    assert np.isfinite(grad).all()


@pytest.mark.parametrize('znorm', ZNORMS)
def test_all_masked_gives_zero_with_finite_gradients(znorm):
  e, mask = jnp.asarray(energies(2, 3, 5)), jnp.zeros((2, 5), bool)
  size = jax.jit(jax.value_and_grad(lambda e: jnp.sum(znorm(e, mask=mask) ** 2)))
  total, grad = size(e)
  assert total == 0
  np.testing.assert_array_equal(grad, 0)


@pytest.mark.parametrize('znorm', ZNORMS)
def test_float32_gradients_hold_beside_float64(znorm):
  e, weight = energies(2, 3, 9), energies(9, seed=1)

  def grad(dtype):
    def weighed(e):
      return jnp.sum(jnp.tensordot(znorm(e), jnp.asarray(weight, dtype), 1))

    return np.asarray(jax.jit(jax.grad(weighed))(jnp.asarray(e, dtype)), np.float64)

  truth = grad(jnp.float64)
  np.testing.assert_allclose(grad(jnp.float32), truth, atol=1e-4 * np.abs(truth).max())


@pytest.mark.parametrize('znorm', ZNORMS)
def test_large_mean_keeps_its_digits_in_float32(znorm):
  e = (1e4 + energies(2, 2, 100)).astype(np.float32)
  truth = np.asarray(znorm(jnp.asarray(e, jnp.float64)))
  ours = znorm(jnp.asarray(e))
  assert ours.dtype == jnp.float32
  # One unit in the last place of 1e4 is 1e-3 of the standard deviation. The second element of a
  # prefix may lie within a few of those of the first: there z is +-1 in both.
  np.testing.assert_allclose(ours, truth, atol=2e-2)
  assert np.abs(np.asarray(ours, np.float64) - truth).mean() < 1e-3


def test_moments_under_a_large_mean_in_float32():
  e = (1e4 + energies(1, 4, 1000)).astype(np.float32)
  _, mean, m2 = prefix_moments(jnp.asarray(e))
  exact = e.astype(np.float64)
  np.testing.assert_allclose(mean[..., -1], exact.mean(-1), rtol=3e-7)
  np.testing.assert_allclose(m2[..., -1], exact.var(-1) * 1000, rtol=1e-4)
  # What the textbook difference of squares would give from the same float32 numbers.
  naive = np.cumsum(e**2, -1, dtype=np.float32)[..., -1] / 1000 - np.asarray(mean)[..., -1] ** 2
  assert np.abs(naive - exact.var(-1)).max() > 0.1


@pytest.mark.parametrize('znorm', [prefix_znorm, query_znorm, prefix_moments])
@pytest.mark.parametrize(('masked', 'segmented'), CASES)
@pytest.mark.parametrize('t', [0, 5, 11])
def test_the_future_has_exactly_no_influence(znorm, masked, segmented, t):
  mask, segments, _ = case(masked, segmented)
  e = energies(B, H, L).astype(np.float32)
  changed, other_mask, other_segments = e.copy(), mask.copy(), segments.copy()
  changed[..., t + 1 :] = 1e3 * energies(B, H, L - t - 1, seed=3)
  if masked:
    other_mask[:, t + 1 :] ^= True
  if segmented:
    other_segments[:, t + 1 :] = 99

  def run(*inputs):
    e, mask, segments = map(jnp.asarray, inputs)
    return np.stack(jax.tree.leaves(znorm(e, mask=mask, segments=segments)))

  before, after = run(e, mask, segments), run(changed, other_mask, other_segments)
  rows = (Ellipsis, slice(t + 1), slice(None)) if znorm is query_znorm else (..., slice(t + 1))
  np.testing.assert_array_equal(before[rows], after[rows])
  assert not np.array_equal(before, after)


@pytest.mark.parametrize('znorm', ZNORMS)
def test_masked_values_do_not_matter(znorm):
  e = energies(B, H, L)
  changed = np.where(MASK[:, None, :], e, 1e6)
  ours = [znorm(jnp.asarray(a), mask=jnp.asarray(MASK)) for a in (e, changed)]
  np.testing.assert_array_equal(*ours)


@pytest.mark.parametrize('znorm', ZNORMS)
def test_bfloat16_is_kept_with_float32_inside(znorm):
  e = jnp.asarray(energies(1, 2, 13), jnp.bfloat16)
  ours = znorm(e)
  assert ours.dtype == jnp.bfloat16
  truth = np.asarray(znorm(e.astype(jnp.float64)))
  np.testing.assert_allclose(np.asarray(ours, np.float64), truth, atol=2e-2)
  assert all(a.dtype == jnp.float32 for a in prefix_moments(e))
