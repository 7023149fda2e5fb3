"""The feed-forward network, of blocks and of CHIAR's RBF operator."""

from typing import Any

import flax.linen as nn
import jax

from sgnjax.mixers.base import Mixer, dense


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
    h_BLF = nn.gelu(dense(self, self.hidden, 'up', True)(x_BLD), approximate=False)
    y_BLD = dense(self, self.width, 'down', True)(h_BLF)
    return nn.Dropout(self.dropout)(y_BLD, deterministic=not train)


def ffn_of(mixer: Mixer, hidden: int) -> FFN:
  """The FFN, named `ffn`, of the calling module, with the mixer's width, dtypes and dropout."""
  fields = ('width', 'dropout', 'init_std', 'dtype', 'param_dtype')
  return FFN(hidden=hidden, name='ffn', **{field: getattr(mixer, field) for field in fields})
