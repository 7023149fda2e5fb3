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

pytestmark = pytest.mark.usefixtures('float64')

WIDTH, HEADS, WINDOW, N, TAU = 16, 2, 8, 32, 0.4
SIZES = {'width': WIDTH, 'heads': HEADS, 'context': N}
CAPACITY = {'dispatch': 'capacity', 'route_window': WINDOW}
KV = pytest.mark.parametrize('kv', ['all', 'routed'])


def routed(**options):
  kinds = {'dtype': jnp.dtype('float64'), 'param_dtype': jnp.dtype('float64'), 'capture': True}
  return MIXERS['chiar'](
    **SIZES, qkv_bias=True, **{'positions': 'rope', 'tau': TAU} | options, **kinds
  )


def inputs(batch, length, rate=0.6, seed=0):
  """Tokens of which a share has a flat spectrum, and so a high entropy; the others are constant."""
  rng = np.random.default_rng(seed)
  noise_BLD = rng.normal(size=(batch, length, WIDTH))
  flat_BL1 = rng.random((batch, length, 1)) < rate
  return jnp.asarray(np.where(flat_BL1, noise_BLD, 3.0 * noise_BLD[..., :1] + 0.1 * noise_BLD))


def init(module):
  """Random parameters of the module's shapes."""
  rng = np.random.default_rng(1)
  shapes = jax.eval_shape(module.init, jax.random.key(0), inputs(1, WINDOW))['params']
  return jax.tree.map(lambda a: jnp.asarray(0.5 * rng.normal(size=a.shape), a.dtype), shapes)


@functools.cache
def compiled(module):
  """The module's call under jit: parameters, inputs and the rest of the call."""
  return jax.jit(lambda params, x_BLD, call: module.apply({'params': params}, x_BLD, **call))


def apply(module, params, x_BLD, **call):
  return compiled(module)(params, x_BLD, call)


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


def accept(module, params, x_BLD, mask_BL, slots):
  """Which tokens are routed, and which of them have slots, by a loop."""
  routed_BL = np.asarray(routes(module, params, x_BLD)[0] & mask_BL)
  nowhere_BL = np.zeros(routed_BL.shape, np.int32)
  return routed_BL, looped(routed_BL, np.asarray(mask_BL), nowhere_BL, WINDOW, slots)


def dense_masked(module, params, x_BLD, mask_BL, accepted_BL):
  """Both operators on all tokens; hidden keys and turned-away queries are masked."""
  keys_BL = mask_BL if module.kv == 'all' else accepted_BL
  attention_BLD = of_operator('attention', module, params, x_BLD, keys_BL)
  dct_BLD = of_operator('dct', module, params, x_BLD, mask_BL)
  _, p_BLK = routes(module, params, x_BLD)
  if p_BLK is not None:  # straight-through: the value of one, the gradient of both
    change_BLK = p_BLK - jax.lax.stop_gradient(p_BLK)
    attention_BLD = attention_BLD * (1 + change_BLK[..., 1:]) + dct_BLD * change_BLK[..., :1]
  return jnp.where(accepted_BL[..., None], attention_BLD, dct_BLD)


@functools.cache
def both(module):
  """Ours (under remat) and the reference: their weighted sum, output and gradients."""

  def ours(params, x_BLD, weights_BLD, mask_BL):
    mixed = jax.checkpoint(lambda p, x: module.apply({'params': p}, x, mask_BL=mask_BL))(
      params, x_BLD
    )
    return jnp.sum(mixed.y_BLD * weights_BLD), mixed

  def theirs(params, x_BLD, weights_BLD, mask_BL, accepted_BL):
    y_BLD = dense_masked(module, params, x_BLD, mask_BL, accepted_BL)
    return jnp.sum(y_BLD * weights_BLD), y_BLD

  return tuple(jax.jit(jax.value_and_grad(f, (0, 1), has_aux=True)) for f in (ours, theirs))


def agree(module, params, x_BLD, mask_BL, slots):
  """Asserts that routes, outputs and gradients are the reference's; the output and the routes."""
  ours, theirs = both(module)
  routed_BL, accepted_BL = accept(module, params, x_BLD, mask_BL, slots)
  weights_BLD = inputs(*x_BLD.shape[:2], seed=3)
  (_, mixed), gradient = ours(params, x_BLD, weights_BLD, mask_BL)
  (_, expected_BLD), expected = theirs(params, x_BLD, weights_BLD, mask_BL, accepted_BL)
  np.testing.assert_array_equal(mixed.aux.debug['route'], accepted_BL)
  np.testing.assert_allclose(mixed.y_BLD, expected_BLD, atol=1e-10)
  for a, b in zip(jax.tree.leaves(gradient), jax.tree.leaves(expected), strict=True):
    np.testing.assert_allclose(a, b, atol=1e-10)
  return mixed, gradient, routed_BL, accepted_BL


@KV
@pytest.mark.parametrize('rate', [0.0, 0.1, 0.5, 0.9, 1.0])
def test_outputs_and_gradients_equal_the_dense_masked_ones_at_every_rate(rate, kv):
  x_BLD = inputs(2, 28, rate)
  module = routed(capacity=0.75, kv=kv, **CAPACITY)
  params = init(module)
  mask_BL = jnp.arange(28)[None, :] < jnp.asarray([[28], [19]])
  (y_BLD, aux, _), _, routed_BL, accepted_BL = agree(module, params, x_BLD, mask_BL, 6)
  assert routed_BL.sum() / 47 == pytest.approx(rate, abs=0.1)
  over_BL = routed_BL & ~accepted_BL
  assert np.any(over_BL) or rate < 0.9
  dct_BLD = np.asarray(of_operator('dct', module, params, x_BLD, mask_BL))
  np.testing.assert_allclose(np.asarray(y_BLD)[over_BL], dct_BLD[over_BL], atol=1e-12)
  share = over_BL.sum() / max(routed_BL.sum(), 1)
  assert float(aux.metrics['overflow_share']) == pytest.approx(share)
  assert float(aux.metrics['attention_share']) == pytest.approx(accepted_BL.sum() / 47)


@pytest.mark.parametrize(
  'options',
  [
    {'positions': 'alibi'},
    {'positions': 'alibi', 'kv': 'routed'},
    {'positions': 'none', 'kv': 'routed', 'form': 'bidirectional'},
    {'router': 'hard', 'kv': 'routed'},
  ],
)
def test_positions_forms_and_learned_routes(options):
  x_BLD, mask_BL = inputs(2, 28), jnp.ones((2, 28), bool)
  module = routed(capacity=0.5, **CAPACITY, **options)
  params = init(module)
  _, gradient, routed_BL, accepted_BL = agree(module, params, x_BLD, mask_BL, 4)
  assert 0 < accepted_BL.sum() < routed_BL.sum()
  assert module.router != 'hard' or np.max(np.abs(gradient[0]['router']['kernel'])) > 0


def in_chunks(module, params, x_BLD, sizes, max_len, segments_BL=None):
  cache, pieces, start = module.init_cache(x_BLD.shape[0], max_len, x_BLD.dtype), [], 0
  for size in sizes:
    here = np.s_[:, start : start + size]
    given = {} if segments_BL is None else {'segments_BL': segments_BL[here]}
    y_BLD, aux, cache = apply(module, params, x_BLD[here], cache=cache, **given)
    pieces.append((y_BLD, aux.debug['route']))
    start += size
  return *(np.concatenate(p, axis=1) for p in zip(*pieces, strict=True)), cache


@pytest.mark.parametrize(('kv', 'positions'), [('all', 'learned'), ('routed', 'alibi')])
def test_chunks_take_the_routes_of_the_whole(kv, positions):
  x_BLD = inputs(2, 29)
  module = routed(capacity=0.375, kv=kv, positions=positions, **CAPACITY)
  params = init(module)
  whole = apply(module, params, x_BLD)
  y_BLD, route_BL, cache = in_chunks(module, params, x_BLD, (9, 1, 9, 1, 9), max_len=29)
  np.testing.assert_array_equal(route_BL, whole.aux.debug['route'])
  np.testing.assert_allclose(y_BLD, whole.y_BLD, atol=1e-9)
  np.testing.assert_array_equal(cache.stream.tokens_B, [29, 29])
  stored = [29, 29] if kv == 'all' else route_BL.sum(axis=1)
  np.testing.assert_array_equal(cache.attention.used_B, stored)


@KV
def test_segments_are_each_alone_also_where_the_cache_has_slots_for_one(kv):
  x_BLD, lengths = inputs(1, 21, 0.8), (10, 1, 10)
  module = routed(capacity=0.375, kv=kv, **CAPACITY)
  params = init(module)
  segments_BL = jnp.asarray([np.repeat(np.arange(3), lengths)], jnp.int32)
  # Rotary scores depend on distances alone, so that positions need not start again.
  pieces = np.split(x_BLD, np.cumsum(lengths)[:-1], axis=1)
  alone = [apply(module, params, jnp.asarray(a)).y_BLD for a in pieces]
  alone_BLD = np.concatenate(alone, axis=1)
  packed_BLD = apply(module, params, x_BLD, segments_BL=segments_BL).y_BLD
  np.testing.assert_allclose(packed_BLD, alone_BLD, atol=1e-10)
  slots = module.init_cache(1, 10, x_BLD.dtype).attention.place_BS.shape[1]
  assert slots == (10 if kv == 'all' else 6)
  for sizes in ((4,) * 5 + (1,), (1,) * 21):
    y_BLD, _, _ = in_chunks(module, params, x_BLD, sizes, 10, segments_BL)
    np.testing.assert_allclose(y_BLD, alone_BLD, atol=1e-10)


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
  module = routed(capacity=0.5, kv=kv, **CAPACITY)
  params = init(module)

  def output(params, x_BLD):
    mixed = module.apply({'params': params}, x_BLD)
    return mixed.y_BLD, mixed.aux.debug['route']

  mesh = jax.make_mesh((2, 4), ('data', 'sequence'), axis_types=(jax.sharding.AxisType.Auto,) * 2)
  rows = NamedSharding(mesh, PartitionSpec('data', 'sequence'))
  whole = jax.jit(output)(params, x_BLD)
  everywhere = jax.device_put(params, NamedSharding(mesh, PartitionSpec()))
  sharded = jax.jit(output, out_shardings=rows)(everywhere, jax.device_put(x_BLD, rows))
  np.testing.assert_array_equal(sharded[1], whole[1])
  np.testing.assert_allclose(sharded[0], whole[0], rtol=1e-10, atol=1e-10)


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
