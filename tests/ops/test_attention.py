import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sgnjax.errors import UserError
from sgnjax.ops import attention as ops
from sgnjax.ops.attention import rope, visible
from sgnjax.ops.biases import alibi, alibi_slopes, whole_bias

pytestmark = pytest.mark.usefixtures('float64')

B, L, S, H, E = 2, 9, 9, 3, 8


def heads_first(a_BSHX):
  return None if a_BSHX is None else jnp.swapaxes(a_BSHX, 1, 2)


def attention(q, k, v, *, log_gate_BSH=None, **options):
  """The library's, with heads behind the keys as the references here have them."""
  gate_BHS = heads_first(log_gate_BSH)
  return ops.attention(q, heads_first(k), heads_first(v), log_gate_BHS=gate_BHS, **options)


def attention_weights(q, k, *, log_gate_BSH=None, **options):
  gate_BHS = heads_first(log_gate_BSH)
  return ops.attention_weights(q, heads_first(k), log_gate_BHS=gate_BHS, **options)


def inputs(*, keys=S, seed=0, dtype=jnp.float64):
  rng = np.random.default_rng(seed)
  q, k, v = (rng.normal(size=(B, n, H, E)) for n in (L, keys, keys))
  log_gate = -np.exp(rng.normal(size=(B, keys, H)))
  return [jnp.asarray(a, dtype) for a in (q, k, v, log_gate)]


@jax.jit
def causal(q, k, v, log_gate):
  seen = visible(q.shape[1], causal=True)
  return attention(q, k, v, scale=0.3, visible_BLS=seen, log_gate_BSH=log_gate)


def numpy_weights(q, k, scale, seen, log_gate=None, bias=None):
  """Softmax in float64, one row at a time."""
  q, k = np.asarray(q, np.float64), np.asarray(k, np.float64)
  weights = np.zeros((q.shape[0], q.shape[2], q.shape[1], k.shape[1]))
  seen = np.broadcast_to(seen, (q.shape[0], q.shape[1], k.shape[1]))
  for b, h, i in np.ndindex(weights.shape[:3]):
    keys = np.flatnonzero(seen[b, i])
    if keys.size == 0:
      continue
    scores = scale * k[b, keys, h] @ q[b, i, h]
    if log_gate is not None:
      scores = scores + np.asarray(log_gate, np.float64)[b, keys, h]
    if bias is not None:
      scores = scores + np.asarray(bias, np.float64)[b, h, i, keys]
    mass = np.exp(scores - scores.max())
    weights[b, h, i, keys] = mass / mass.sum()
  return weights


@pytest.mark.parametrize('gated', [False, True])
@pytest.mark.parametrize('biased', [False, True])
@pytest.mark.parametrize('keys', [L, 14])
def test_agrees_with_numpy(keys, biased, gated):
  q, k, v, log_gate = inputs(keys=keys)
  rng = np.random.default_rng(5)
  seen = rng.random((B, L, keys)) < 0.6
  seen[:, 3] = False
  bias = jnp.asarray(rng.normal(size=(B, H, L, keys))) if biased else None
  log_gate = log_gate if gated else None
  options = {'visible_BLS': jnp.asarray(seen), 'log_gate_BSH': log_gate, 'bias_BHLS': bias}
  truth = numpy_weights(q, k, 0.3, seen, log_gate, bias)
  ours = attention_weights(q, k, scale=0.3, **options)
  np.testing.assert_allclose(ours, truth, atol=1e-14)
  np.testing.assert_array_equal(np.asarray(ours)[~np.broadcast_to(seen[:, None], ours.shape)], 0)
  y = attention(q, k, v, scale=0.3, **options)
  np.testing.assert_allclose(y, np.einsum('bhls,bshe->blhe', truth, v), atol=1e-13)


def test_values_may_have_another_width():
  q, k, v, _ = inputs()
  seen = visible(L, causal=True)
  narrow = attention(q, k, v[..., :3], scale=0.3, visible_BLS=seen)
  np.testing.assert_allclose(narrow, attention(q, k, v, scale=0.3, visible_BLS=seen)[..., :3])


def test_golden_gate_three_ways(golden):
  data = golden('ega1')
  x = jnp.asarray(data['x'], jnp.float64)
  q, k = (
    jnp.einsum('bld,de->ble', x, jnp.asarray(data[w], jnp.float64)).reshape(2, 32, 4, 8)
    for w in ('w_q', 'w_k')
  )
  gate = data['gate'].astype(np.float64)
  options = {'scale': 8**-0.5, 'visible_BLS': visible(32, causal=True)}
  feature = attention_weights(q, k, log_gate_BSH=jnp.log(gate).transpose(0, 2, 1), **options)
  bias = attention_weights(q, k, bias_BHLS=jnp.log(gate)[:, :, None, :], **options)
  plain = np.asarray(attention_weights(q, k, **options))
  gated = plain * gate[:, :, None, :]
  np.testing.assert_allclose(feature, gated / gated.sum(-1, keepdims=True), atol=1e-14)
  np.testing.assert_allclose(feature, bias, atol=1e-14)
  np.testing.assert_allclose(feature[0], data['attn_b0'], atol=2e-7)
  lower = np.tril(np.exp(data['scores_b0'].astype(np.float64)))
  np.testing.assert_allclose(plain[0], lower / lower.sum(-1, keepdims=True), atol=1e-6)


@pytest.mark.parametrize('scale', [8**-0.5, 64**-0.5])
def test_bfloat16_gate_needs_its_low_part(scale):
  q, k, _, log_gate = inputs(dtype=jnp.bfloat16)
  log_gate = inputs()[3] * 4
  options = {'scale': scale, 'visible_BLS': visible(L, causal=True)}
  # Truth from the same rounded queries and keys: only the gate's own rounding is left.
  truth = numpy_weights(
    q, k, log_gate=log_gate, seen=np.tril(np.ones((1, L, L), bool)), scale=scale
  )
  split = attention_weights(q, k, log_gate_BSH=log_gate, **options)
  rounded = (log_gate / scale).astype(jnp.bfloat16).astype(jnp.float64) * scale
  single = attention_weights(
    q.astype(jnp.float64), k.astype(jnp.float64), log_gate_BSH=rounded, **options
  )

  def error(weights):
    real = truth > 1e-6
    return np.abs(np.asarray(weights, np.float64)[real] / truth[real] - 1).max()

  assert split.dtype == jnp.float32
  assert error(single) > 1e-2
  assert error(split) < error(single) / 20


def test_split_survives_jit():
  q, k, _, log_gate = inputs(dtype=jnp.bfloat16)
  log_gate = inputs()[3] * 4
  weigh = lambda q, k, g: attention_weights(  # noqa: E731
    q, k, log_gate_BSH=g, scale=0.3, visible_BLS=visible(L, causal=True)
  )
  np.testing.assert_allclose(
    jax.jit(weigh)(q, k, log_gate), weigh(q, k, log_gate), rtol=1e-4, atol=1e-9
  )


@pytest.mark.parametrize('dtype', [jnp.float32, jnp.bfloat16])
def test_dtype_is_kept(dtype):
  q, k, v, log_gate = inputs(dtype=dtype)
  y = attention(q, k, v, scale=0.3, visible_BLS=visible(L, causal=True), log_gate_BSH=log_gate)
  assert y.dtype == dtype
  truth = numpy_weights(q, k, 0.3, np.tril(np.ones((1, L, L), bool)), log_gate)
  truth = np.einsum('bhls,bshe->blhe', truth, np.asarray(v, np.float64))
  np.testing.assert_allclose(
    np.asarray(y, np.float64), truth, atol=2e-2 if dtype == jnp.bfloat16 else 2e-6
  )


@pytest.mark.parametrize('size', [1.0, 1e3])
def test_rows_that_see_nothing_are_zero_with_finite_gradients(size):
  q, k, v, log_gate = (a * size for a in inputs(dtype=jnp.float32))
  seen = visible(L, causal=True).at[:, [0, 4]].set(False)

  def total(q, k, v, log_gate):
    y = attention(q, k, v, scale=0.3, visible_BLS=seen, log_gate_BSH=log_gate)
    return jnp.sum(y**2), y

  run = jax.jit(jax.value_and_grad(total, (0, 1, 2, 3), has_aux=True))
  (_, y), grads = run(q, k, v, log_gate)
  np.testing.assert_array_equal(y[:, [0, 4]], 0)
  assert (np.asarray(y[:, [1, 5]]) != 0).all()
  assert all(np.isfinite(g).all() for g in grads)
  np.testing.assert_array_equal(grads[0][:, [0, 4]], 0)
  assert (np.asarray(grads[2][:, 1]) != 0).any()


@pytest.mark.parametrize('dtype', [jnp.float64, jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize('t', [0, 4, 8])
def test_the_future_has_exactly_no_influence(dtype, t):
  one, other = inputs(dtype=dtype), inputs(seed=1, dtype=dtype)
  changed = [a.at[:, t + 1 :].set(100 * b[:, t + 1 :]) for a, b in zip(one, other, strict=True)]
  before, after = (np.asarray(causal(*a), np.float64) for a in (one, changed))
  np.testing.assert_array_equal(before[:, : t + 1], after[:, : t + 1])
  assert t == L - 1 or (before[:, t + 1 :] != after[:, t + 1 :]).any()


def test_dropout_keeps_the_mean_and_scales():
  q, k = (jnp.tile(a, (30, 1, 1, 1)) for a in inputs()[:2])
  options = {'scale': 0.3, 'visible_BLS': visible(L, causal=True)}
  plain = np.asarray(attention_weights(q, k, **options))
  # A light generator: the usual one takes seconds to compile.
  rng = jax.random.key(0, impl='rbg')
  dropped = np.asarray(attention_weights(q, k, dropout=(rng, 0.25), **options))
  kept = dropped > 0
  np.testing.assert_allclose(dropped[kept], plain[kept] / 0.75)
  assert kept[plain > 0].mean() == pytest.approx(0.75, abs=0.02)


def test_visible_against_its_definition():
  mask = np.array([[1, 1, 1, 0, 0], [1, 0, 1, 1, 1]], bool)
  segments = np.array([[0, 0, 1, 1, 2], [3, 3, 3, 4, 4]], np.int32)
  for causal in (False, True):
    ours = visible(5, causal=causal, mask_BL=jnp.asarray(mask), segments_BL=jnp.asarray(segments))
    for b, i, j in np.ndindex(2, 5, 5):
      seen = mask[b, i] and mask[b, j] and segments[b, i] == segments[b, j]
      assert bool(ours[b, i, j]) == (seen and (j <= i or not causal))
  assert visible(4, causal=False).shape == (1, 4, 4)


def test_golden_rotation(golden):
  data = golden('chiar_layer')
  x = data['x'].astype(np.float64)
  positions = jnp.arange(32, dtype=jnp.int32)[None, :]
  for name in 'qk':
    flat = x @ data[f'w_{name}'].astype(np.float64) + data[f'b_{name}'].astype(np.float64)
    ours = rope(jnp.asarray(flat.reshape(2, 32, 4, 8)), positions, float(data['rope_base']))
    np.testing.assert_allclose(
      np.asarray(ours).transpose(0, 2, 1, 3), data[f'{name}_rot'], atol=2e-7
    )


@pytest.mark.parametrize('dtype', [jnp.float64, jnp.float32, jnp.bfloat16])
def test_rotation_keeps_norms_dtype_and_relative_products(dtype):
  q, k, _, _ = inputs(dtype=dtype)
  at = jnp.asarray([[0, 1, 2, 3, 4, 0, 1, 2, 3], [9, 8, 7, 6, 5, 4, 3, 2, 1]], jnp.int32)
  tolerance = {jnp.float64: 1e-12, jnp.float32: 1e-5, jnp.bfloat16: 0.1}[dtype]

  def turned(shift):
    rotated = [rope(a, at + shift, 10000.0) for a in (q, k)]
    assert all(a.dtype == dtype for a in rotated)
    return [np.asarray(a, np.float64) for a in rotated]

  here, there = turned(0), turned(100)
  products = [np.einsum('blhe,bshe->bhls', *pair) for pair in (here, there)]
  np.testing.assert_allclose(*products, atol=tolerance)
  norms = [np.linalg.norm(np.asarray(a, np.float64), axis=-1) for a in (here[0], q)]
  np.testing.assert_allclose(*norms, atol=tolerance)


def test_rotation_needs_an_even_width():
  with pytest.raises(UserError, match='even head width, but it is 3'):
    rope(jnp.ones((1, 2, 1, 3)), jnp.zeros((1, 2), jnp.int32), 10000.0)


@pytest.mark.parametrize(
  ('heads', 'expected'),
  [
    (1, [2**-8]),
    (2, [2**-4, 2**-8]),
    (8, [2**-1, 2**-2, 2**-3, 2**-4, 2**-5, 2**-6, 2**-7, 2**-8]),
    (3, [2**-4, 2**-8, 2**-2]),
    (12, [*(2.0**-i for i in range(1, 9)), 2**-0.5, 2**-1.5, 2**-2.5, 2**-3.5]),
  ],
)
def test_alibi_slopes_follow_the_paper(heads, expected):
  np.testing.assert_allclose(alibi_slopes(heads), expected, rtol=1e-15)


@pytest.mark.parametrize('dtype', [jnp.float64, jnp.float32])
def test_alibi_is_minus_slope_times_distance(dtype):
  query = np.array([[3, 4, 5], [0, 900, 1800]], np.int32)
  key = np.arange(6, dtype=np.int32)[None, :]
  bias = whole_bias((alibi(jnp.asarray(query), jnp.asarray(key), H, dtype=dtype),))
  assert bias.dtype == dtype
  distance = np.abs(query[:, None, :, None] - key[:, None, None, :]).astype(np.float64)
  expected = -np.array([2**-4, 2**-8, 2**-2])[None, :, None, None] * distance
  np.testing.assert_array_equal(np.asarray(bias, np.float64), expected)


def test_alibi_in_attention_depends_on_distance_alone_and_favours_the_near():
  q, k, _, _ = inputs()
  options = {'scale': 0.3, 'visible_BLS': visible(L, causal=True)}
  at = jnp.arange(L, dtype=jnp.int32)[None, :]
  here, there = (
    whole_bias((alibi(at + shift, at + shift, H, dtype=jnp.float64),)) for shift in (0, 1000)
  )
  np.testing.assert_array_equal(here, there)
  seen = np.tril(np.ones((1, L, L), bool))
  truth = numpy_weights(q, k, 0.3, seen, bias=np.broadcast_to(here, (B, H, L, S)))
  np.testing.assert_allclose(attention_weights(q, k, bias_BHLS=here, **options), truth, atol=1e-14)
  flat = attention_weights(jnp.zeros_like(q), k, bias_BHLS=here, **options)
  assert np.all(np.diff(np.asarray(flat)[:, :, -1], axis=-1) > 0)
