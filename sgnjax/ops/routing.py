"""Which operator a token takes: thresholds, draws, straight-through gates, and their collapse.

Operators are numbered 0 to K - 1 along the last axis of gates.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from sgnjax.ops.dtypes import wide

EPSILON = 1e-8


def by_thresholds(value_BL: jax.Array, edges: Sequence[float]) -> jax.Array:
  """How many of the ascending edges lie below each value: the number of its operator, int32."""
  above = [(value_BL > jnp.asarray(edge, value_BL.dtype)).astype(jnp.int32) for edge in edges]
  return sum(above, jnp.zeros(value_BL.shape, jnp.int32))


def draw(positions_BL: jax.Array, key: jax.Array) -> jax.Array:
  """A number of (0, 1] for each position, float32, that looks random and is always the same.

  key: a float scalar, of which 24 bits count; another one gives independent numbers. By a 32-bit
  integer mixer, so the result depends on no other position, shape, backend or dtype.
  """
  bits = jnp.floor(key.astype(jnp.float32) * jnp.float32(2**24)).astype(jnp.int32)
  hashed_BL = _mix(_mix(positions_BL.astype(jnp.uint32)) ^ _mix(bits.astype(jnp.uint32)))
  return 1 - (hashed_BL >> jnp.uint32(8)).astype(jnp.float32) * jnp.float32(2**-24)


def _mix(x: jax.Array) -> jax.Array:
  """A bijection of 32 bits in which each input bit flips about half of the output's."""
  x = x + jnp.uint32(0x9E3779B9)  # zero is a fixed point of what follows
  for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
    x = (x ^ (x >> jnp.uint32(shift))) * jnp.uint32(factor)
  return x ^ (x >> jnp.uint32(16))


def straight_through(p_BLK: jax.Array) -> jax.Array:
  """One-hot of the likeliest operator, exactly, with the gradient of p (hard routing)."""
  one_hot_BLK = jax.nn.one_hot(jnp.argmax(p_BLK, -1), p_BLK.shape[-1], dtype=p_BLK.dtype)
  return one_hot_BLK + (p_BLK - jax.lax.stop_gradient(p_BLK))


def blend(gates_BLK: jax.Array, outputs: Sequence[jax.Array]) -> jax.Array:
  """`sum_k gate_k output_k` of K arrays (B, L, D), summed in float32 or wider, in their dtype."""
  compute = wide(outputs[0].dtype)
  terms = [
    gates_BLK[:, :, k, None].astype(compute) * y_BLD.astype(compute)
    for k, y_BLD in enumerate(outputs)
  ]
  return sum(terms[1:], terms[0]).astype(outputs[0].dtype)


def choose(route_BL: jax.Array, outputs: Sequence[jax.Array]) -> jax.Array:
  """The output (B, L, D) of the operator that each token's route names."""
  chosen_BLD = outputs[0]
  for k, y_BLD in enumerate(outputs[1:], 1):
    chosen_BLD = jnp.where((route_BL == k)[:, :, None], y_BLD, chosen_BLD)
  return chosen_BLD


def shares(gates_BLK: jax.Array, mask_BL: jax.Array | None = None) -> jax.Array:
  """Mean gate of each operator over the real tokens, (K,), in float32 or wider; 0 without any."""
  gates_BLK = gates_BLK.astype(wide(gates_BLK.dtype))
  if mask_BL is None:
    return jnp.mean(gates_BLK, (0, 1))
  real_BL1 = mask_BL[:, :, None].astype(gates_BLK.dtype)
  count = jnp.maximum(jnp.sum(real_BL1), jnp.ones((), gates_BLK.dtype))
  return jnp.sum(gates_BLK * real_BL1, (0, 1)) / count


def gate_entropy(share_K: jax.Array) -> jax.Array:
  """`-sum_k m_k log(m_k + 1e-8)` of the mean gates m, in nats: 0 where one operator takes all.

  Its negative is CHIAR-Former's regulariser against collapse.
  """
  return -jnp.sum(share_K * jnp.log(share_K + jnp.asarray(EPSILON, share_K.dtype)))
