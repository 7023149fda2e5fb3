"""Sums over logits stretch by stretch are those over all of them."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from configs.base import get_config
from sgnjax.models import build, stretches
from sgnjax.parallel.feed import place
from sgnjax.parallel.mesh import make_mesh
from sgnjax.train import state as state_lib
from sgnjax.train.step import make_eval_step, make_train_step

VOCAB, BATCH, LENGTH = 11, 4, 16


def config(**mesh):
  c = get_config()
  c.model.layers, c.model.width, c.model.heads, c.model.context = 1, 8, 2, LENGTH
  c.model.vocab, c.model.tied = VOCAB, False
  c.train.batch = BATCH
  for axis in ('data', 'sequence'):
    c.mesh[axis] = mesh.get(axis, 1)
  return c


def batch():
  rng = np.random.default_rng(0)
  tokens, targets = rng.integers(0, VOCAB, (2, BATCH, LENGTH)).astype(np.int32)
  targets[:, ::3] = -1
  return {'tokens': tokens, 'targets': targets}


def stepped(c):
  mesh, model, optimiser = make_mesh(c), build(c), optax.sgd(1.0)
  state = state_lib.create(c, model, optimiser, mesh)
  inputs = place(batch(), mesh)
  sums = make_eval_step(model, mesh)(state.params, inputs)
  state, metrics = make_train_step(model, optimiser, c, mesh)(state, inputs)
  return jax.device_get((sums, metrics, state.params))


@pytest.mark.slow
@pytest.mark.parametrize('mesh', [{}, {'data': 2, 'sequence': 2}])
def test_stretches_give_what_the_whole_gives(monkeypatch, mesh):
  sums, metrics, params = stepped(config())
  monkeypatch.setattr(stretches, 'MOST', 300)
  ours, our_metrics, our_params = stepped(config(**mesh))
  np.testing.assert_allclose(ours['loss_sum'], sums['loss_sum'], rtol=1e-5)
  assert ours['tokens'] == sums['tokens']
  np.testing.assert_allclose(our_metrics['loss'], metrics['loss'], rtol=1e-5)
  for ours, theirs in zip(jax.tree.leaves(our_params), jax.tree.leaves(params), strict=True):
    np.testing.assert_allclose(ours, theirs, atol=2e-5)


def test_a_million_tokens_of_a_large_vocabulary_fit():
  count = stretches.stretches(1, 1 << 20, 50_304)
  assert (1 << 20) % count == 0
  assert (1 << 20) // count * 50_304 <= stretches.MOST
  assert stretches.stretches(16, 256, 128) == 1

  def loss(x, weight):
    def sums(logits, batch):
      return {'loss_sum': jnp.sum(jax.nn.logsumexp(logits, -1) * batch['targets'])}

    batch = {'targets': jnp.ones((1, 1 << 14), jnp.float32)}
    return stretches.summed(sums, lambda x: x @ weight, x, batch, 16)['loss_sum']

  shapes = [jax.ShapeDtypeStruct(s, jnp.float32) for s in ((1, 1 << 14, 4), (4, 4096))]
  found = jax.jit(jax.grad(loss, (0, 1))).lower(*shapes).compile().memory_analysis()
  assert found.temp_size_in_bytes < (1 << 14) * 4096 * 4 / 4  # a quarter of all logits
