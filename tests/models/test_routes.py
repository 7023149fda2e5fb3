"""Generation with a cache takes the routes of teacher forcing, and writes what it says."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs import base
from sgnjax.models import build
from sgnjax.ops.entropy import white_entropy

TOKENS, WIDTH, VOCAB = 64, 16, 13
CAPACITY = {'dispatch': 'capacity', 'route_window': 8, 'capacity': 0.375}
KINDS = {
  'threshold, capacity, all': CAPACITY,
  'threshold, capacity, routed': CAPACITY | {'kv': 'routed', 'meta_hard': True},
  'hard, capacity, routed': CAPACITY | {'kv': 'routed', 'router': 'hard'},
  'random, capacity, routed': CAPACITY | {'kv': 'routed', 'router': 'random', 'rate': 0.6},
  'soft, three operators': {'rbf': True, 'router': 'soft'},
  'threshold, three operators': {'rbf': True},
}


def make(options):
  """A model and random weights with opinions."""
  config = base.get_config().unlock()
  config.model.update(mixer='chiar', block='chiar', positions='rope', dtype='float64')
  config.model.update(width=WIDTH, heads=2, layers=3, context=96, vocab=VOCAB, vocab_multiple=1)
  tau = white_entropy(WIDTH)
  config.model.chiar.update(tau=tau, tau_low=tau - 0.05, rbf_features=8)
  config.model.chiar.update(options)
  model = build(config, capture=True)
  shapes = jax.eval_shape(model.init, jax.random.key(0), jnp.zeros((1, 4), jnp.int32))['params']
  rng = np.random.default_rng(5)

  def draw(path, leaf):
    name = path[-1].key
    around = {'scale': 1.0, 'w_spectral': 1.0, 'frozen_key': 0.4}.get(name, 0.0)
    noise = 0.0 if name in ('bias', 'scale', 'frozen_key') else 0.5
    return jnp.asarray(around + noise * rng.standard_normal(leaf.shape), leaf.dtype)

  return model, jax.tree_util.tree_map_with_path(draw, shapes)


@pytest.mark.slow
@pytest.mark.parametrize('kind', KINDS)
def test_generation_takes_the_routes_of_teacher_forcing(kind):
  """Two prompts of different length in one cache, token by token, and each row as a whole."""
  with jax.enable_x64(True):
    model, params = make(KINDS[kind])
    prompt_BT = np.full((2, TOKENS), -1, np.int32)
    prompt_BT[0, :5], prompt_BT[1, :3] = [3, 1, 4, 1, 5], [9, 2, 6]

    @jax.jit
    def written(params):
      def step(carry, given_B):
        said_B, cache = carry
        token_B = jnp.where(given_B >= 0, given_B, said_B)
        logits_BLV, aux, cache = model.apply({'params': params}, token_B[:, None], cache=cache)
        said_B = jnp.argmax(logits_BLV[:, 0], axis=-1).astype(jnp.int32)
        return (said_B, cache), (token_B, said_B, aux.debug['route/01'][:, 0])

      start = jnp.zeros((2,), jnp.int32), model.init_cache(2, TOKENS)
      _, found = jax.lax.scan(step, start, jnp.asarray(prompt_BT.T))
      return tuple(a.T for a in found)

    @jax.jit
    def taught(params, token_BT):
      logits_BLV, aux, _ = model.apply({'params': params}, token_BT)
      return jnp.argmax(logits_BLV, axis=-1), aux.debug['route/01']

    token_BT, said_BT, route_BT = written(params)
    expected_BT, taken_BT = taught(params, token_BT)
  assert len(np.unique(token_BT)) > 2
  np.testing.assert_array_equal(said_BT, expected_BT)
  np.testing.assert_array_equal(route_BT, taken_BT)
  assert kind.startswith('soft') or 0 < np.mean(route_BT) < 1
  assert 'capacity' not in kind or np.mean(route_BT) <= 0.375
