"""The MetaRouter of CHIAR-Former, which blends a layer with its input."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from sgnjax.errors import UserError
from sgnjax.mixers.base import prefix_mean
from sgnjax.ops.chunks import whole
from sgnjax.ops.dtypes import wide


class MetaRouter(nn.Module):
  """`g = sigmoid(w . mean + b)`, to blend a layer with its input: width + 1 parameters.

  causal: mean over each token's own prefix, g per token. bidirectional: mean over the example (the
  segment, where there are some). published: mean over batch and time, one g for all, which shows a
  token the future and the other examples. Called with a state (a `MeanState`; causal alone), it
  takes a row in chunks. Returns the gate, (B, L, 1) or published (1, 1, 1), and the state.
  """

  form: str
  dtype: jnp.dtype
  param_dtype: jnp.dtype
  init_std: float

  @nn.compact
  def __call__(self, x_BLD, *, mask_BL=None, segments_BL=None, state=None):
    compute = wide(self.dtype)
    x_BLD, dtype = x_BLD.astype(compute), x_BLD.dtype
    if self.form == 'published':
      if segments_BL is not None:
        raise UserError(
          'the published MetaRouter averages over the whole batch and does not honour segments; '
          'the causal and bidirectional ones do'
        )
      real_BL, _ = whole(*x_BLD.shape[:2], mask_BL, None)
      real_BL1 = real_BL[:, :, None].astype(compute)
      total_11D = jnp.sum(x_BLD * real_BL1, (0, 1), keepdims=True)
      count_111 = jnp.sum(real_BL1, (0, 1), keepdims=True)
      pooled_BLD = total_11D / jnp.maximum(count_111, jnp.ones((), compute))
    else:
      pooled_BLD, state = prefix_mean(x_BLD, self.form == 'causal', mask_BL, segments_BL, state)
    logit_BL1 = nn.Dense(
      1,
      dtype=compute,
      param_dtype=self.param_dtype,
      kernel_init=nn.initializers.normal(self.init_std),
      name='gate',
    )(pooled_BLD)
    return jax.nn.sigmoid(logit_BL1).astype(dtype), state
