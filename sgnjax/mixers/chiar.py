"""CHIAR-Former: each token goes to DCT mixing over the width or to attention, by its entropy."""

from typing import ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from sgnjax.mixers.base import Aux, LayerNorm, Mixed, Mixer, blank
from sgnjax.mixers.softmax import Softmax, empty_cache
from sgnjax.ops.dct import dct, idct
from sgnjax.ops.dtypes import wide
from sgnjax.ops.entropy import spectral_entropy
from sgnjax.ops.statistics import prefix_moments


def width_filter(x_BLD: jax.Array, w_D: jax.Array, *, released: bool = False) -> jax.Array:
  """`idct(w * dct(x))` over the width: mixes channels, never tokens (CHIAR, DCT operator).

  released: twice that, as the paper's code computes with its unscaled inverse.
  """
  compute = wide(x_BLD.dtype)
  mixed_BLD = idct(dct(x_BLD.astype(compute)) * w_D.astype(compute)[None, None, :])
  return (mixed_BLD * jnp.asarray(2 if released else 1, compute)).astype(x_BLD.dtype)


def prefix_mean(x_BLD: jax.Array, mask_BL=None, segments_BL=None) -> jax.Array:
  """Mean over the tokens up to each position, of its own example and segment."""
  compute = wide(x_BLD.dtype)
  _, mean_BDL, _ = prefix_moments(
    x_BLD.astype(compute).transpose(0, 2, 1), segments=segments_BL, mask=mask_BL
  )
  return mean_BDL.transpose(0, 2, 1)


class Operator(Mixer):
  """What the CHIAR operators share: they own their residual and norm."""

  group: ClassVar[str] = 'chiar'
  owns_residual: ClassVar[bool] = True

  tau: float = 0.5
  released: bool = False

  def dct_path(self, x_BLD: jax.Array, train: bool) -> jax.Array:
    """`LN(x + idct(w dct(x)))`."""
    w_D = self.param('w_spectral', nn.initializers.ones, (self.width,), self.param_dtype)
    mixed_BLD = width_filter(x_BLD, w_D, released=self.released)
    mixed_BLD = nn.Dropout(self.dropout)(mixed_BLD, deterministic=not train)
    return LayerNorm(self.param_dtype, name='dct_norm')(x_BLD + mixed_BLD)

  def attention_path(self, x_BLD: jax.Array, name: str = 'attention', **call) -> Mixed:
    """`LN(x + attention(x))`."""
    fields = ('width', 'heads', 'context', 'form', 'positions', 'rope_base', 'qkv_bias', 'out_bias')
    fields += ('dropout', 'init_std', 'dtype', 'param_dtype')
    attention = Softmax(**{field: getattr(self, field) for field in fields}, name=name)
    y_BLD, aux, cache = attention(x_BLD, **call)
    y_BLD = LayerNorm(self.param_dtype, name='attention_norm')(x_BLD + y_BLD)
    return Mixed(y_BLD, aux, cache)


class DCTOperator(Operator):
  """The DCT operator on every token: 3 width parameters, no view of any other token."""

  attends: ClassVar[bool] = False

  @property
  def causal(self) -> bool:
    return True

  @nn.compact
  def __call__(
    self, x_BLD, *, positions_BL=None, mask_BL=None, segments_BL=None, cache=None, train=False
  ) -> Mixed:
    y_BLD = blank(self.dct_path(x_BLD, train), mask_BL)
    return Mixed(y_BLD, Aux({}, {}, {}), cache)

  def init_cache(self, batch: int, max_len: int, dtype):
    return ()  # a token needs no other


class AttentionOperator(Operator):
  """The attention operator on every token: 4 width^2 + biases, and 2 width of norm."""

  @property
  def causal(self) -> bool:
    return self.form != 'bidirectional'

  @nn.compact
  def __call__(
    self, x_BLD, *, positions_BL=None, mask_BL=None, segments_BL=None, cache=None, train=False
  ) -> Mixed:
    y_BLD, aux, cache = self.attention_path(
      x_BLD,
      positions_BL=positions_BL,
      mask_BL=mask_BL,
      segments_BL=segments_BL,
      cache=cache,
      train=train,
    )
    return Mixed(blank(y_BLD, mask_BL), aux, cache)

  def init_cache(self, batch: int, max_len: int, dtype):
    if not self.causal:
      return super().init_cache(batch, max_len, dtype)
    return empty_cache(batch, max_len, self.heads, self.width // self.heads, dtype)


class Routed(AttentionOperator):
  """Spectral-entropy router: a token above tau takes the attention operator, else the DCT operator.

  The route depends on the token alone. Both operators run on every token here, and every token
  gives a key and a value. Threshold routing has no parameters and no gradient. Metric:
  `attention_share`, the share of real tokens routed to attention.
  """

  @nn.compact
  def __call__(
    self, x_BLD, *, positions_BL=None, mask_BL=None, segments_BL=None, cache=None, train=False
  ) -> Mixed:
    compute = wide(x_BLD.dtype)
    entropy_BL = spectral_entropy(x_BLD.astype(compute), released=self.released)
    attends_BL = entropy_BL > jnp.asarray(self.tau, compute)
    dct_BLD = self.dct_path(x_BLD, train)
    attention_BLD, aux, cache = self.attention_path(
      x_BLD,
      positions_BL=positions_BL,
      mask_BL=mask_BL,
      segments_BL=segments_BL,
      cache=cache,
      train=train,
    )
    y_BLD = jnp.where(attends_BL[:, :, None], attention_BLD, dct_BLD)
    real_BL = jnp.ones_like(attends_BL) if mask_BL is None else mask_BL
    count = jnp.maximum(jnp.sum(real_BL, dtype=compute), jnp.ones((), compute))
    metrics = {'attention_share': jnp.sum(attends_BL & real_BL, dtype=compute) / count}
    debug = {'entropy': entropy_BL, 'route': attends_BL} if self.capture else {}
    return Mixed(blank(y_BLD, mask_BL), Aux(aux.losses, metrics, debug), cache)


class MetaRouter(nn.Module):
  """`g = sigmoid(w . mean + b)`, to blend a layer with its input: width + 1 parameters.

  causal: mean over each token's own prefix, g per token. bidirectional: mean over the example.
  published: mean over batch and time, one g for all, which shows a token the future and the other
  examples.
  """

  form: str
  dtype: jnp.dtype
  param_dtype: jnp.dtype
  init_std: float

  @nn.compact
  def __call__(self, x_BLD, *, mask_BL=None, segments_BL=None) -> jax.Array:
    compute = wide(self.dtype)
    if self.form == 'causal':
      pooled_BLD = prefix_mean(x_BLD, mask_BL, segments_BL)
    else:
      real_BL = jnp.ones(x_BLD.shape[:2], compute) if mask_BL is None else mask_BL.astype(compute)
      axes = (0, 1) if self.form == 'published' else (1,)
      total_BLD = jnp.sum(x_BLD.astype(compute) * real_BL[:, :, None], axes, keepdims=True)
      count_BLD = jnp.sum(real_BL[:, :, None], axes, keepdims=True)
      pooled_BLD = total_BLD / jnp.maximum(count_BLD, jnp.ones((), compute))
    logit_BL1 = nn.Dense(
      1,
      dtype=compute,
      param_dtype=self.param_dtype,
      kernel_init=nn.initializers.normal(self.init_std),
      name='gate',
    )(pooled_BLD)
    return jax.nn.sigmoid(logit_BL1).astype(x_BLD.dtype)
