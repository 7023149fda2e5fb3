"""CHIAR's dispatch: against the dense masked computation, over capacity, in chunks, on shards."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from sgnjax.errors import UserError
from sgnjax.mixers import MIXERS
from sgnjax.ops.entropy import spectral_entropy
from tests.ops.test_dispatch import looped

WIDTH, HEADS, WINDOW, N = 16, 2, 8, 32
SIZES = {'width': WIDTH, 'heads': HEADS, 'context': N}
CAPACITY = {'dispatch': 'capacity', 'route_window': WINDOW}
KV = pytest.mark.parametrize('kv', ['all', 'routed'])


@pytest.fixture(autouse=True)
def _float64():
  with jax.enable_x64(True):
    yield


def routed(dtype='float64', **options):
  wide = 'float64' if dtype == 'float64' else 'float32'
  kinds = {'dtype': jnp.dtype(dtype), 'param_dtype': jnp.dtype(wide), 'capture': True}
  return MIXERS['chiar'](**SIZES, qkv_bias=True, **{'positions': 'rope'} | options, **kinds)


def inputs(batch, length, seed=0):
  return jnp.asarray(np.random.default_rng(seed).normal(size=(batch, length, WIDTH)))


def init(module):
  """Random parameters of the module's shapes."""
  rng = np.random.default_rng(1)
  shapes = jax.eval_shape(module.init, jax.random.key(0), inputs(1, WINDOW))['params']
  return jax.tree.map(lambda a: jnp.asarray(0.5 * rng.normal(size=a.shape), a.dtype), shapes)


def tau_of(rate, x_BLD):
  """The threshold that sends a share of the tokens to attention."""
  return float(np.quantile(spectral_entropy(x_BLD), 1 - rate)) + (1.0 if rate == 0 else 0.0)


def apply(module, params, x_BLD, **call):
  return jax.jit(lambda p, x: module.apply({'params': p}, x, **call))(params, x_BLD)


def of_operator(name, module, params, x_BLD, mask_BL):
  """One operator's output on every token, from the registered mixer of that operator alone."""
  names = ('w_spectral', 'dct_norm') if name == 'dct' else (name, f'{name}_norm')
  fields = ('form', 'positions', 'qkv_bias', 'dtype', 'param_dtype')
  one = MIXERS[f'chiar_{name}'](**SIZES, **{f: getattr(module, f) for f in fields})
  return one.apply({'params': {n: params[n] for n in names}}, x_BLD, mask_BL=mask_BL).y_BLD


def routes(module, params, x_BLD):
  """Where the router sends each token, capacity apart."""
  if module.router == 'hard':
    xh_BLD = jnp.concatenate([x_BLD, spectral_entropy(x_BLD)[..., None]], -1)
    gates_BLK = jax.nn.softmax(
      xh_BLD @ params['router']['kernel'] + params['router']['bias'][None, None]
    )
    return gates_BLK[..., 1] > gates_BLK[..., 0], gates_BLK
  return spectral_entropy(x_BLD) > module.tau, None


def dense_masked(module, params, x_BLD, mask_BL, slots):
  """Both operators on all tokens; hidden keys and turned-away queries are masked."""
  routed_BL, gates_BLK = routes(module, params, x_BLD)
  routed_BL = np.asarray(routed_BL & mask_BL)
  accepted_BL = looped(routed_BL, np.asarray(mask_BL), np.zeros(x_BLD.shape[:2]), WINDOW, slots)

  def output(params, x_BLD):
    keys_BL = mask_BL if module.kv == 'all' else jnp.asarray(accepted_BL)
    attention_BLD = of_operator('attention', module, params, x_BLD, keys_BL)
    dct_BLD = of_operator('dct', module, params, x_BLD, mask_BL)
    if gates_BLK is not None:  # straight-through: the value of one, the gradient of both
      p_BLK = routes(module, params, x_BLD)[1]
      change_BLK = p_BLK - jax.lax.stop_gradient(p_BLK)
      hard_BLD = attention_BLD * (1 + change_BLK[..., 1:]) + dct_BLD * change_BLK[..., :1]
      return jnp.where(jnp.asarray(accepted_BL)[..., None], hard_BLD, dct_BLD)
    return jnp.where(jnp.asarray(accepted_BL)[..., None], attention_BLD, dct_BLD)

  return output, accepted_BL, routed_BL


@KV
@pytest.mark.parametrize('rate', [0.0, 0.1, 0.5, 0.9, 1.0])
def test_outputs_and_gradients_equal_the_dense_masked_ones_at_every_rate(rate, kv):
  x_BLD = inputs(2, 28)
  module = routed(tau=tau_of(rate, x_BLD), capacity=0.75, kv=kv, **CAPACITY)
  params = init(module)
  mask_BL = jnp.arange(28)[None, :] < jnp.asarray([[28], [19]])
  reference, accepted_BL, routed_BL = dense_masked(module, params, x_BLD, mask_BL, 6)
  weights_BLD = inputs(2, 28, seed=3)

  @functools.partial(jax.value_and_grad, argnums=(0, 1), has_aux=True)
  def ours(params, x_BLD):
    mixed = jax.checkpoint(functools.partial(module.apply, mask_BL=mask_BL))(
      {'params': params}, x_BLD
    )
    return jnp.sum(mixed.y_BLD * weights_BLD), mixed

  @functools.partial(jax.value_and_grad, argnums=(0, 1), has_aux=True)
  def theirs(params, x_BLD):
    y_BLD = reference(params, x_BLD)
    return jnp.sum(y_BLD * weights_BLD), y_BLD

  (_, (y_BLD, aux, _)), gradient = jax.jit(ours)(params, x_BLD)
  (_, expected_BLD), expected = jax.jit(theirs)(params, x_BLD)
  np.testing.assert_array_equal(aux.debug['route'], accepted_BL)
  np.testing.assert_allclose(y_BLD, expected_BLD, atol=1e-10)
  for a, b in zip(jax.tree.leaves(gradient), jax.tree.leaves(expected), strict=True):
    np.testing.assert_allclose(a, b, atol=1e-10)
  over_BL = routed_BL & ~accepted_BL
  assert np.any(over_BL) == (rate >= 0.9)
  dct_BLD = np.asarray(of_operator('dct', module, params, x_BLD, mask_BL))
  np.testing.assert_allclose(np.asarray(y_BLD)[over_BL], dct_BLD[over_BL], atol=1e-12)
  share = over_BL.sum() / max(routed_BL.sum(), 1)
  assert float(aux.metrics['overflow_share']) == pytest.approx(share)
  assert float(aux.metrics['attention_share']) == pytest.approx(accepted_BL.sum() / 47)


@KV
@pytest.mark.parametrize(
  'options',
  [
    {'positions': 'learned'},
    {'positions': 'alibi'},
    {'positions': 'none', 'form': 'bidirectional'},
    {'router': 'hard'},
  ],
)
def test_positions_forms_and_learned_routes(options, kv):
  x_BLD, mask_BL = inputs(2, 28), jnp.ones((2, 28), bool)
  module = routed(tau=tau_of(0.6, x_BLD), capacity=0.5, kv=kv, **CAPACITY, **options)
  params = init(module)
  reference, accepted_BL, _ = dense_masked(module, params, x_BLD, mask_BL, 4)
  assert 0 < accepted_BL.mean() <= 0.5

  def square(of):
    return jax.jit(jax.value_and_grad(lambda p: jnp.sum(of(p) ** 2)))

  total, gradient = square(lambda p: module.apply({'params': p}, x_BLD).y_BLD)(params)
  expected_total, expected = square(lambda p: reference(p, x_BLD))(params)
  assert float(total) == pytest.approx(float(expected_total), rel=1e-12)
  for a, b in zip(jax.tree.leaves(gradient), jax.tree.leaves(expected), strict=True):
    np.testing.assert_allclose(a, b, atol=1e-10)
  assert module.router != 'hard' or np.max(np.abs(gradient['router']['kernel'])) > 0


def in_chunks(module, params, x_BLD, sizes, max_len=N, segments_BL=None):
  cache, pieces, start = module.init_cache(x_BLD.shape[0], max_len, x_BLD.dtype), [], 0

  @jax.jit
  def step(x_BLD, segments_BL, cache):
    mixed = module.apply({'params': params}, x_BLD, segments_BL=segments_BL, cache=cache)
    return mixed.y_BLD, mixed.aux.debug['route'], mixed.cache

  for size in sizes:
    here = np.s_[:, start : start + size]
    given = None if segments_BL is None else segments_BL[here]
    *out, cache = step(x_BLD[here], given, cache)
    pieces.append(out)
    start += size
  return *(np.concatenate(p, axis=1) for p in zip(*pieces, strict=True)), cache


@KV
@pytest.mark.parametrize('options', [{'positions': 'alibi'}, {'router': 'hard'}])
def test_chunks_take_the_routes_of_the_whole(options, kv):
  x_BLD = inputs(2, 29)
  module = routed(tau=tau_of(0.7, x_BLD), capacity=0.375, kv=kv, **CAPACITY, **options)
  params = init(module)
  whole = apply(module, params, x_BLD)
  y_BLD, route_BL, cache = in_chunks(module, params, x_BLD, (9, 1, 9, 1, 9), max_len=29)
  np.testing.assert_array_equal(route_BL, whole.aux.debug['route'])
  np.testing.assert_allclose(y_BLD, whole.y_BLD, atol=1e-9)
  np.testing.assert_array_equal(cache.stream.tokens_B, [29, 29])
  stored = [29, 29] if kv == 'all' else route_BL.sum(axis=1)
  np.testing.assert_array_equal(cache.attention.used_B, stored)


@KV
@pytest.mark.parametrize('sizes', [(29,), (10, 1, 8, 1, 1, 8), (1,) * 29])
def test_segments_in_a_stream_are_each_alone(sizes, kv):
  """Also where the cache has slots for one of them alone."""
  x_BLD, lengths = inputs(1, 29), (4, 12, 1, 12)
  module = routed(tau=tau_of(0.7, x_BLD), capacity=0.375, kv=kv, **CAPACITY)
  params = init(module)
  segments_BL = jnp.asarray([np.repeat(np.arange(4), lengths)], jnp.int32)
  if sizes == (29,):
    y_BLD = apply(module, params, x_BLD, segments_BL=segments_BL).y_BLD
  else:
    y_BLD, _, _ = in_chunks(module, params, x_BLD, sizes, 29, segments_BL)
    small = module.init_cache(1, 12, x_BLD.dtype).attention
    assert small.place_BS.shape[1] == (12 if kv == 'all' else 6)
    y12_BLD, _, _ = in_chunks(module, params, x_BLD, sizes, 12, segments_BL)
    np.testing.assert_allclose(y12_BLD, y_BLD, atol=1e-12)
  # Rotary scores depend on distances alone, so that positions need not start again.
  pieces = np.split(x_BLD, np.cumsum(lengths)[:-1], axis=1)
  alone = [apply(module, params, jnp.asarray(a)).y_BLD for a in pieces]
  np.testing.assert_allclose(y_BLD, np.concatenate(alone, axis=1), atol=1e-10)


@KV
def test_memory_of_the_cache_follows_the_docstring(kv):
  for capacity, per_window in ((0.375, 3), (None, 5)):
    options = CAPACITY | {'route_window': WINDOW if capacity else 5}
    module = routed(capacity=capacity, kv=kv, **options)
    found = sum(a.nbytes for a in jax.tree.leaves(module.init_cache(3, 100, jnp.bfloat16)))
    slots = 100 if kv == 'all' else -(-100 // module.route_window) * per_window
    assert found == 3 * (slots * (2 * WIDTH * 2 + 4) + 4 + 16)


@KV
def test_shards_of_batch_and_length_give_the_whole(kv):
  assert jax.device_count() == 8
  x_BLD = inputs(4, 4 * WINDOW)
  module = routed(tau=tau_of(0.6, x_BLD), capacity=0.5, kv=kv, **CAPACITY)
  params = init(module)

  def loss(params, x_BLD):
    mixed = module.apply({'params': params}, x_BLD)
    return jnp.sum(mixed.y_BLD**2), (mixed.y_BLD, mixed.aux.debug['route'])

  function = jax.value_and_grad(loss, has_aux=True)
  mesh = jax.make_mesh((2, 4), ('data', 'sequence'), axis_types=(jax.sharding.AxisType.Auto,) * 2)
  rows = NamedSharding(mesh, PartitionSpec('data', 'sequence'))
  whole = jax.jit(function)(params, x_BLD)
  sharded = jax.jit(function, in_shardings=(NamedSharding(mesh, PartitionSpec()), rows))(
    params, jax.device_put(x_BLD, rows)
  )
  np.testing.assert_array_equal(sharded[0][1][1], whole[0][1][1])
  for a, b in zip(jax.tree.leaves(sharded), jax.tree.leaves(whole), strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)


@KV
def test_bfloat16_stays_and_is_near(kv):
  x_BLD = inputs(2, 28)
  options = {'tau': tau_of(0.6, x_BLD), 'capacity': 0.5, 'kv': kv, **CAPACITY}
  params = init(routed(**options))
  narrow = routed('bfloat16', **options)
  x16_BLD = x_BLD.astype(jnp.bfloat16)
  y16_BLD = apply(narrow, jax.tree.map(lambda a: a.astype(jnp.float32), params), x16_BLD).y_BLD
  assert y16_BLD.dtype == jnp.bfloat16
  y_BLD = apply(routed(**options), params, x16_BLD.astype(jnp.float64)).y_BLD
  assert np.median(np.abs(y16_BLD.astype(jnp.float64) - y_BLD)) < 0.02 * np.std(y_BLD)


@pytest.mark.parametrize(
  ('options', 'said'),
  [
    ({'dispatch': 'capacty'}, "did you mean 'capacity'"),
    ({'kv': 'router'}, "did you mean 'routed'"),
    ({'route_window': 0}, 'model.chiar.route_window=0'),
    ({'dispatch': 'capacity', 'capacity': 1.5}, 'model.chiar.capacity=1.5'),
    ({'dispatch': 'capacity', 'capacity': 0.0}, 'model.chiar.capacity=0.0'),
    ({'capacity': 0.5}, "limits nothing under model.chiar.dispatch='dense'"),
    ({'dispatch': 'capacity', 'router': 'soft'}, "router 'soft' mixes all operators"),
    ({'kv': 'routed', 'router': 'soft'}, "router 'soft' mixes all operators"),
    ({'dispatch': 'capacity', 'rbf': True, 'tau': 0.6}, 'two operators attend'),
  ],
)
def test_contradictions_name_the_key(options, said):
  with pytest.raises(UserError, match=said):
    MIXERS['chiar'](**SIZES, **options).check()
