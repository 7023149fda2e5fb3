"""One layer: a mixer and an FFN in one of five arrangements."""

from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp

from sgnjax.errors import UserError
from sgnjax.mixers import Aux, Mixed, Mixer
from sgnjax.mixers.base import LayerNorm, blank
from sgnjax.mixers.ffn import ffn_of
from sgnjax.mixers.meta_router import MetaRouter
from sgnjax.ops.averages import empty_mean
from sgnjax.ops.routing import shares

BLOCKS = ('prenorm', 'postnorm', 'sgn', 'sgn_bare', 'chiar')


class Block(nn.Module):
  """A layer around the mixer that `make` builds.

  prenorm: `x += mix(LN x); x += ffn(LN x)`. postnorm: `x = LN(x + mix x); x = LN(x + ffn x)`.
  sgn (SGN, Algorithm 1): `ffn(LN(mix(x) + x))`, no residual around the FFN. sgn_bare (of its
  ablation): `ffn(LN(mix(x)))`, none at all. chiar: the mixer owns its residual and norm, then
  `LN(x + ffn x)`; with `meta` the layer is blended with its input.
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

  def init_cache(self, batch: int, max_len: int, dtype):
    """The mixer's cache; with `meta`, (that, the MetaRouter's state). Raises UserError."""
    mixer = self.make(parent=None)
    cache = mixer.init_cache(batch, max_len, dtype)
    if not self.meta:
      return cache
    if mixer.form != 'causal':
      raise UserError(
        f'the {mixer.form} MetaRouter keeps no cache, since its mean runs over tokens still to '
        'come: run the whole sequence at once'
      )
    return cache, empty_mean(batch, mixer.width, dtype)

  @nn.compact
  def __call__(self, x_BLD, *, mask_BL, **call) -> Mixed:
    mixer = self.make(parent=None)
    call['mask_BL'] = mask_BL
    y_BLD, aux, cache = self.blended(x_BLD, call) if self.meta else self.layer(x_BLD, call)
    y_BLD = blank(y_BLD, mask_BL)
    if mixer.capture:
      aux.debug['hidden'] = y_BLD
    return Mixed(y_BLD, aux, cache)

  def layer(self, x_BLD: jax.Array, call: dict) -> Mixed:
    """Mixer and FFN in the arrangement of `kind`."""
    mixer = self.make(name='mixer')
    ffn = ffn_of(mixer, self.hidden)

    def norm(x_BLD, name):
      return LayerNorm(mixer.param_dtype, name=name)(x_BLD)

    mixed_BLD, aux, cache = mixer(
      norm(x_BLD, 'mixer_norm') if self.kind == 'prenorm' else x_BLD, **call
    )
    if self.kind == 'prenorm':
      h_BLD = x_BLD + mixed_BLD
      y_BLD = h_BLD + ffn(norm(h_BLD, 'ffn_norm'), call['train'])
    elif self.kind == 'postnorm':
      h_BLD = norm(x_BLD + mixed_BLD, 'mixer_norm')
      y_BLD = norm(h_BLD + ffn(h_BLD, call['train']), 'ffn_norm')
    elif self.kind == 'sgn':
      y_BLD = ffn(norm(mixed_BLD + x_BLD, 'mixer_norm'), call['train'])
    elif self.kind == 'sgn_bare':
      y_BLD = ffn(norm(mixed_BLD, 'mixer_norm'), call['train'])
    else:
      y_BLD = norm(mixed_BLD + ffn(mixed_BLD, call['train']), 'ffn_norm')
    return Mixed(y_BLD, Aux(aux.losses, dict(aux.metrics), dict(aux.debug)), cache)

  def blended(self, x_BLD: jax.Array, call: dict) -> Mixed:
    """The layer under its MetaRouter: `g layer(x) + (1 - g) x`.

    With `meta_hard`, at inference: layer(x) where g > 1/2, else x, by token (published: for the
    whole batch); the layer is not computed at all where no real token of the chunk takes it.
    """
    mixer = self.make(parent=None)
    inner, state = (None, None) if call['cache'] is None else call['cache']
    call = call | {'cache': inner}
    gate_BL1, state = MetaRouter(
      mixer.form, mixer.dtype, mixer.param_dtype, mixer.init_std, name='meta_router'
    )(x_BLD, mask_BL=call['mask_BL'], segments_BL=call['segments_BL'], state=state)
    gates_BL1 = jnp.broadcast_to(gate_BL1, (*x_BLD.shape[:2], 1))
    taken_BL1 = gates_BL1 > jnp.asarray(0.5, gates_BL1.dtype)
    if mixer.meta_hard and not call['train'] and not self.is_initializing():
      needed = taken_BL1[:, :, 0]
      needed = jnp.any(needed if call['mask_BL'] is None else needed & call['mask_BL'])
      y_BLD, aux, cache = nn.cond(
        needed,
        lambda block, x_BLD: block.layer(x_BLD, call),
        # What a layer without other tokens gives back beside its output (the DCT operator).
        lambda block, x_BLD: Mixed(x_BLD, Aux({}, {}, {}), call['cache']),
        self,
        x_BLD,
      )
      y_BLD = jnp.where(taken_BL1, y_BLD, x_BLD)
    else:
      y_BLD, aux, cache = self.layer(x_BLD, call)
      y_BLD = gate_BL1 * y_BLD + (jnp.ones((), gate_BL1.dtype) - gate_BL1) * x_BLD
    aux.metrics['meta_gate'] = shares(gates_BL1, call['mask_BL'])[0]
    if mixer.meta_hard:
      aux.metrics['meta_taken_share'] = shares(taken_BL1.astype(jnp.float32), call['mask_BL'])[0]
    if mixer.capture:
      aux.debug['meta_gate'] = gate_BL1[:, :, 0]
    return Mixed(y_BLD, aux, None if state is None else (cache, state))
