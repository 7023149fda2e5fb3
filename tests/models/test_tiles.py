"""A model whose operations go by tiles is the model whose operations are whole."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs.base import get_config
from sgnjax.models import build
from sgnjax.ops import feed_forward
from sgnjax.ops.backend import untiled


@pytest.mark.parametrize('options', [{}, {'znorm': 'prefix', 'scales': 2}])
def test_loss_and_gradients_are_the_same(monkeypatch, options):
  monkeypatch.setattr(feed_forward, 'TILE', 512)
  c = get_config()
  c.model.mixer, c.model.vocab = 'ega', 11
  c.model.layers, c.model.width, c.model.heads, c.model.context = 1, 8, 2, 130
  c.model.ega.update(options)
  model = build(c)
  tokens_BL = jax.random.randint(jax.random.key(0), (2, 130), 0, 11)
  mask_BL = jnp.arange(130)[None, :] < jnp.asarray([130, 40])[:, None]
  params = jax.jit(model.init)(jax.random.key(1), tokens_BL)['params']

  def step():
    def loss(params):
      logits_BLV = model.apply({'params': params}, tokens_BL, mask_BL=mask_BL, train=True)[0]
      return -jnp.sum(jax.nn.log_softmax(logits_BLV)[..., 0])

    lowered = jax.jit(jax.value_and_grad(loss)).lower(params)
    return lowered.as_text().count('stablehlo.while'), lowered.compile()(params)

  loops, (ours, our_grads) = step()
  with untiled():
    fewer, (theirs, their_grads) = step()
  assert loops > fewer
  np.testing.assert_allclose(ours, theirs, rtol=1e-5)
  for ours, theirs in zip(jax.tree.leaves(our_grads), jax.tree.leaves(their_grads), strict=True):
    np.testing.assert_allclose(ours, theirs, atol=2e-4 * max(1, np.max(np.abs(theirs))))
