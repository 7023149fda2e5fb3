import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sgnjax.ops.averages import empty_mean, running_mean, window_mean
from sgnjax.ops.chunks import History

pytestmark = pytest.mark.usefixtures('float64')

B, L, C, LEVELS = 2, 21, 5, 3
LEVEL_C = 1 + np.arange(C) % LEVELS
MASK = np.arange(L)[None, :] < np.array([[L], [13]])
SEGMENTS = np.array([[2] * 6 + [5] * 15, [1] * 2 + [0] * 9 + [1] * 10], np.int32)
RAGGED = {'mask_BL': jnp.asarray(MASK), 'segments_BL': jnp.asarray(SEGMENTS)}
running = jax.jit(running_mean, static_argnames='causal')
windows = jax.jit(window_mean, static_argnames='levels')


def inputs(dtype=jnp.float64):
  return jnp.asarray(np.random.default_rng(0).normal(size=(B, L, C)), dtype)


def oracle(x, window=None, causal=True, ragged=False):
  """Mean of those seen, one token at a time; a segment's number is met twice in a row here."""
  run = np.cumsum(np.diff(SEGMENTS, axis=1, prepend=SEGMENTS[:, :1]) != 0, axis=1)
  y = np.zeros_like(x)
  for b, t, c in np.ndindex(x.shape):
    seen = np.arange(L) <= t if causal else np.ones(L, bool)
    if window is not None:
      seen = seen & (np.arange(L) > t - window[c])
    if ragged:
      seen = seen & MASK[b] & (run[b] == run[b, t])
    y[b, t, c] = x[b, seen, c].mean() if seen.any() else 0
  return y


@pytest.mark.parametrize('ragged', [False, True])
@pytest.mark.parametrize('causal', [False, True])
def test_running_mean_agrees_with_numpy(causal, ragged):
  y, _ = running(inputs(), causal=causal, **(RAGGED if ragged else {}))
  expected = oracle(np.asarray(inputs()), causal=causal, ragged=ragged)
  real = MASK if ragged else np.ones_like(MASK)
  np.testing.assert_allclose(np.asarray(y)[real], expected[real], atol=1e-14)


@pytest.mark.parametrize('ragged', [False, True])
def test_window_mean_agrees_with_numpy(ragged):
  level = jnp.asarray(LEVEL_C, jnp.int32)
  y, _ = windows(inputs(), level, LEVELS, **(RAGGED if ragged else {}))
  expected = oracle(np.asarray(inputs()), window=2**LEVEL_C, ragged=ragged)
  real = MASK if ragged else np.ones_like(MASK)
  np.testing.assert_allclose(np.asarray(y)[real], expected[real], atol=1e-14)


def test_window_means_are_the_haar_approximations():
  """A level's orthonormal approximation, sum / 2^(l/2), sampled at the end of each block."""
  pywt = pytest.importorskip('pywt', reason='PyWavelets is the oracle')
  x = np.random.default_rng(1).normal(size=32)
  level = jnp.arange(1, 5, dtype=jnp.int32)
  y, _ = windows(jnp.asarray(np.tile(x[None, :, None], (1, 1, 4))), level, 4)
  for i in range(4):
    approximation = pywt.wavedec(x, 'haar', level=i + 1)[0] / 2 ** ((i + 1) / 2)
    np.testing.assert_allclose(y[0, 2 ** (i + 1) - 1 :: 2 ** (i + 1), i], approximation, atol=1e-14)


@pytest.mark.parametrize('t', [1, 8, 20])
def test_the_future_has_exactly_no_influence(t):
  x = inputs(jnp.float32)
  other = x.at[:, t:].set(100.0).at[1].set(-3.0)
  level = jnp.asarray(LEVEL_C, jnp.int32)
  for mean in (
    lambda x: running(x, causal=True)[0],
    lambda x: windows(x, level, LEVELS)[0],
  ):
    np.testing.assert_array_equal(mean(x)[0, :t], mean(other)[0, :t])
    assert np.any(np.asarray(mean(x)[0, t:] != mean(other)[0, t:]))


def test_a_long_running_mean_keeps_its_digits():
  rng = np.random.default_rng(0)
  x = (1000 + rng.normal(size=(1, 1 << 13, 1))).astype(np.float32)
  exact = np.cumsum(x.astype(np.float64), 1) / np.arange(1, x.shape[1] + 1)[None, :, None]
  y = np.asarray(running(jnp.asarray(x), causal=True)[0])
  plain = np.cumsum(x, 1, dtype=np.float32) / np.arange(1, x.shape[1] + 1)[None, :, None]
  eps = np.spacing(np.float32(1000))
  assert np.abs(y - exact).max() <= 4 * eps < np.abs(plain - exact).max()


def kinds():
  level = jnp.asarray(LEVEL_C, jnp.int32)
  yield (
    lambda x, **call: running(x, causal=True, **call),
    lambda: empty_mean(B, C, jnp.float64),
  )
  yield (
    lambda x, state=None, **call: windows(x, level, LEVELS, history=state, **call),
    lambda: History.empty((B, C, 2**LEVELS - 1), jnp.float64),
  )


@pytest.mark.parametrize('chunk', [1, 4, L])
@pytest.mark.parametrize('kind', [0, 1], ids=['running', 'window'])
def test_ragged_chunks_with_segments_give_the_whole(kind, chunk):
  mean, empty = list(kinds())[kind]
  whole, _ = mean(inputs(), **RAGGED)
  step = jax.jit(
    lambda x, mask, segments, state: mean(x, mask_BL=mask, segments_BL=segments, state=state)
  )
  state, pieces = empty(), []
  for start in range(0, L, chunk):
    part = [a[:, start : start + chunk] for a in (inputs(), *RAGGED.values())]
    before = state
    y, state = step(*part, state)
    if not MASK[1, start]:  # nothing but padding in the second row
      assert all(np.array_equal(old[1], new[1]) for old, new in zip(before, state, strict=True))
    pieces.append(np.asarray(y))
  pieces = np.concatenate(pieces, 1)
  np.testing.assert_allclose(pieces[MASK], np.asarray(whole)[MASK], atol=1e-12)
