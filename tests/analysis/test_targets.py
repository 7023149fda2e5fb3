"""Names of machines, times of collectives on them, and programs compiled for a TPU slice."""

import importlib.util
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from sgnjax.analysis import roofline, targets
from sgnjax.analysis.collectives import Collective, Total, collectives, summary
from sgnjax.errors import UserError
from sgnjax.parallel.mesh import AXES


@pytest.mark.parametrize('name', targets.names())
def test_every_name_is_found_and_can_be_resized(name):
  target = targets.find(name)
  assert target.devices == math.prod(target.sides) or not target.sides
  assert targets.resize(target, target.devices) == target


def test_names_count_what_their_maker_counts():
  assert targets.find('v5e-64').sides == (8, 8)
  assert (targets.find('v5p-128').devices, targets.find('v5p-128').sides) == (64, (4, 4, 4))
  assert targets.find('h100-24').devices == 24
  assert targets.find('cpu-3').devices == 3
  assert targets.resize(targets.find('v5e-64'), 24) is None
  assert targets.resize(targets.find('v5p-128'), 32).name == 'v5p-64'


@pytest.mark.parametrize(
  ('name', 'said'),
  [
    ('v5e-63', "did you mean 'v5e-64'"),
    ('v5p-7', "did you mean 'v5p-8'"),
    ('h100', "did you mean 'h100-8'"),
    ('h300-8', "did you mean 'h200-8'"),
    ('h100-12', 'h100-8 or h100-16 would do'),
    ('cpu-0', "did you mean 'cpu-8'"),
    ('laptop', 'choose one of'),
  ],
)
def test_names_that_are_none(name, said):
  with pytest.raises(UserError, match=said):
    targets.find(name)


def test_without_libtpu_its_package_is_named(monkeypatch):
  monkeypatch.setattr(importlib.util, 'find_spec', lambda name: None)
  with pytest.raises(UserError, match=r"pip install 'sgnjax\[tpu-plan\]'"):
    targets.devices(targets.find('v5e-8'))


def test_a_process_with_too_few_devices_says_so():
  assert len(targets.devices(targets.find('h100-8'))) == 8
  with pytest.raises(targets.TooFewDevicesError):
    targets.devices(targets.find('h100-16'))


def mesh_of(*sizes):
  return AbstractMesh(sizes, AXES, axis_types=(AxisType.Auto,) * 4)


def collective(kind, axes, group, operand=10**6):
  result = {'all-gather': operand * group, 'reduce-scatter': operand // group}.get(kind, operand)
  return Collective(kind, axes, group, operand, result, ('f32[1]',), 1, True, '')


MB = 1e6


@pytest.mark.parametrize(
  ('name', 'mesh', 'kind', 'axes', 'over', 'seconds'),
  [
    # GPUs of one node; of two nodes, one each; of two nodes, all; to each other between nodes.
    ('h100-8', (1, 8, 1, 1), 'all-gather', ('fsdp',), 'NVLink', 7 * MB / 450e9),
    ('h100-16', (2, 8, 1, 1), 'all-reduce', ('data',), 'network', MB / 50e9),
    ('h100-16', (2, 8, 1, 1), 'all-reduce', ('fsdp',), 'NVLink', 1.75 * MB / 450e9),
    ('h100-16', (1, 16, 1, 1), 'all-reduce', ('fsdp',), 'network', 1.875 * MB / 400e9),
    ('h100-16', (1, 1, 1, 16), 'all-to-all', ('sequence',), 'network', 15 / 16 * MB / 50e9),
    # 8 chips in a row, one way at a time; 8 x 8; 16 joined to a ring; a torus of three sides.
    ('v5e-64', (8, 8, 1, 1), 'all-reduce', ('fsdp',), 'links', 1.75 * MB / 50e9),
    ('v5e-64', (1, 64, 1, 1), 'all-reduce', ('fsdp',), 'links', 126 / 64 * MB / 100e9),
    ('v5e-256', (16, 16, 1, 1), 'all-reduce', ('data',), 'links', 1.875 * MB / 100e9),
    ('v5p-128', (1, 64, 1, 1), 'all-reduce', ('fsdp',), 'links', 126 / 64 * MB / 600e9),
    # Half of all goes over the middle: of 8 in a row one link, of 16 in a ring two.
    ('v5e-64', (8, 1, 1, 8), 'all-to-all', ('sequence',), 'links', 2 * MB / 50e9),
    ('v5e-256', (16, 1, 1, 16), 'all-to-all', ('sequence',), 'links', 2 * MB / 50e9),
  ],
)
def test_seconds_of_a_collective(name, mesh, kind, axes, over, seconds):
  mesh = mesh_of(*mesh)
  group = math.prod(mesh.shape[a] for a in axes)
  found = roofline.transfer(collective(kind, axes, group), targets.find(name), mesh)
  assert found[0] == over
  assert found[1] == pytest.approx(seconds)


def test_a_step_is_bound_by_what_takes_longest():
  target, mesh = targets.find('h100-8'), mesh_of(1, 8, 1, 1)
  sent = [collective('all-gather', ('fsdp',), 8, 450 * 10**6 // 7)]
  found = roofline.step(target, mesh, sent, flops=8 * 989.4e12 / 100, memory=3.35e9, narrow=True)
  assert (found.compute, found.memory) == (pytest.approx(0.01), pytest.approx(0.001))
  assert found.sent['NVLink'] == pytest.approx(0.001)
  assert (found.bound, found.least) == ('arithmetic', pytest.approx(0.01))
  assert found.most == pytest.approx(0.011)
  wide = roofline.step(target, mesh, sent, flops=8e12, memory=3.35e12, narrow=False)
  assert wide.bound == 'memory'
  assert wide.compute == pytest.approx(1e12 / 494.7e12)


def test_a_program_of_a_tpu_slice():
  """libtpu leaves out how often its loops turn, and starts and ends permutations apart."""
  pytest.importorskip('libtpu', reason="pip install 'sgnjax[tpu-plan]' compiles for TPU slices")
  devices = targets.devices(targets.find('v5e-8'))
  mesh = Mesh(np.asarray(devices).reshape(2, 2, 1, 2), AXES, axis_types=(AxisType.Auto,) * 4)

  def program(x):
    def turn(x, _):
      return jax.lax.psum(jnp.sin(x), 'data') * 0.5, None

    x, _ = jax.lax.scan(turn, x, None, length=5)
    x = jax.lax.ppermute(x, 'fsdp', [(0, 1), (1, 0)])
    return jax.lax.all_gather(x, 'sequence', tiled=True)

  mapped = jax.shard_map(program, mesh=mesh, in_specs=P(), out_specs=P(), check_vma=False)
  x = jax.ShapeDtypeStruct((64, 128), jnp.float32, sharding=NamedSharding(mesh, P()))
  found = collectives(jax.jit(mapped).lower(x).compile().as_text(), mesh)
  array = 64 * 128 * 4
  assert summary(found) == {
    ('all-reduce', ('data',)): Total(5, 5 * array, 5 * array, 5 * array),
    ('collective-permute', ('fsdp',)): Total(1, array, array, array),
    ('all-gather', ('sequence',)): Total(1, array, 2 * array, array),
  }
