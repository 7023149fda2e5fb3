"""Sums over the tokens' logits, stretch after stretch: those of all tokens are never there at once.

A million tokens of a vocabulary of 50,257 have 200 GB of logits in float32, and as much again of
their gradients.
"""

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp

from sgnjax.parallel.sequence import TOKENS, constrain, shards

MOST = 1 << 28  # logits of a device at once: 1 GiB in float32


def stretches(batch: int, length: int, vocab: int) -> int:
  """How many stretches rows of a length are cut into, each of the same number of their tokens."""
  rows, parts = shards()
  count, logits = 1, batch * length * vocab // (rows * parts)
  while logits > count * MOST and length // parts % (2 * count) == 0:
    count *= 2
  return count


def summed(
  sums: Callable, logits_of: Callable, x_BLD: jax.Array, batch: Mapping[str, jax.Array], count: int
) -> dict[str, jax.Array]:
  """`sums(logits_of(x), batch)`, which add up over tokens, of `count` stretches in turn.

  x: (B, L, D); arrays of the batch (B, L). A stretch takes its share of each device's tokens. The
  backward pass makes its logits a second time.
  """
  _, parts = shards()

  def cut(a):
    rows, length, *rest = a.shape
    a = a.reshape(rows, parts, count, length // (parts * count), *rest)
    return jnp.moveaxis(a, 2, 0).reshape(count, rows, length // count, *rest)

  @jax.checkpoint
  def of_one(inputs):
    x_BlD, batch = constrain(inputs, TOKENS)
    return sums(logits_of(x_BlD), batch)

  inputs = (cut(x_BLD), {key: cut(a) for key, a in batch.items()})
  shapes = jax.eval_shape(of_one, jax.tree.map(lambda a: a[0], inputs))
  zeros = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), shapes)

  def add(total, inputs):
    return jax.tree.map(jnp.add, total, of_one(inputs)), None

  return jax.lax.scan(add, zeros, inputs)[0]
