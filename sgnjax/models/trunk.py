"""What language models and encoders share: embedding, layers, final norm, and logits of tokens."""

from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from sgnjax.errors import UserError
from sgnjax.mixers import Mixed
from sgnjax.mixers.base import LayerNorm
from sgnjax.models.stack import Group, Stack
from sgnjax.models.stretches import summed
from sgnjax.ops.dtypes import wide
from sgnjax.parallel.sequence import CHANNELS, TOKENS, constrain, gathered


class Trunk(nn.Module, kw_only=True):
  """Base of `Decoder` and `Encoder`, which call these methods from their own compact one.

  vocab: tokens that a text may have (0: none is read). The embedding has `special` rows more, and
  is padded to a multiple of `vocab_multiple`; logits of all these are the lowest finite number, so
  that no loss and no sample sees them.
  """

  special: ClassVar[int] = 0

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
    return -(-(self.vocab + self.special) // self.vocab_multiple) * self.vocab_multiple

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

  def normal(self, name: str, *shape: int) -> jax.Array:
    """A parameter that starts as N(0, init_std)."""
    return self.param(name, nn.initializers.normal(self.init_std), shape, self.param_dtype)

  def table(self) -> jax.Array:
    """The embedding, (padded_vocab, width)."""
    table_VD = self.normal('embedding', self.padded_vocab, self.width).astype(self.dtype)
    # Rows of the vocabulary stay apart; a row is whole wherever it is read.
    return gathered(table_VD, 'embedding')

  def run(
    self, x_BLD, *, positions_BL=None, mask_BL=None, segments_BL=None, cache=None, train=False
  ) -> Mixed:
    """Embedded tokens through positions, layers and the final LayerNorm."""
    x_BLD = constrain(x_BLD, TOKENS)
    if self.positions == 'learned':
      x_BLD = x_BLD + self.place(positions_BL, x_BLD.shape[1])
    x_BLD = nn.Dropout(self.dropout)(x_BLD, deterministic=not train)
    embedded_BLD = x_BLD
    x_BLD, aux, cache = Stack(self.groups, self.unroll, self.remat, name='stack')(
      x_BLD,
      positions_BL=positions_BL,
      mask_BL=mask_BL,
      segments_BL=segments_BL,
      cache=cache,
      train=train,
    )
    if self.capture:
      aux.debug['embedding'] = embedded_BLD
    return Mixed(LayerNorm(self.param_dtype, name='final_norm')(x_BLD), aux, cache)

  def place(self, positions_BL, length: int) -> jax.Array:
    """Learned positions of the tokens."""
    if length > self.context:
      raise UserError(
        f'a sequence of {length} tokens was given, but the learned positions end at '
        f'{self.context} (model.context)'
      )
    table_ND = self.normal('position', self.context, self.width).astype(self.dtype)
    table_ND = gathered(table_ND, 'position')
    if positions_BL is None:
      return table_ND[None, :length]
    return jnp.take(table_ND, positions_BL, axis=0)

  def token_outputs(self, x_BLD: jax.Array, table_VD: jax.Array, score=None):
    """Logits of tokens (B, L, padded_vocab), by the embedding (tied) or a head of their own.

    score: (sums, batch, count); the sums of these logits instead, as `stretches.summed` makes them.
    """
    if self.tied:
      axes, weight = 'bld,vd->blv', table_VD
    else:
      head_DV = self.normal('head', self.width, self.padded_vocab).astype(self.dtype)
      axes, weight = 'bld,dv->blv', gathered(head_DV, 'head')

    def logits_of(x_BLD):
      return self.masked(jnp.einsum(axes, x_BLD, weight))

    if score is None:
      return logits_of(x_BLD)
    sums, batch, count = score
    return summed(sums, logits_of, x_BLD, batch, count)

  def masked(self, logits_BLV: jax.Array) -> jax.Array:
    """Logits in float32 or wider, those of the padding the lowest finite number."""
    logits_BLV = constrain(logits_BLV.astype(wide(self.dtype)), CHANNELS)
    if self.padded_vocab != self.vocab:
      real_V = jnp.arange(self.padded_vocab) < self.vocab
      lowest = jnp.finfo(logits_BLV.dtype).min
      logits_BLV = jnp.where(
        real_V[None, None, :], logits_BLV, jnp.asarray(lowest, logits_BLV.dtype)
      )
    return logits_BLV

  def outputs_of(self, x_BLD: jax.Array, mask_BL, outputs: int, name: str, *, cls=False):
    """(B, outputs), a linear layer from the mean of each row's real tokens, or from its first."""
    compute = wide(self.dtype)
    x_BLD = x_BLD.astype(compute)
    if cls:
      pooled_BD = x_BLD[:, 0]
    elif mask_BL is None:
      pooled_BD = jnp.mean(x_BLD, axis=1)
    else:
      real_BL = mask_BL.astype(compute)
      count_B = jnp.maximum(jnp.sum(real_BL, axis=1), jnp.ones((), compute))
      pooled_BD = jnp.einsum('bld,bl->bd', x_BLD, real_BL) / count_B[:, None]
    return nn.Dense(
      outputs,
      dtype=compute,
      param_dtype=self.param_dtype,
      kernel_init=nn.initializers.normal(self.init_std),
      name=name,
    )(pooled_BD)
