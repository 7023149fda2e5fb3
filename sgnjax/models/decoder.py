"""The language model: tokens in, logits of the next token out."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from sgnjax.errors import UserError
from sgnjax.mixers import Mixed
from sgnjax.mixers.base import LayerNorm
from sgnjax.models.stack import Group, Stack
from sgnjax.ops.dtypes import wide
from sgnjax.parallel.sequence import CHANNELS, TOKENS, constrain, gathered


class Decoder(nn.Module):
  """Embedding, stack, final LayerNorm and (tied) head.

  `model(tokens_BL, positions_BL=, mask_BL=, segments_BL=, cache=, train=)` returns a Mixed whose
  first entry is `logits_BLV`: V is the vocabulary padded to a multiple of `vocab_multiple`; logits
  of the padding are the lowest finite number, so that no loss and no sample sees them.

  Causality is a property of the configured layers (`causal`); nothing here shifts the targets.
  """

  groups: tuple[Group, ...]
  vocab: int
  vocab_multiple: int
  width: int
  context: int
  positions: str
  tied: bool
  dropout: float
  init_std: float
  dtype: Any
  param_dtype: Any
  unroll: int = 1
  remat: str = 'none'
  capture: bool = False

  @property
  def padded_vocab(self) -> int:
    """Rows of the embedding."""
    return -(-self.vocab // self.vocab_multiple) * self.vocab_multiple

  @property
  def causal(self) -> bool:
    """Whether every layer says that it is blind to the future."""
    return all(block.causal for _, block in self.layers())

  @property
  def uses_fft(self) -> bool:
    """Whether a layer spreads rounding over the sequence by an FFT."""
    return any(block.make(parent=None).uses_fft for _, block in self.layers())

  def layers(self):
    """(name, unbound block) of each layer."""
    return list(Stack(self.groups, self.unroll, parent=None).layers())

  def init_cache(self, batch: int, max_len: int, dtype: Any = None) -> tuple:
    """(tokens so far of each example, caches of all layers); UserError where a layer keeps none."""
    caches = Stack(self.groups, self.unroll, parent=None).init_cache(
      batch, max_len, dtype or self.dtype
    )
    return jnp.zeros((batch,), jnp.int32), caches

  @nn.compact
  def __call__(
    self, tokens_BL, *, positions_BL=None, mask_BL=None, segments_BL=None, cache=None, train=False
  ) -> Mixed:
    length = tokens_BL.shape[1]
    count_B, caches = (None, None) if cache is None else cache
    if cache is not None:
      if positions_BL is None:
        positions_BL = count_B[:, None] + jnp.arange(length, dtype=jnp.int32)[None, :]
      new_B = length if mask_BL is None else jnp.sum(mask_BL, axis=1, dtype=jnp.int32)
      count_B = count_B + new_B
    normal = nn.initializers.normal(self.init_std)
    table_VD = self.param(
      'embedding', normal, (self.padded_vocab, self.width), self.param_dtype
    ).astype(self.dtype)
    # Rows of the vocabulary stay apart; a row is whole wherever it is read.
    table_VD = gathered(table_VD, 'embedding')
    x_BLD = constrain(jnp.take(table_VD, tokens_BL, axis=0), TOKENS)
    if self.positions == 'learned':
      x_BLD = x_BLD + self.place(positions_BL, length)
    x_BLD = nn.Dropout(self.dropout)(x_BLD, deterministic=not train)
    embedded_BLD = x_BLD
    x_BLD, aux, caches = Stack(self.groups, self.unroll, self.remat, name='stack')(
      x_BLD,
      positions_BL=positions_BL,
      mask_BL=mask_BL,
      segments_BL=segments_BL,
      cache=caches,
      train=train,
    )
    if self.capture:
      aux.debug['embedding'] = embedded_BLD
    x_BLD = LayerNorm(self.param_dtype, name='final_norm')(x_BLD)
    if self.tied:
      logits_BLV = jnp.einsum('bld,vd->blv', x_BLD, table_VD)
    else:
      head_DV = self.param('head', normal, (self.width, self.padded_vocab), self.param_dtype)
      head_DV = gathered(head_DV.astype(self.dtype), 'head')
      logits_BLV = jnp.einsum('bld,dv->blv', x_BLD, head_DV)
    logits_BLV = constrain(logits_BLV.astype(wide(self.dtype)), CHANNELS)
    if self.padded_vocab != self.vocab:
      real_V = jnp.arange(self.padded_vocab) < self.vocab
      lowest = jnp.finfo(logits_BLV.dtype).min
      logits_BLV = jnp.where(
        real_V[None, None, :], logits_BLV, jnp.asarray(lowest, logits_BLV.dtype)
      )
    return Mixed(logits_BLV, aux, None if cache is None else (count_B, caches))

  def place(self, positions_BL, length: int) -> jax.Array:
    """Learned positions of the tokens."""
    if length > self.context:
      raise UserError(
        f'a sequence of {length} tokens was given, but the learned positions end at '
        f'{self.context} (model.context)'
      )
    table_ND = self.param(
      'position',
      nn.initializers.normal(self.init_std),
      (self.context, self.width),
      self.param_dtype,
    ).astype(self.dtype)
    table_ND = gathered(table_ND, 'position')
    if positions_BL is None:
      return table_ND[None, :length]
    return jnp.take(table_ND, positions_BL, axis=0)
