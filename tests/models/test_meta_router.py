"""The MetaRouter around a layer: hard gating, the skip, segments."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sgnjax.errors import UserError
from sgnjax.mixers import MIXERS
from sgnjax.mixers.meta_router import MetaRouter
from sgnjax.models.block import Block

pytestmark = pytest.mark.usefixtures('float64')

WIDTH = 16
SIZES = {'width': WIDTH, 'heads': 2, 'context': 24}


def inputs(batch, length):
  return jnp.asarray(np.random.default_rng(0).normal(size=(batch, length, WIDTH)))


def init(module, x_BLD, **call):
  """Random parameters of the module's shapes."""
  rng = np.random.default_rng(1)
  make = functools.partial(module.init, **call)
  shapes = jax.eval_shape(make, jax.random.key(0), x_BLD)['params']
  return jax.tree.map(lambda a: jnp.asarray(0.5 * rng.normal(size=a.shape), a.dtype), shapes)


def run(module, params, x_BLD, **call):
  return jax.jit(lambda p, x: module.apply({'params': p}, x, **call))(params, x_BLD)


def meta_block(form, **options):
  kinds = {'dtype': jnp.dtype('float64'), 'param_dtype': jnp.dtype('float64')}
  return Block(
    lambda **n: MIXERS['chiar_dct'](**SIZES, form=form, **options, **kinds, **n),
    'chiar',
    4 * WIDTH,
    True,
  )


CALL = dict.fromkeys(('positions_BL', 'mask_BL', 'segments_BL', 'cache'))


@pytest.mark.parametrize('form', ['causal', 'published', 'bidirectional'])
def test_hard_gating_takes_or_skips_the_layer(form):
  x_BLD = inputs(2, 13)
  hard, plain = meta_block(form, meta_hard=True), meta_block(form)
  params = init(hard, x_BLD, **CALL, train=False)
  mask_BL = jnp.arange(13)[None, :] < jnp.asarray([[13], [9]])
  call = CALL | {'mask_BL': mask_BL}
  y_BLD, aux, _ = run(hard, params, x_BLD, train=False, **call)
  layer = Block(plain.make, 'chiar', 4 * WIDTH)
  inner = {k: v for k, v in params.items() if k != 'meta_router'}
  layer_BLD = run(layer, inner, x_BLD, train=False, **call).y_BLD
  router = MetaRouter(form, jnp.dtype('float64'), jnp.dtype('float64'), 0.02)
  gate_BL1, _ = run(router, params['meta_router'], x_BLD, mask_BL=mask_BL)
  taken_BL1 = np.broadcast_to(np.asarray(gate_BL1) > 0.5, (2, 13, 1))
  expected = np.where(taken_BL1, layer_BLD, x_BLD) * np.asarray(mask_BL)[..., None]
  np.testing.assert_allclose(y_BLD, expected, atol=1e-12)
  share = np.mean(taken_BL1[np.asarray(mask_BL)])
  assert float(aux.metrics['meta_taken_share']) == pytest.approx(share)
  assert form != 'causal' or 0 < share < 1
  trained = [run(b, params, x_BLD, train=True, **call).y_BLD for b in (hard, plain)]
  np.testing.assert_array_equal(*trained)


def test_a_layer_that_no_token_takes_is_not_computed():
  """Both branches are in the program: one with the FFN's products, one without any."""
  x_BLD, block = inputs(2, 5), meta_block('causal', meta_hard=True)
  params = init(block, x_BLD, **CALL, train=False)
  params['meta_router']['gate'] = {'kernel': jnp.zeros((WIDTH, 1)), 'bias': jnp.asarray([-1.0])}

  def apply(params):
    return block.apply({'params': params}, x_BLD, train=False, **CALL).y_BLD

  np.testing.assert_array_equal(jax.jit(apply)(params), x_BLD)
  conditions = [e for e in jax.make_jaxpr(apply)(params).eqns if e.primitive.name == 'cond']
  assert len(conditions) == 1
  products = [str(branch).count('dot_general') for branch in conditions[0].params['branches']]
  assert min(products) == 0
  assert max(products) >= 2


def test_the_meta_router_averages_within_segments_or_refuses():
  x_BLD = inputs(1, 10)
  segments_BL = jnp.asarray([[0] * 6 + [1] * 4])
  kinds = jnp.dtype('float64'), jnp.dtype('float64'), 0.02
  for form in ('causal', 'bidirectional'):
    router = MetaRouter(form, *kinds)
    params = init(router, x_BLD)
    whole, _ = run(router, params, x_BLD, segments_BL=segments_BL)
    alone = [run(router, params, a)[0] for a in (x_BLD[:, :6], x_BLD[:, 6:])]
    alone = [np.broadcast_to(a, (1, n, 1)) for a, n in zip(alone, (6, 4), strict=True)]
    np.testing.assert_allclose(whole, np.concatenate(alone, 1), atol=1e-12)
  with pytest.raises(UserError, match='does not honour segments'):
    MetaRouter('published', *kinds).init(jax.random.key(0), x_BLD, segments_BL=segments_BL)


@pytest.mark.parametrize('meta_hard', [False, True])
def test_chunks_with_segments_and_padding_equal_the_whole(meta_hard):
  block, x_BLD = meta_block('causal', meta_hard=meta_hard), inputs(2, 13)
  params = init(block, x_BLD, **CALL, train=False)
  segments_BL = jnp.asarray([[0] * 4 + [1] * 9, [3] * 13], jnp.int32)
  mask_BL = jnp.arange(13)[None, :] < jnp.asarray([[13], [6]])
  call = {'segments_BL': segments_BL, 'mask_BL': mask_BL}
  whole_BLD = run(block, params, x_BLD, train=False, **(CALL | call)).y_BLD
  cache, pieces = block.init_cache(2, 13, jnp.dtype('float64')), []
  for start, end in ((0, 2), (2, 9), (9, 10), (10, 13)):
    given = {name: a[:, start:end] for name, a in call.items()} | {'cache': cache}
    y_BLD, _, cache = run(block, params, x_BLD[:, start:end], train=False, **(CALL | given))
    pieces.append(y_BLD)
  np.testing.assert_allclose(np.concatenate(pieces, axis=1), whole_BLD, atol=1e-12)
  _, state = cache
  np.testing.assert_array_equal(state.count_B, [9, 6])
  np.testing.assert_allclose(state.mean_BD[0], jnp.mean(x_BLD[0, 4:], axis=0), atol=1e-12)


def test_the_state_is_the_size_that_it_says_and_published_has_none():
  cache = meta_block('causal').init_cache(3, 100, jnp.bfloat16)
  assert sum(a.nbytes for a in jax.tree.leaves(cache)) == 3 * (4 * WIDTH + 8)
  with pytest.raises(UserError, match='published MetaRouter keeps no cache'):
    meta_block('published').init_cache(1, 8, jnp.dtype('float64'))
