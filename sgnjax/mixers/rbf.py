"""The RBF operator of CHIAR-Former v1: softmax attention over random Fourier features."""

import math
from typing import ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from sgnjax.mixers.base import Aux, Mixed, Mixer, blank
from sgnjax.mixers.ffn import ffn_of
from sgnjax.mixers.softmax import KeyValueCache, append
from sgnjax.ops.attention import attention, visible
from sgnjax.ops.dtypes import wide
from sgnjax.parallel.sequence import WHOLE_ROWS, constrain


def fourier_features(x_BLD: jax.Array, omega_DR: jax.Array) -> jax.Array:
  """`[cos, sin](x Omega / sqrt(R))`, (B, L, 2R): random Fourier features, not scaled to unit norm.

  Source: CHIAR-Former v1, RBF operator, with the scale of its code.
  """
  angle_BLR = x_BLD @ omega_DR / jnp.asarray(math.sqrt(omega_DR.shape[1]), x_BLD.dtype)
  return jnp.concatenate([jnp.cos(angle_BLR), jnp.sin(angle_BLR)], -1)


class RBF(Mixer):
  """`FFN(softmax(phi phi^T) phi W + b)`, phi the Fourier features of x under a random Omega.

  Softmax over all tokens in the published form (its code has no mask at all), over the prefix in
  the causal one, over the example's real tokens in the bidirectional one; padding and other
  segments are left out in each. Omega (width, R), R = rbf_features, N(0, 2 rbf_gamma), is drawn
  once and does not train: it lies among the parameters, so that each layer and checkpoint has its
  own, and takes neither gradient nor weight decay.

  2 R width + width parameters, 8 width^2 + 5 width of the FFN (4 width wide, as released), and
  R width that do not train. Cache: 2 R numbers a token.
  """

  group: ClassVar[str] = 'chiar'

  rbf_features: int = 64
  rbf_gamma: float = 1.0

  @nn.compact
  def __call__(
    self, x_BLD, *, positions_BL=None, mask_BL=None, segments_BL=None, cache=None, train=False
  ) -> Mixed:
    self.refuse(cache=cache)
    compute = wide(x_BLD.dtype)
    normal = nn.initializers.normal(math.sqrt(2 * self.rbf_gamma))
    omega_DR = self.param('frozen_omega', normal, (self.width, self.rbf_features), self.param_dtype)
    omega_DR = jax.lax.stop_gradient(omega_DR).astype(compute)
    phi_BL1F = fourier_features(x_BLD.astype(compute), omega_DR)[:, :, None]
    keys_B1SF = constrain(phi_BL1F.swapaxes(1, 2), WHOLE_ROWS)
    if cache is None:
      what = {'mask_BL': mask_BL, 'segments_BL': segments_BL}
      visible_BLS = visible(x_BLD.shape[1], causal=self.causal, **what)
    else:
      cache, visible_BLS, _ = append(cache, {'k_BHSF': keys_B1SF}, mask_BL, segments_BL)
      keys_B1SF = cache.k_BHSF.astype(compute)
    y_BL1F = attention(phi_BL1F, keys_B1SF, keys_B1SF, scale=1.0, visible_BLS=visible_BLS)
    y_BLD = self.dense(self.width, 'out', True)(y_BL1F[:, :, 0].astype(x_BLD.dtype))
    y_BLD = ffn_of(self, 4 * self.width)(y_BLD, train)
    return Mixed(blank(y_BLD, mask_BL), Aux({}, {}, {}), cache)

  def empty_cache(self, batch: int, max_len: int, dtype) -> KeyValueCache:
    return KeyValueCache(
      k_BHSF=jnp.zeros((batch, 1, max_len, 2 * self.rbf_features), wide(dtype)),
      v_BHSE=None,  # the keys are the values
      gate_BHSX=None,
      segments_BS=jnp.zeros((batch, max_len), jnp.int32),
      length_B=jnp.zeros((batch,), jnp.int32),
      filter=None,
      gate=None,
    )
