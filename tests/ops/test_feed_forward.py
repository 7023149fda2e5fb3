import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sgnjax.ops import feed_forward as ops
from sgnjax.ops.backend import assumed
from sgnjax.ops.feed_forward import feed_forward, tile_of

T, D, F = 12, 5, 8


def inputs(dtype=jnp.float64):
  rng = np.random.default_rng(0)
  shapes = (T, D), (D, F), (F,), (F, D), (D,)
  return [jnp.asarray(rng.normal(size=shape), dtype) for shape in shapes]


def plain(x, up, up_bias, down, down_bias):
  return nn.gelu(x @ up + up_bias[None, :], approximate=False) @ down + down_bias[None, :]


@pytest.mark.usefixtures('float64')
def test_tiles_give_what_the_whole_gives():
  def compared(op):
    return jax.jit(jax.value_and_grad(lambda *a: jnp.sum(jnp.sin(op(*a))), range(5)))(*inputs())

  ours, our_grads = compared(lambda *a: feed_forward(*a, 4))
  theirs, their_grads = compared(plain)
  np.testing.assert_allclose(ours, theirs, rtol=1e-13)
  for ours, theirs in zip(our_grads, their_grads, strict=True):
    np.testing.assert_allclose(ours, theirs, atol=1e-12)


def test_bfloat16_is_of_its_dtype_and_near():
  x, *weights = inputs(jnp.float32)
  y = feed_forward(x.astype(jnp.bfloat16), *weights, 4)
  assert y.dtype == jnp.bfloat16
  np.testing.assert_allclose(y.astype(jnp.float32), plain(x, *weights), atol=0.2)


def test_tiles_where_a_cpu_has_many_tokens_and_nowhere_else():
  most = ops.TILE // 1024
  assert tile_of(16 * 256, 1024) == most
  assert tile_of(64, 1024) is None
  assert tile_of(8191, 1024) is None  # a prime number of tokens
  with assumed('gpu'):
    assert tile_of(16 * 256, 1024) is None
