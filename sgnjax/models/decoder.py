"""The language model: tokens in, logits of the next token out."""

from typing import Any

import flax.linen as nn
import jax.numpy as jnp

from sgnjax.mixers import Mixed
from sgnjax.models.stack import Stack
from sgnjax.models.trunk import Trunk


class Decoder(Trunk, kw_only=True):
  """Embedding, stack, final LayerNorm and (tied) head.

  `model(tokens_BL, positions_BL=, mask_BL=, segments_BL=, cache=, train=)` returns a Mixed whose
  first entry is `logits_BLV`: V is the vocabulary padded to a multiple of `vocab_multiple`.

  heads: of further tasks, name and how many numbers an example has (a linear layer from the mean of
  its real tokens). `model(..., head=name)` returns that one's `logits_BK`.

  `model(..., score=)` returns sums over the logits, see `Trunk.token_outputs`.

  Causality is a property of the configured layers (`causal`); nothing here shifts the targets.
  """

  heads: tuple[tuple[str, int], ...] = ()

  def init_cache(self, batch: int, max_len: int, dtype: Any = None) -> tuple:
    """(tokens so far of each example, caches of all layers); UserError where a layer keeps none."""
    caches = Stack(self.groups, self.unroll, parent=None).init_cache(
      batch, max_len, dtype or self.dtype
    )
    return jnp.zeros((batch,), jnp.int32), caches

  @nn.compact
  def __call__(
    self,
    tokens_BL,
    *,
    positions_BL=None,
    mask_BL=None,
    segments_BL=None,
    cache=None,
    train=False,
    head=None,
    score=None,
  ) -> Mixed:
    length = tokens_BL.shape[1]
    count_B, caches = (None, None) if cache is None else cache
    if cache is not None:
      if positions_BL is None:
        positions_BL = count_B[:, None] + jnp.arange(length, dtype=jnp.int32)[None, :]
      new_B = length if mask_BL is None else jnp.sum(mask_BL, axis=1, dtype=jnp.int32)
      count_B = count_B + new_B
    table_VD = self.table()
    x_BLD, aux, caches = self.run(
      jnp.take(table_VD, tokens_BL, axis=0),
      positions_BL=positions_BL,
      mask_BL=mask_BL,
      segments_BL=segments_BL,
      cache=caches,
      train=train,
    )
    answers = {
      name: self.outputs_of(x_BLD, mask_BL, outputs, f'classifier_{name}')
      for name, outputs in self.heads
      if name == head or self.is_initializing()
    }
    if head is not None:
      return Mixed(answers[head], aux, None)
    outputs = self.token_outputs(x_BLD, table_VD, score)
    return Mixed(outputs, aux, None if cache is None else (count_B, caches))
