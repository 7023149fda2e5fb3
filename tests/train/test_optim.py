import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs import base
from sgnjax.errors import UserError
from sgnjax.mixers import MIXERS
from sgnjax.models import build
from sgnjax.train.optim import decay_mask, decays, make_optimiser, path_of, schedule


def config(**optim):
  c = base.get_config()
  for key, value in optim.items():
    c.optim[key] = value
  return c


def params_of(mixer: str):
  c = base.get_config()
  c.model.layers, c.model.width, c.model.context = 3, 16, 8
  c.model.mixer, c.model.form = mixer, MIXERS[mixer].forms[0]
  if MIXERS[mixer].owns_residual:
    c.model.block = 'chiar'
  model = build(c, vocab=7)
  tokens_BL = jnp.zeros((1, 8), jnp.int32)
  return jax.eval_shape(model.init, jax.random.key(0), tokens_BL)['params']


def flat(tree):
  return {path_of(p): leaf for p, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def test_schedule_rises_to_lr_and_falls_to_final_lr():
  c = config(lr=1.0, final_lr=0.1, warmup=4)
  c.train.steps = 104
  rate = schedule(c)
  rising = [float(rate(s)) for s in range(4)]
  np.testing.assert_allclose(rising, [0.25, 0.5, 0.75, 1.0], rtol=1e-6)
  np.testing.assert_allclose(float(rate(4)), 1.0, rtol=1e-6)
  np.testing.assert_allclose(float(rate(54)), 0.55, rtol=1e-6)  # half-way down
  np.testing.assert_allclose(float(rate(104)), 0.1, rtol=1e-6)


def test_no_warmup_and_nothing_but_warmup():
  c = config(lr=1.0, warmup=0)
  assert float(schedule(c)(0)) == 1.0
  c = config(lr=1.0, warmup=c.train.steps)
  assert float(schedule(c)(c.train.steps - 1)) == 1.0


# `chiar` holds the layers chiar_dct and chiar_attention.
@pytest.mark.parametrize('mixer', [m for m in MIXERS if not m.startswith('chiar_')])
def test_matrices_decay_and_vectors_do_not(mixer):
  mask = flat(decay_mask(params_of(mixer), mechanism=False))
  for path, decayed in mask.items():
    name = path.split('/')[-1]
    matrix = name in ('kernel', 'embedding', 'position') and 'meta_router' not in path
    assert decayed == matrix, path


@pytest.mark.parametrize(
  ('mixer', 'names'),
  [
    ('sgn', {'gate'}),
    ('ega', {'w_gate', 'b_gate', 'tau', 'alpha', 'scale_logits'}),
    ('fourier_qk', {'log_centre'}),
    ('chiar', {'w_spectral', 'meta_router/gate/kernel', 'meta_router/gate/bias'}),
  ],
)
def test_mechanisms_decay_only_when_asked(mixer, names):
  params = params_of(mixer)
  off, on = (flat(decay_mask(params, mechanism=m)) for m in (False, True))
  changed = [path for path in off if off[path] != on[path]]
  assert {n for n in names if any(p.endswith(n) for p in changed)} == names
  assert all(any(p.endswith(n) for n in names) for p in changed)


def test_decay_shrinks_what_it_should_and_nothing_else():
  c = config(lr=0.5, warmup=0, weight_decay=0.1)
  params = jax.tree.map(lambda a: jnp.ones(a.shape), params_of('sgn'))
  optimiser = make_optimiser(c)
  zeros = jax.tree.map(jnp.zeros_like, params)
  updates, _ = optimiser.update(zeros, optimiser.init(params), params)
  for path, update in flat(updates).items():
    expected = -0.05 if decays(path, False) else 0.0
    np.testing.assert_allclose(update, expected, rtol=1e-6, err_msg=path)


def test_clipping_by_the_norm_of_all_gradients():
  params = {'a': {'bias': jnp.zeros(3)}, 'b': {'bias': jnp.zeros(1)}}
  grads = {'a': {'bias': jnp.asarray([3.0, 0.0, 0.0])}, 'b': {'bias': jnp.asarray([4.0])}}
  for clip, scale in ((1.0, 0.2), (10.0, 1.0), (0.0, 1.0)):
    optimiser = make_optimiser(config(clip=clip, b1=0.0))
    _, state = optimiser.update(grads, optimiser.init(params), params)
    moments = [flat(s.mu) for s in jax.tree.leaves(state, is_leaf=_is_adam) if _is_adam(s)]
    np.testing.assert_allclose(moments[0]['b/bias'], 4.0 * scale, rtol=1e-6)
    np.testing.assert_allclose(moments[0]['a/bias'][0], 3.0 * scale, rtol=1e-6)


def _is_adam(node) -> bool:
  return hasattr(node, 'mu')


def test_an_unknown_parameter_is_an_error():
  with pytest.raises(
    UserError, match="'stack/group_0/0_new/mixer/widget' has no weight decay rule"
  ):
    decays('stack/group_0/0_new/mixer/widget', False)


@pytest.mark.parametrize(
  ('key', 'value', 'words'),
  [
    ('lr', 0.0, 'optim.lr=0.0'),
    ('lr', float('nan'), 'optim.lr=nan'),
    ('warmup', 601, 'expected 0 to train.steps=600; --config.optim.warmup=60 would do'),
    ('warmup', -1, 'optim.warmup=-1'),
    ('final_lr', -1.0, 'optim.final_lr'),
    ('weight_decay', -0.1, 'optim.weight_decay'),
    ('clip', -1.0, 'optim.clip'),
    ('b1', 1.0, 'optim.b1'),
    ('b2', -0.5, 'optim.b2'),
    ('eps', 0.0, 'optim.eps'),
  ],
)
def test_impossible_values_are_named(key, value, words):
  with pytest.raises(UserError, match=words):
    make_optimiser(config(**{key: value}))


def test_no_steps():
  c = config(warmup=0)
  c.train.steps = 0
  with pytest.raises(UserError, match=r'train\.steps=0: expected at least 1'):
    make_optimiser(c)
