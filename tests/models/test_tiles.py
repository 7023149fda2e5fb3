"""A model whose operations go by tiles is the model whose operations are whole."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs.base import get_config
from sgnjax.models import build
from sgnjax.ops import feed_forward
from sgnjax.ops.backend import untiled


@pytest.mark.slow
@pytest.mark.parametrize(
  ('mixer', 'options', 'packed'),
  [
    ('ega', {}, False),
    ('ega', {'znorm': 'prefix', 'scales': 2}, False),
    ('chiar', {'tau': 0.7}, False),
    ('chiar', {'tau': 0.7}, True),
  ],
)
def test_loss_and_gradients_are_the_same(monkeypatch, mixer, options, packed):
  monkeypatch.setattr(feed_forward, 'TILE', 512)
  c = get_config()
  c.model.mixer, c.model.vocab = mixer, 11
  c.model.layers, c.model.width, c.model.heads, c.model.context = 1, 8, 2, 130
  if mixer == 'chiar':
    c.model.block, c.model.layers = 'chiar', 3
  c.model[mixer].update(options)
  model = build(c)
  tokens_BL = jax.random.randint(jax.random.key(0), (2, 130), 0, 11)
  mask_BL = jnp.arange(130)[None, :] < jnp.asarray([130, 40])[:, None]
  segments_BL = (jnp.arange(130)[None, :] // 50) % 2 + jnp.zeros((2, 1), jnp.int32)
  how = {'segments_BL': segments_BL} if packed else {}
  params = jax.jit(model.init)(jax.random.key(1), tokens_BL)['params']

  def step():
    def loss(params):
      logits_BLV = model.apply({'params': params}, tokens_BL, mask_BL=mask_BL, train=True, **how)[0]
      return -jnp.sum(jax.nn.log_softmax(logits_BLV)[..., 0])

    lowered = jax.jit(jax.value_and_grad(loss)).lower(params)
    return lowered.as_text(), lowered.compile()(params)

  text, (ours, our_grads) = step()
  with untiled():
    whole, (theirs, their_grads) = step()
  assert text.count('stablehlo.while') > whole.count('stablehlo.while')
  assert 'x130x130x' in whole  # scores of all queries and keys, and nothing of their size by tiles
  assert 'x130x130x' not in text
  np.testing.assert_allclose(ours, theirs, rtol=1e-5)
  for ours, theirs in zip(jax.tree.leaves(our_grads), jax.tree.leaves(their_grads), strict=True):
    np.testing.assert_allclose(ours, theirs, atol=2e-4 * max(1, np.max(np.abs(theirs))))
