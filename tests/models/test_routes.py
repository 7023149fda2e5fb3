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
  'threshold': {},
  'threshold, capacity, all': CAPACITY,
  'threshold, capacity, routed': CAPACITY | {'kv': 'routed', 'meta_hard': True},
  'hard, capacity, routed': CAPACITY | {'kv': 'routed', 'router': 'hard'},
  'random, capacity, routed': CAPACITY | {'kv': 'routed', 'router': 'random', 'rate': 0.6},
  'soft': {'router': 'soft'},
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


@pytest.mark.parametrize('kind', KINDS)
def test_generation_takes_the_routes_of_teacher_forcing(kind):
  with jax.enable_x64(True):
    model, params = make(KINDS[kind])
    lengths = (5, 3)
    prompt_BL = jnp.asarray([[3, 1, 4, 1, 5], [9, 2, 6, 0, 0]], jnp.int32)
    mask_BL = jnp.arange(5)[None, :] < jnp.asarray(lengths)[:, None]

    def likeliest(logits_BV):
      return jnp.argmax(logits_BV, axis=-1).astype(jnp.int32)

    @jax.jit
    def written(params):
      cache = model.init_cache(2, 5 + TOKENS)
      logits_BLV, aux, cache = model.apply(
        {'params': params}, prompt_BL, mask_BL=mask_BL, cache=cache
      )
      first_B = likeliest(logits_BLV[jnp.arange(2), jnp.asarray(lengths) - 1])

      def step(carry, _):
        token_B, cache = carry
        logits_BLV, aux, cache = model.apply({'params': params}, token_B[:, None], cache=cache)
        return (likeliest(logits_BLV[:, 0]), cache), (token_B, aux.debug['route/01'][:, 0])

      _, (token_TB, route_TB) = jax.lax.scan(step, (first_B, cache), length=TOKENS)
      return aux.debug['route/01'], token_TB.T, route_TB.T

    @jax.jit
    def taught(params, rows_BL, mask_BL):
      logits_BLV, aux, _ = model.apply({'params': params}, rows_BL, mask_BL=mask_BL)
      return likeliest(logits_BLV), aux.debug['route/01']

    before_BL, token_BT, route_BT = (np.asarray(a) for a in written(params))
    rows_BL = np.zeros((2, 5 + TOKENS), np.int32)
    for b, n in enumerate(lengths):
      rows_BL[b, : n + TOKENS] = [*prompt_BL[b, :n].tolist(), *token_BT[b]]
    real_BL = np.arange(5 + TOKENS)[None, :] < np.asarray(lengths)[:, None] + TOKENS
    said_BL, taken_BL = (np.asarray(a) for a in taught(params, rows_BL, real_BL))
  assert len(np.unique(token_BT)) > 2
  for b, n in enumerate(lengths):
    route_L = np.concatenate([before_BL[b, :n], route_BT[b]])
    np.testing.assert_array_equal(route_L, taken_BL[b, : n + TOKENS])
    np.testing.assert_array_equal(token_BT[b], said_BL[b, n - 1 : n + TOKENS - 1])
    assert kind == 'soft' or 0 < route_L.mean() < 1
