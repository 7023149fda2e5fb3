"""Encoders: a whole row of tokens or an image in, classes, a number or the masked tokens out."""

from typing import ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from sgnjax.errors import UserError
from sgnjax.mixers import Mixed
from sgnjax.mixers.base import dense
from sgnjax.models.trunk import Trunk

POOLINGS = ('mean', 'cls')


class Encoder(Trunk, kw_only=True):
  """Patches or embedded tokens, stack, final LayerNorm, and one head.

  `model(inputs, positions_BL=, mask_BL=, segments_BL=, train=)` returns a Mixed whose first entry
  is `logits_BK`, `outputs` numbers an example, or, with 0 outputs, `logits_BLV` of the tokens
  (masked language modelling), padded as those of `Decoder`; `score` as there.

  inputs: tokens (B, L), or with `image` (rows, columns, channels) arrays (B, *image) of pixels,
  cut into squares of `patch` x `patch`, row by row, which are the tokens. Behind the vocabulary
  stand two tokens that no text has: `vocab`, a masked one, and `vocab + 1`, padding that is read.

  pooling: mean over the real tokens, or cls, a learned vector before them: a text then has room for
  context - 1 tokens, and the one after these is cut off. Only cls of a layer that sees the whole
  row sees anything.
  """

  special: ClassVar[int] = 2

  outputs: int = 0
  pooling: str = 'mean'
  image: tuple[int, int, int] | None = None
  patch: int = 1

  @property
  def padded_vocab(self) -> int:
    return 0 if self.image is not None else super().padded_vocab

  @nn.compact
  def __call__(
    self, inputs, *, positions_BL=None, mask_BL=None, segments_BL=None, train=False, score=None
  ) -> Mixed:
    if self.outputs and segments_BL is not None:
      raise UserError('rows of several documents have no single label: set data.packing=False')
    table_VD = None if self.image else self.table()
    x_BLD = jnp.take(table_VD, inputs, axis=0) if table_VD is not None else self.patches(inputs)
    if self.pooling == 'cls' and self.outputs:
      x_BLD, mask_BL = self.before(x_BLD, mask_BL)
    x_BLD, aux, _ = self.run(
      x_BLD, positions_BL=positions_BL, mask_BL=mask_BL, segments_BL=segments_BL, train=train
    )
    if not self.outputs:
      return Mixed(self.token_outputs(x_BLD, table_VD, score), aux, None)
    cls = self.pooling == 'cls'
    logits_BK = self.outputs_of(x_BLD, mask_BL, self.outputs, 'classifier', cls=cls)
    return Mixed(logits_BK, aux, None)

  def patches(self, image_BHWC: jax.Array) -> jax.Array:
    """The patches of images as tokens (B, L, width)."""
    if image_BHWC.shape[1:] != tuple(self.image):
      raise UserError(
        f'images of {image_BHWC.shape[1:]} (rows, columns, channels) were given, but model.image='
        f'{tuple(self.image)}'
      )
    rows, columns, channels = self.image
    p = self.patch
    x = image_BHWC.astype(self.dtype).reshape(-1, rows // p, p, columns // p, p, channels)
    x_BLP = x.swapaxes(2, 3).reshape(len(x), -1, p * p * channels)
    return dense(self, self.width, 'patches', True)(x_BLP)

  def before(self, x_BLD: jax.Array, mask_BL: jax.Array | None):
    """The learned vector before each row; a row of the whole context loses its last token."""
    cls_D = self.normal('cls', self.width).astype(self.dtype)
    cls_B1D = jnp.broadcast_to(cls_D[None, None, :], (len(x_BLD), 1, self.width))
    kept = min(x_BLD.shape[1], self.context - 1)
    x_BLD = jnp.concatenate([cls_B1D, x_BLD[:, :kept]], axis=1)
    if mask_BL is not None:
      first_B1 = jnp.ones((len(mask_BL), 1), bool)
      mask_BL = jnp.concatenate([first_B1, mask_BL[:, :kept]], axis=1)
    return x_BLD, mask_BL
