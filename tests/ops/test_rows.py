"""Transforms of long sequences, whose rows XLA's CPU is given in blocks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, PartitionSpec

from sgnjax.ops import rows
from sgnjax.ops.backend import assumed
from sgnjax.ops.dct import dct, dct_gate, idct
from sgnjax.ops.kernels import causal_conv, causal_conv_direct

pytestmark = pytest.mark.usefixtures('float64')


def by_matrix(x, gate):
  return idct(gate[None] * dct(x, 1, path='matrix'), 1, path='matrix')


def by_fft(x, gate):
  return dct_gate(x, gate, path='fft')


def drawn(n):
  rng = np.random.default_rng(n)
  return [jnp.asarray(rng.normal(size=s)) for s in ((2, n, 4), (n, 4), (2, n, 4))]


def with_gradients(op):
  @jax.jit
  def run(x, weight, gradient):
    y, pullback = jax.vjp(op, x, weight)
    return (y, *pullback(gradient))

  return run


@pytest.mark.parametrize('blocks', [False, True])
@pytest.mark.parametrize('n', [1, 2, 24, 37])
@pytest.mark.parametrize(
  ('op', 'truth'), [(by_fft, by_matrix), (causal_conv, causal_conv_direct)], ids=['dct', 'conv']
)
def test_in_blocks_or_whole_the_operation_and_its_gradients_are_the_dense_ones(
  op, truth, n, blocks, monkeypatch
):
  monkeypatch.setattr(rows, 'BLOCK', 8)
  monkeypatch.setattr(rows, 'LONG', 24 if blocks else 100)
  for ours, theirs in zip(
    with_gradients(op)(*drawn(n)), with_gradients(truth)(*drawn(n)), strict=True
  ):
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12)


@pytest.mark.parametrize('op', [by_fft, causal_conv])
def test_blocks_inside_shard_map_vmap_and_checkpoint(op, monkeypatch):
  monkeypatch.setattr(rows, 'BLOCK', 8)
  monkeypatch.setattr(rows, 'LONG', 24)
  mesh = jax.make_mesh((2, 2), ('rows', 'channels'), axis_types=(AxisType.Auto,) * 2)
  x_spec = PartitionSpec('rows', None, 'channels')
  split = jax.shard_map(
    op, mesh=mesh, in_specs=(x_spec, PartitionSpec(None, 'channels')), out_specs=x_spec
  )

  def apart(x, weight):
    return jax.vmap(op, (0, None))(x[:, None], weight)[:, 0]

  arrays = drawn(37)
  truth = with_gradients(op)(*arrays)
  for same in (split, apart, jax.checkpoint(op)):
    for ours, theirs in zip(with_gradients(same)(*arrays), truth, strict=True):
      np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12)


def test_accelerators_take_no_blocks():
  with assumed('gpu'):
    assert not rows.in_blocks(rows.LONG)
  with assumed('cpu'):
    assert rows.in_blocks(rows.LONG)
    assert not rows.in_blocks(rows.LONG - 1)


def test_forward_mode_through_short_sequences():
  x, gate, direction = drawn(9)
  for op in (by_fft, causal_conv):
    y, tangent = jax.jvp(lambda x, op=op: op(x, gate), (x,), (direction,))
    np.testing.assert_allclose(tangent, op(direction, gate), atol=1e-13)
    assert y.shape == x.shape
