"""CHIAR's variants: golden RBF, routers, bases, collapse, parameters, refusals."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs import base
from sgnjax.errors import UserError
from sgnjax.mixers import MIXERS
from sgnjax.mixers.rbf import RBF, fourier_features
from sgnjax.models import build, count
from sgnjax.ops.attention import attention_weights, visible
from sgnjax.ops.entropy import spectral_entropy
from sgnjax.train.optim import decays
from tests import weights

pytestmark = pytest.mark.usefixtures('float64')

WIDTH, HEADS, N = 16, 2, 24
SIZES = {'width': WIDTH, 'heads': HEADS, 'context': N}
ATTENTION = 4 * WIDTH**2 + WIDTH + 2 * WIDTH
RBF_SIZE = 2 * 6 * WIDTH + WIDTH + 8 * WIDTH**2 + 5 * WIDTH + 2 * WIDTH


def inputs(batch, length, seed=0):
  x_BLD = np.random.default_rng(seed).normal(size=(batch, length, WIDTH))
  return jnp.asarray(np.where(np.arange(length)[:, None] % 3 == 0, np.cumsum(x_BLD, -1), x_BLD))


def init(module, x_BLD):
  """Random parameters of the module's shapes."""
  rng = np.random.default_rng(1)

  def leaf(path, a):
    around = {'scale': 1.0, 'w_spectral': 1.0}.get(path[-1].key, 0.0)
    return jnp.asarray(around + 0.5 * rng.normal(size=a.shape), a.dtype)

  shapes = jax.eval_shape(module.init, jax.random.key(0), x_BLD)['params']
  return jax.tree_util.tree_map_with_path(leaf, shapes)


def run(module, params, x_BLD, **call):
  return jax.jit(lambda p, x: module.apply({'params': p}, x, **call))(params, x_BLD)


def routed(**options):
  kinds = {'dtype': jnp.dtype('float64'), 'param_dtype': jnp.dtype('float64'), 'capture': True}
  return MIXERS['chiar'](**SIZES, **{'rbf_features': 6} | options, **kinds)


def paths(module, params, x_BLD):
  """Each operator's output on every token, from the registered mixers of one operator."""
  fields = ('form', 'basis', 'released', 'rbf_features', 'dtype', 'param_dtype')
  options = {field: getattr(module, field) for field in fields}

  @jax.jit
  def outputs(params, x_BLD):
    out = []
    for name in module.operators:
      names = ('w_spectral', 'dct_norm') if name == 'dct' else (name, f'{name}_norm')
      one = MIXERS[f'chiar_{name}'](**SIZES, **options)
      out.append(one.apply({'params': {n: params[n] for n in names}}, x_BLD).y_BLD)
    return jnp.stack(out)

  return np.asarray(outputs(params, x_BLD))


@pytest.mark.parametrize('dtype', ['float64', 'float32'])
def test_golden_rbf(golden, dtype):
  g = golden('chiar_rbf')
  kinds = {'dtype': jnp.dtype(dtype), 'param_dtype': jnp.dtype(dtype)}
  x_BLD = jnp.asarray(g['x'], dtype)
  module = MIXERS['chiar_rbf'](
    width=32, heads=4, context=20, form='published', rbf_features=16, **kinds
  )
  y_BLD = run(module, weights.tree(weights.chiar_rbf(g), dtype), x_BLD).y_BLD
  tolerance = 1e-10 if dtype == 'float64' else 10 * float(g['y_f32_noise'])
  assert y_BLD.dtype == dtype
  np.testing.assert_allclose(y_BLD, g['y'], atol=tolerance)
  phi_BLF = fourier_features(x_BLD, jnp.asarray(g['omega'], dtype))
  np.testing.assert_allclose(phi_BLF, g['features'], atol=1e-6)
  phi_BL1F = phi_BLF[:, :, None]
  seen_BLS = visible(20, causal=False)
  keys_B1SF = phi_BL1F.swapaxes(1, 2)
  a_BHLS = attention_weights(phi_BL1F, keys_B1SF, scale=1.0, visible_BLS=seen_BLS)
  np.testing.assert_allclose(a_BHLS[:, 0], g['weights'], atol=1e-6)


def test_the_rbf_operator_mixes_nothing_on_normed_tokens():
  """At the paper's width, 64 features and gamma 1: weights of 1 on the token itself."""
  rng = np.random.default_rng(0)
  x_LD, omega_DR = rng.normal(size=(128, 256)), rng.normal(size=(256, 64)) * np.sqrt(2)

  def weights_of(x_LD):
    phi_BL1F = fourier_features(jnp.asarray(x_LD)[None], jnp.asarray(omega_DR))[:, :, None]
    seen_BLS = visible(len(x_LD), causal=False)
    keys_B1SF = phi_BL1F.swapaxes(1, 2)
    a_BHLS = attention_weights(phi_BL1F, keys_B1SF, scale=1.0, visible_BLS=seen_BLS)
    return np.asarray(a_BHLS)[0, 0]

  normed, small = weights_of(x_LD), weights_of(0.02 * x_LD)
  assert np.max(normed - np.diag(np.diag(normed))) < 1e-12
  assert np.max(small) < 2 / 128


def test_omega_is_drawn_by_gamma_and_takes_no_gradient():
  module = RBF(width=64, heads=4, context=8, rbf_gamma=0.5, rbf_features=64)
  x_BLD = jnp.asarray(np.random.default_rng(0).normal(size=(1, 5, 64)), jnp.float32)

  @jax.jit
  def gradient(key):
    params = module.init(key, x_BLD)['params']
    return params, jax.grad(lambda p: jnp.sum(module.apply({'params': p}, x_BLD).y_BLD))(params)

  params, found = gradient(jax.random.key(0))
  assert float(jnp.std(params['frozen_omega'])) == pytest.approx(1.0, rel=0.05)
  assert np.all(np.asarray(found['frozen_omega']) == 0)
  assert np.max(np.abs(found['out']['kernel'])) > 0
  assert not decays('mixer/rbf/frozen_omega', True)
  assert not decays('mixer/frozen_key', True)


@pytest.mark.parametrize('form', ['causal', 'published', 'bidirectional'])
def test_the_forms_of_rbf_see_what_they_say(form):
  module, x_BLD = routed(rbf=True, router='soft', form=form), inputs(2, 12)
  params = init(module, x_BLD)
  apply = jax.jit(lambda x_BLD: module.apply({'params': params}, x_BLD).y_BLD)

  def change(other_BLD, seen):
    y, z = (np.asarray(apply(a))[seen] for a in (x_BLD, other_BLD))
    return np.max(np.abs(y - z))

  future = change(x_BLD.at[:, 8:].set(3 * inputs(2, 4, seed=5)), np.s_[:, :8])
  assert module.causal == (form == 'causal') == (future == 0)
  assert change(x_BLD.at[1].set(7.0), np.s_[0]) == 0


@pytest.mark.parametrize('basis', ['dct', 'permuted'])
def test_thresholds_send_each_token_to_one_operator(basis):
  x_BLD = inputs(2, 11)
  entropy_BL = np.asarray(spectral_entropy(x_BLD, basis=basis))
  low, high = np.percentile(entropy_BL, [30, 70])
  module = routed(rbf=True, tau_low=float(low), tau=float(high), basis=basis)
  params = init(module, x_BLD)
  y_BLD, aux, _ = run(module, params, x_BLD)
  route_BL = (entropy_BL > low).astype(int) + (entropy_BL > high)
  expected = np.take_along_axis(paths(module, params, x_BLD), route_BL[None, :, :, None], 0)[0]
  np.testing.assert_allclose(y_BLD, expected, atol=1e-12)
  np.testing.assert_allclose(aux.debug['entropy'], entropy_BL, atol=1e-12)
  for k, name in enumerate(('dct', 'rbf', 'attention')):
    assert float(aux.metrics[f'{name}_share']) == pytest.approx(np.mean(route_BL == k))


@pytest.mark.parametrize(('router', 'rbf'), [('soft', True), ('hard', False)])
def test_learned_gates_follow_their_equation(router, rbf):
  module, x_BLD = routed(rbf=rbf, router=router, collapse=0.01), inputs(2, 9)
  params = init(module, x_BLD)
  mask_BL = jnp.asarray([[True] * 9, [True] * 5 + [False] * 4])

  def total(p):
    mixed = module.apply({'params': p}, x_BLD)
    return jnp.sum(mixed.y_BLD**2), mixed.y_BLD

  (_, y_BLD), gradient = jax.jit(jax.value_and_grad(total, has_aux=True))(params)
  assert np.max(np.abs(gradient['router']['kernel'])) > 0
  xh_BLD = np.concatenate([x_BLD, spectral_entropy(x_BLD)[..., None]], -1)
  logits_BLK = xh_BLD @ np.asarray(params['router']['kernel'])
  logits_BLK = logits_BLK + np.asarray(params['router']['bias'])
  gates_BLK = np.exp(logits_BLK) / np.exp(logits_BLK).sum(-1, keepdims=True)
  if router == 'hard':
    gates_BLK = np.eye(2)[np.argmax(logits_BLK, -1)]
  expected = np.einsum('blk,kbld->bld', gates_BLK, paths(module, params, x_BLD))
  np.testing.assert_allclose(y_BLD, expected, atol=1e-12)
  aux = run(module, params, x_BLD, mask_BL=mask_BL).aux
  share_K = gates_BLK[np.asarray(mask_BL)].mean(0)
  loss = 0.01 * np.sum(share_K * np.log(share_K + 1e-8))
  np.testing.assert_allclose(aux.losses['collapse'], loss, atol=1e-12)
  free = routed(rbf=rbf, router=router)
  assert not jax.eval_shape(free.apply, {'params': params}, x_BLD).aux.losses


def test_the_random_router_knows_positions_alone():
  module, x_BLD = routed(router='random', rate=0.3), inputs(2, 400)
  params = init(module, x_BLD)

  @jax.jit
  def routes(key, x_BLD, start):
    positions_BL = start + jnp.arange(400, dtype=jnp.int32)[None, :]
    mixed = module.apply({'params': params | {'frozen_key': key}}, x_BLD, positions_BL=positions_BL)
    return mixed.aux.debug['route']

  key = jnp.asarray(0.37)
  route_BL = np.asarray(routes(key, x_BLD, jnp.int32(0)))
  assert np.mean(route_BL) == pytest.approx(0.3, abs=0.08)
  np.testing.assert_array_equal(route_BL[0], route_BL[1])
  later_BL = np.asarray(routes(key, -x_BLD, jnp.int32(7)))
  np.testing.assert_array_equal(later_BL[:, :-7], route_BL[:, 7:])
  other_BL = np.asarray(routes(key + 0.01, x_BLD, jnp.int32(0)))
  assert np.mean(other_BL != route_BL) == pytest.approx(2 * 0.3 * 0.7, abs=0.1)


def test_three_operators_in_chunks_equal_the_whole():
  module, x_BLD = routed(rbf=True, router='random'), inputs(2, 12)
  params = init(module, x_BLD)
  whole = run(module, params, x_BLD).y_BLD
  step = jax.jit(lambda x_BLD, cache: module.apply({'params': params}, x_BLD, cache=cache))
  cache, pieces = module.init_cache(2, N, jnp.float64), []
  for start in range(0, 12, 4):
    y_BLD, _, cache = step(x_BLD[:, start : start + 4], cache)
    pieces.append(y_BLD)
  np.testing.assert_allclose(np.concatenate(pieces, 1), whole, atol=1e-12)


def size(name, **options):
  module = MIXERS[name](**SIZES, rbf_features=6, **options)
  x_BLD = jnp.zeros((1, 4, WIDTH), jnp.float32)
  shapes = jax.eval_shape(module.init, jax.random.key(0), x_BLD)['params']
  leaves = jax.tree_util.tree_leaves_with_path(shapes)
  frozen = [p[-1].key.startswith('frozen_') for p, _ in leaves]
  sizes = [int(np.prod(leaf.shape)) for _, leaf in leaves]
  return tuple(sum(s for s, f in zip(sizes, frozen, strict=True) if f == kind) for kind in (0, 1))


def test_parameters_follow_the_docstrings():
  two, three = 3 * WIDTH + ATTENTION, 3 * WIDTH + ATTENTION + RBF_SIZE
  assert size('chiar_rbf') == (RBF_SIZE, 6 * WIDTH)
  assert size('chiar', rbf=True) == (three, 6 * WIDTH)
  assert size('chiar', basis='orthogonal') == size('chiar', basis='permuted') == (two, 0)
  assert size('chiar', router='soft') == size('chiar', router='hard')
  assert size('chiar', router='soft') == (two + 2 * (WIDTH + 2), 0)
  assert size('chiar', router='hard', rbf=True) == (three + 3 * (WIDTH + 2), 6 * WIDTH)
  assert size('chiar', router='random') == (two, 1)


@pytest.mark.parametrize(
  ('options', 'total'),
  [
    ({'router': 'soft'}, 400_096_361),  # 53,352 more than by threshold: 26 x 1026 x 2
    ({'router': 'hard', 'meta': False}, 400_096_361 - 1025),
    # The RBF operator alone has 8,527,872 at this width, and 1024 x 64 numbers that do not train.
    ({'rbf': True}, 400_043_009 + 26 * (8_527_872 + 65_536)),
  ],
)
def test_parameters_of_the_400m_model(options, total):
  config = base.chiar_400m()
  for key, value in options.items():
    config.model.chiar[key] = value
  model = build(config)
  tokens_BL = jax.ShapeDtypeStruct((1, 4), jnp.int32)
  params = jax.eval_shape(model.init, jax.random.key(0), tokens_BL)['params']
  assert count(model, params) == total


@pytest.mark.parametrize(
  ('options', 'said'),
  [
    ({'router': 'sotf'}, "did you mean 'soft'"),
    ({'basis': 'permutd'}, "did you mean 'permuted'"),
    ({'basis': 'orthogonal', 'released': True}, 'model.chiar.released=False'),
    ({'rbf': True, 'tau_low': 0.6, 'tau': 0.5}, 'model.chiar.tau_low=0.6: expected less'),
    ({'rate': 1.5}, 'model.chiar.rate=1.5'),
    ({'collapse': 0.01}, 'router soft or hard'),
    ({'collapse': -1.0, 'router': 'soft'}, 'model.chiar.collapse=-1.0'),
    ({'rbf_features': 0}, 'model.chiar.rbf_features=0'),
    ({'rbf_gamma': 0.0}, 'model.chiar.rbf_gamma=0.0'),
    ({'calibrated': 'released'}, "calibrated under 'released' coefficients"),
    ({'calibrated': 'dct', 'released': True}, "this model routes by 'released' ones"),
    ({'calibrated': 'dct', 'basis': 'permuted'}, "this model routes by 'permuted' ones"),
  ],
)
def test_contradictions_name_the_key(options, said):
  with pytest.raises(UserError, match=said):
    MIXERS['chiar'](**SIZES, **options).check()


def test_a_tau_serves_the_scaling_it_was_calibrated_under():
  for options in ({'calibrated': 'dct'}, {'calibrated': 'released', 'released': True}):
    MIXERS['chiar'](**SIZES, **options).check()
