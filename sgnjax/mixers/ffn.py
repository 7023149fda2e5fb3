"""The feed-forward network, of blocks and of CHIAR's RBF operator."""

from typing import Any

import flax.linen as nn
import jax

from sgnjax.mixers.base import Mixer, dense
from sgnjax.ops.feed_forward import feed_forward, tile_of
from sgnjax.parallel.sequence import alone


class FFN(nn.Module):
  """`W2 gelu(W1 x + b1) + b2`, exact GELU as in all four papers' code.

  2 width * hidden + hidden + width parameters.
  """

  width: int
  hidden: int
  dropout: float
  init_std: float
  dtype: Any
  param_dtype: Any

  @nn.compact
  def __call__(self, x_BLD: jax.Array, train: bool) -> jax.Array:
    tile = tile_of(x_BLD.shape[0] * x_BLD.shape[1], self.hidden) if alone() else None
    if tile is None or self.is_initializing():
      h_BLF = nn.gelu(dense(self, self.hidden, 'up', True)(x_BLD), approximate=False)
      y_BLD = dense(self, self.width, 'down', True)(h_BLF)
    else:
      weights = (self.scope.get_variable('params', name) for name in ('up', 'down'))
      weights = [one[part] for one in weights for part in ('kernel', 'bias')]
      x_TD = x_BLD.astype(self.dtype).reshape(-1, self.width)
      y_BLD = feed_forward(x_TD, *weights, tile).reshape(x_BLD.shape)
    return nn.Dropout(self.dropout)(y_BLD, deterministic=not train)


def ffn_of(mixer: Mixer, hidden: int) -> FFN:
  """The FFN, named `ffn`, of the calling module, with the mixer's width, dtypes and dropout."""
  fields = ('width', 'dropout', 'init_std', 'dtype', 'param_dtype')
  return FFN(hidden=hidden, name='ffn', **{field: getattr(mixer, field) for field in fields})
