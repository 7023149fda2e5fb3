"""One layer: a mixer and an FFN in one of four arrangements."""

from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp

from sgnjax.mixers import Aux, Mixed, Mixer
from sgnjax.mixers.base import LayerNorm, blank, dense
from sgnjax.mixers.chiar import MetaRouter
from sgnjax.ops.dtypes import wide

BLOCKS = ('prenorm', 'postnorm', 'sgn', 'chiar')


class FFN(nn.Module):
  """`W2 gelu(W1 x + b1) + b2`, exact GELU as in all four papers' code."""

  mixer: Mixer  # for its width, dtype and initial weights
  hidden: int

  @nn.compact
  def __call__(self, x_BLD: jax.Array, train: bool) -> jax.Array:
    m = self.mixer
    h_BLF = nn.gelu(dense(m, self.hidden, 'up', True)(x_BLD), approximate=False)
    y_BLD = dense(m, m.width, 'down', True)(h_BLF)
    return nn.Dropout(m.dropout)(y_BLD, deterministic=not train)


class Block(nn.Module):
  """A layer around the mixer that `make` builds.

  prenorm: `x += mix(LN x); x += ffn(LN x)`. postnorm: `x = LN(x + mix x); x = LN(x + ffn x)`.
  sgn (SGN, Algorithm 1): `ffn(LN(mix(x) + x))`, no residual around the FFN. chiar: the mixer owns
  its residual and norm, then `LN(x + ffn x)`; with `meta` the layer is blended with its input.
  """

  make: Callable[..., Mixer]
  kind: str
  hidden: int
  meta: bool = False

  @property
  def causal(self) -> bool:
    """Whether this layer is blind to the future and to other examples."""
    mixer = self.make(parent=None)
    return mixer.causal and not (self.meta and mixer.form != 'causal')

  @nn.compact
  def __call__(self, x_BLD, *, positions_BL, mask_BL, segments_BL, cache, train) -> Mixed:
    mixer = self.make(name='mixer')

    def norm(x_BLD, name):
      return LayerNorm(mixer.param_dtype, name=name)(x_BLD)

    ffn = FFN(self.make(), self.hidden, name='ffn')
    mixed_BLD, aux, cache = mixer(
      norm(x_BLD, 'mixer_norm') if self.kind == 'prenorm' else x_BLD,
      positions_BL=positions_BL,
      mask_BL=mask_BL,
      segments_BL=segments_BL,
      cache=cache,
      train=train,
    )
    if self.kind == 'prenorm':
      h_BLD = x_BLD + mixed_BLD
      y_BLD = h_BLD + ffn(norm(h_BLD, 'ffn_norm'), train)
    elif self.kind == 'postnorm':
      h_BLD = norm(x_BLD + mixed_BLD, 'mixer_norm')
      y_BLD = norm(h_BLD + ffn(h_BLD, train), 'ffn_norm')
    elif self.kind == 'sgn':
      y_BLD = ffn(norm(mixed_BLD + x_BLD, 'mixer_norm'), train)
    else:
      y_BLD = norm(mixed_BLD + ffn(mixed_BLD, train), 'ffn_norm')
    metrics, debug = dict(aux.metrics), dict(aux.debug)
    if self.meta:
      router = MetaRouter(
        mixer.form, mixer.dtype, mixer.param_dtype, mixer.init_std, name='meta_router'
      )
      gate_BL1 = router(x_BLD, mask_BL=mask_BL, segments_BL=segments_BL)
      y_BLD = gate_BL1 * y_BLD + (jnp.ones((), gate_BL1.dtype) - gate_BL1) * x_BLD
      metrics['meta_gate'] = jnp.mean(gate_BL1.astype(wide(mixer.dtype)))
      if mixer.capture:
        debug['meta_gate'] = gate_BL1[:, :, 0]
    y_BLD = blank(y_BLD, mask_BL)
    if mixer.capture:
      debug['hidden'] = y_BLD
    return Mixed(y_BLD, Aux(aux.losses, metrics, debug), cache)
