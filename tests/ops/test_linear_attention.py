import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
import pytest

from sgnjax.ops.linear_attention import (
  BLOCK,
  elu_features,
  empty_state,
  linear_attention,
  orthogonal_directions,
  positive_features,
)

pytestmark = pytest.mark.usefixtures('float64')

B, H, F, E = 2, 2, 5, 3
LONG = 2 * BLOCK + 7
attend = jax.jit(linear_attention, static_argnames='causal')


def tokens(length, *, seed=0, dtype=jnp.float64, spread=3.0):
  rng = np.random.default_rng(seed)
  q, k = (np.exp(rng.normal(size=(B, length, H, F))) for _ in 'qk')
  v = rng.normal(size=(B, length, H, E))
  scale = spread * rng.normal(size=(B, length, H))
  return [jnp.asarray(a, dtype) for a in (q, k, v, scale)]


def rows(length):
  """Real tokens, fewer in the second row, and three segments in a row."""
  mask = np.arange(length)[None, :] < np.array([[length], [max(1, 2 * length // 3)]])
  ends = np.array([[length // 4, length // 2], [length // 3, length // 3 + 1]])
  segments = np.sum(np.arange(length)[None, :, None] >= ends[:, None, :], -1)
  return jnp.asarray(mask), jnp.asarray(segments + 4, jnp.int32)


def oracle(q, k, v, scale, causal, mask=None, segments=None):
  """The weights in full, in float64."""
  q, k, v, scale = (np.asarray(a, np.float64) for a in (q, k, v, scale))
  length = q.shape[1]
  seen = np.ones((B, length, length), bool)
  if causal:
    seen = np.tril(seen)
  if mask is not None:
    seen = seen & np.asarray(mask)[:, :, None] & np.asarray(mask)[:, None, :]
  if segments is not None:
    seen = seen & (np.asarray(segments)[:, :, None] == np.asarray(segments)[:, None, :])
  log_weight = np.log(np.einsum('blhf,bshf->bhls', q, k)) + scale.transpose(0, 2, 1)[:, :, None]
  log_weight = np.where(seen[:, None], log_weight, -np.inf)
  top = log_weight.max(-1, keepdims=True)
  weight = np.exp(log_weight - np.where(np.isfinite(top), top, 0))
  total = weight.sum(-1, keepdims=True)
  return np.einsum('bhls,bshe->blhe', weight / np.where(total > 0, total, 1), v)


@pytest.mark.parametrize('ragged', [False, True])
@pytest.mark.parametrize('causal', [False, True])
@pytest.mark.parametrize('length', [1, LONG])
def test_blocks_and_sums_agree_with_the_weights_in_full(length, causal, ragged):
  q, k, v, scale = tokens(length)
  mask, segments = rows(length) if ragged else (None, None)
  y, after = attend(q, k, v, causal=causal, scale_BLH=scale, mask_BL=mask, segments_BL=segments)
  assert after is None
  np.testing.assert_allclose(y, oracle(q, k, v, scale, causal, mask, segments), atol=1e-12)
  if ragged:
    np.testing.assert_array_equal(np.asarray(y)[~np.asarray(mask)], 0)


@pytest.mark.parametrize('chunk', [1, BLOCK + 5])
def test_chunks_with_segments_give_the_whole(chunk):
  q, k, v, scale = tokens(LONG if chunk > 1 else 20)
  length = q.shape[1]
  _, segments = rows(length)
  whole, _ = attend(q, k, v, causal=True, scale_BLH=scale, segments_BL=segments)
  run = jax.jit(
    lambda *a: attend(*a[:3], causal=True, scale_BLH=a[3], segments_BL=a[4], state=a[5])
  )
  state, pieces = empty_state(B, H, F, E, jnp.float64), []
  for start in range(0, length, chunk):
    part = [a[:, start : start + chunk] for a in (q, k, v, scale, segments)]
    y, state = run(*part, state)
    pieces.append(y)
  np.testing.assert_allclose(jnp.concatenate(pieces, 1), whole, atol=1e-9)
  np.testing.assert_array_equal(state.length_B, length)


def test_padding_leaves_the_state_as_it_is():
  q, k, v, scale = tokens(9)
  mask = jnp.asarray(np.arange(9)[None, :] < np.array([[4], [0]]))
  _, before = attend(
    q, k, v, causal=True, scale_BLH=scale, state=empty_state(B, H, F, E, jnp.float64)
  )
  segments = jnp.zeros((B, 9), jnp.int32).at[:, 6:].set(3)  # at padding: no segment starts there
  _, after = attend(
    q, k, v, causal=True, scale_BLH=scale, mask_BL=mask, segments_BL=segments, state=before
  )
  for old, new in zip(before, after, strict=True):
    np.testing.assert_array_equal(new[1], old[1])
  assert np.all(after.sums_BHFX[0] != before.sums_BHFX[0])
  np.testing.assert_array_equal(after.segment_B, 0)
  np.testing.assert_array_equal(after.length_B, [13, 9])
  _, alone = attend(
    *(a[:, :4] for a in (q, k, v)), causal=True, scale_BLH=scale[:, :4], state=before
  )
  np.testing.assert_allclose(after.sums_BHFX[0], alone.sums_BHFX[0], rtol=1e-12)


def test_the_future_has_exactly_no_influence():
  now, other = tokens(LONG, dtype=jnp.float32), tokens(LONG, seed=1, dtype=jnp.float32, spread=60)
  run = jax.jit(lambda q, k, v, s: attend(q, k, v, causal=True, scale_BLH=s)[0])
  before = np.asarray(run(*now))
  for t in (1, BLOCK - 1, BLOCK, LONG - 1):
    changed = [
      a.at[:, t:].set(10 * b[:, t:]).at[1].set(2.0) for a, b in zip(now, other, strict=True)
    ]
    after = np.asarray(run(*changed))
    np.testing.assert_array_equal(before[0, :t], after[0, :t])
    assert np.any(before[0, t:] != after[0, t:])


@pytest.mark.parametrize('form', ['causal', 'segments'])
def test_scales_of_any_size_neither_overflow_nor_underflow(form):
  q, k, v, scale = tokens(LONG, dtype=jnp.float32, spread=200.0)
  mask, segments = rows(LONG) if form == 'segments' else (None, None)

  def total(q, k, v, scale):
    y, _ = attend(
      q, k, v, causal=form == 'causal', scale_BLH=scale, mask_BL=mask, segments_BL=segments
    )
    return jnp.sum(y**2), y

  (_, y), grads = jax.jit(jax.value_and_grad(total, (0, 1, 2, 3), has_aux=True))(q, k, v, scale)
  truth = oracle(q, k, v, scale, form == 'causal', mask, segments)
  np.testing.assert_allclose(y, truth, atol=1e-4)
  assert all(np.isfinite(g).all() for g in grads)


def test_gradients_are_those_of_the_weights_in_full():
  q, k, v, scale = tokens(BLOCK + 3)
  pull = jnp.asarray(np.random.default_rng(3).normal(size=v.shape))

  def full(q, k, v, scale):
    weight = jnp.einsum('blhf,bshf->bhls', q, k) * jnp.exp(scale.transpose(0, 2, 1))[:, :, None]
    weight = jnp.tril(weight)
    y = jnp.einsum('bhls,bshe->blhe', weight / jnp.sum(weight, -1, keepdims=True), v)
    return jnp.sum(y * pull)

  def ours(q, k, v, scale):
    return jnp.sum(attend(q, k, v, causal=True, scale_BLH=scale)[0] * pull)

  pairs = zip(
    *(jax.jit(jax.grad(f, (0, 1, 2, 3)))(q, k, v, scale) for f in (full, ours)), strict=True
  )
  for expected, got in pairs:
    np.testing.assert_allclose(got, expected, atol=1e-11)


def arrays(jaxpr):
  """Sizes of all arrays that a program makes, those of scanned bodies too."""
  for eqn in jaxpr.eqns:
    yield from (v.aval.size for v in eqn.outvars)
    for param in eqn.params.values():
      if isinstance(inner := getattr(param, 'jaxpr', param), jax.extend.core.Jaxpr):
        yield from arrays(inner)


def test_no_state_a_token_is_ever_made():
  length, width = 16 * BLOCK, 64
  x = jax.ShapeDtypeStruct((1, length, 1, width), jnp.float32)

  def loss(q, k, v):
    return jnp.sum(attend(q, k, v, causal=True)[0])

  sizes = list(arrays(jax.make_jaxpr(jax.grad(loss, (0, 1, 2)))(x, x, x).jaxpr))
  assert len(sizes) > 100
  assert max(sizes) <= 2 * length * width < length * width**2 / 10


def test_elu_features_stay_positive():
  x = jnp.asarray([-80.0, -20.0, -1.0, 0.0, 2.0], jnp.float32)
  np.testing.assert_allclose(elu_features(x), [*np.exp([-80, -20, -1]), 1, 3], rtol=1e-6)
  np.testing.assert_allclose(jax.vmap(jax.grad(elu_features))(x)[2:], [np.exp(-1), 1, 1], rtol=1e-6)


def test_directions_are_orthogonal_in_blocks_and_as_long_as_gaussian_ones():
  w = orthogonal_directions(400, 12, 8)
  product = np.einsum('hfe,hge->hfg', w, w)
  inside = np.kron(np.eye(2), np.ones((8, 8)))[:12, :12] > 0
  off = inside & ~np.eye(12, dtype=bool)
  np.testing.assert_allclose(product[:, off], 0, atol=1e-12)
  assert np.all(product[:, ~inside] != 0)
  # N(0, I): mean 0, covariance 1, squared norms chi^2 of 8 degrees (variance 16).
  square = np.diagonal(product, axis1=1, axis2=2)
  assert square.mean() == pytest.approx(8, abs=0.25)
  assert square.var() == pytest.approx(16, abs=2)
  assert np.abs(w.mean((0, 1))).max() < 0.06
  np.testing.assert_array_equal(w, orthogonal_directions(400, 12, 8))


def test_the_kernel_is_unbiased_and_orthogonal_directions_err_against_each_other():
  draws, width = 20_000, 8
  x, y = 0.25 * np.random.default_rng(0).normal(size=(2, width))
  w_HFE = orthogonal_directions(draws, width, width)

  def features(a):
    phi_11HF, scale_11H = positive_features(
      jnp.broadcast_to(a, (1, 1, draws, width)), jnp.asarray(w_HFE)
    )
    return np.asarray(phi_11HF * jnp.exp(scale_11H)[..., None])[0, 0]

  product_HF = features(x) * features(y) / np.exp(x @ y)
  mean_H = product_HF.mean(1)
  assert abs(mean_H.mean() - 1) < 4 * mean_H.std() / np.sqrt(draws)
  # Independent directions would have pairs of mean product 1.
  pairs_H = (product_HF.sum(1) ** 2 - (product_HF**2).sum(1)) / (width * (width - 1))
  assert pairs_H.mean() < 1 - 4 * pairs_H.std() / np.sqrt(draws)
