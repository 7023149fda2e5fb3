"""The mesh of devices, and the shardings of batches and of what every device holds whole."""

import math

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from ml_collections import ConfigDict

from sgnjax.errors import UserError

AXES = ('data', 'fsdp', 'tensor', 'sequence')


def make_mesh(config: ConfigDict, devices=None) -> Mesh:
  """The mesh of `config.mesh`, axes of explicit Auto type; -1 takes the devices that are left.

  Sizes that need fewer devices take the first ones. Raises UserError where they need more than
  there are, or shard what cannot be sharded yet.
  """
  devices = jax.devices() if devices is None else devices
  sizes = {axis: config.mesh[axis] for axis in AXES}
  wanted = ' x '.join(f'{axis} {n}' for axis, n in sizes.items())
  for axis in AXES[1:]:
    if sizes[axis] != 1:
      raise UserError(f'mesh.{axis}={sizes[axis]}: only mesh.data may differ from 1 as yet')
  free = [axis for axis, n in sizes.items() if n == -1]
  fixed = math.prod(n for n in sizes.values() if n != -1)
  if len(free) > 1 or fixed < 1 or (free and len(devices) % fixed) or fixed > len(devices):
    raise UserError(
      f'mesh of {wanted} does not fit {len(devices)} devices; set mesh.data=-1 to take them all'
    )
  if free:
    sizes[free[0]] = len(devices) // fixed
  devices = devices[: math.prod(sizes.values())]
  grid = np.asarray(devices).reshape(tuple(sizes.values()))
  return Mesh(grid, AXES, axis_types=(AxisType.Auto,) * len(AXES))


def batch_sharding(mesh: Mesh) -> NamedSharding:
  """Rows of a batch over the `data` axis."""
  return NamedSharding(mesh, PartitionSpec('data'))


def replicated(mesh: Mesh) -> NamedSharding:
  """Whole on every device."""
  return NamedSharding(mesh, PartitionSpec())
