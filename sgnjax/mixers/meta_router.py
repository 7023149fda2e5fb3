"""The MetaRouter of CHIAR-Former, which blends a layer with its input."""

from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from sgnjax.errors import UserError
from sgnjax.ops.attention import visible
from sgnjax.ops.dtypes import wide
from sgnjax.ops.statistics import Moments, prefix_moments


class MetaState(NamedTuple):
  """Mean and number of the tokens so far of each example's segment, and the segment's number."""

  mean_BD: jax.Array
  count_B: jax.Array
  segment_B: jax.Array


def init_state(batch: int, width: int, dtype) -> MetaState:
  """Before the first token: `width` numbers in float32 or wider and 8 bytes an example."""
  return MetaState(
    jnp.zeros((batch, width), wide(dtype)),
    jnp.zeros((batch,), jnp.int32),
    jnp.zeros((batch,), jnp.int32),
  )


def prefix_mean(
  x_BLD: jax.Array, mask_BL=None, segments_BL=None, before: MetaState | None = None
) -> tuple[jax.Array, MetaState | None]:
  """Mean over the tokens up to each position, of its own example and segment; the state after.

  before: the state that earlier chunks left. Padding leaves it as it was.
  """
  compute = wide(x_BLD.dtype)
  x_BDL = x_BLD.astype(compute).transpose(0, 2, 1)
  if before is None:
    _, mean_BDL, _ = prefix_moments(x_BDL, segments=segments_BL, mask=mask_BL)
    return mean_BDL.transpose(0, 2, 1), None
  if segments_BL is None:
    segments_BL = jnp.zeros(x_BLD.shape[:2], jnp.int32)
  count_BD = jnp.broadcast_to(before.count_B.astype(compute)[:, None], before.mean_BD.shape)
  moments = Moments(count_BD, before.mean_BD.astype(compute), jnp.zeros_like(count_BD))
  count_BDL, mean_BDL, _ = prefix_moments(
    x_BDL, segments=segments_BL, mask=mask_BL, before=(moments, before.segment_B)
  )
  mean_BLD = mean_BDL.transpose(0, 2, 1)
  batch, length = segments_BL.shape
  new_B = jnp.full((batch,), length, jnp.int32)
  if mask_BL is not None:
    new_B = jnp.sum(mask_BL, axis=1, dtype=jnp.int32)

  def last(a_BLX, old_BX):
    at = jnp.maximum(new_B - 1, 0).reshape(batch, *(1,) * (a_BLX.ndim - 1))
    a_BX = jnp.take_along_axis(a_BLX, at, axis=1)[:, 0].astype(old_BX.dtype)
    return jnp.where(new_B.reshape(batch, *(1,) * (a_BX.ndim - 1)) > 0, a_BX, old_BX)

  after = MetaState(
    last(mean_BLD, before.mean_BD),
    last(count_BDL[:, 0], before.count_B),
    last(segments_BL, before.segment_B),
  )
  return mean_BLD, after


def segment_mean(x_BLD: jax.Array, mask_BL, segments_BL) -> jax.Array:
  """Mean over the real tokens of each position's own segment."""
  compute = wide(x_BLD.dtype)
  same_BLS = visible(x_BLD.shape[1], causal=False, mask_BL=mask_BL, segments_BL=segments_BL)
  same_BLS = same_BLS.astype(compute)
  count_BL1 = jnp.maximum(jnp.sum(same_BLS, -1, keepdims=True), jnp.ones((), compute))
  return jnp.einsum('bls,bsd->bld', same_BLS, x_BLD.astype(compute)) / count_BL1


class MetaRouter(nn.Module):
  """`g = sigmoid(w . mean + b)`, to blend a layer with its input: width + 1 parameters.

  causal: mean over each token's own prefix, g per token. bidirectional: mean over the example (the
  segment, where there are some). published: mean over batch and time, one g for all, which shows a
  token the future and the other examples. Called with a state (`init_state`; causal alone), it
  takes a row in chunks. Returns the gate (B or 1, L or 1, 1) and the state.
  """

  form: str
  dtype: jnp.dtype
  param_dtype: jnp.dtype
  init_std: float

  @nn.compact
  def __call__(self, x_BLD, *, mask_BL=None, segments_BL=None, state=None):
    compute = wide(self.dtype)
    if self.form == 'causal':
      pooled_BLD, state = prefix_mean(x_BLD, mask_BL, segments_BL, state)
    elif self.form == 'bidirectional' and segments_BL is not None:
      pooled_BLD = segment_mean(x_BLD, mask_BL, segments_BL)
    elif segments_BL is not None:
      raise UserError(
        'the published MetaRouter averages over the whole batch and does not honour segments; the '
        'causal and bidirectional ones do'
      )
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
    return jax.nn.sigmoid(logit_BL1).astype(x_BLD.dtype), state
