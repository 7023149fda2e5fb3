"""The mesh of devices, and the shardings of batches and of what every device holds whole."""

import math
from collections.abc import Sequence

import jax
import numpy as np
from jax.experimental import mesh_utils
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from ml_collections import ConfigDict

from sgnjax.errors import UserError

AXES = ('data', 'fsdp', 'tensor', 'sequence')
ROWS = ('data', 'fsdp')  # the axes that share the rows of a batch


def make_mesh(config: ConfigDict, devices=None) -> Mesh:
  """The mesh of `config.mesh`, axes of explicit Auto type; -1 takes the devices that are left.

  data: copies of the model, each with rows of its own. fsdp: rows likewise, and each device keeps
  its part of every parameter. tensor: heads, FFN, channels and vocabulary. sequence: the length.

  devices: None for those of this run, of which each process must have one in the mesh. Sizes that
  need fewer take the first ones. Raises UserError where they need more than there are, where a
  process would have none, and where heads, context or vocabulary do not divide.
  """
  own = devices is None
  devices = jax.devices() if own else devices
  sizes = {axis: config.mesh[axis] for axis in AXES}
  wanted = ' x '.join(f'{axis} {n}' for axis, n in sizes.items())
  free = [axis for axis, n in sizes.items() if n == -1]
  taken = [n for n in sizes.values() if n != -1]
  fixed = math.prod(taken)
  if len(free) > 1 or min(taken, default=1) < 1:
    raise UserError(f'mesh of {wanted}: expected sizes from 1, and at most one -1')
  if (free and len(devices) % fixed) or fixed > len(devices):
    raise UserError(
      f'mesh of {wanted} does not fit {len(devices)} device{"s" if len(devices) > 1 else ""}; '
      'set one axis to -1 to take those that are left'
    )
  if free:
    sizes[free[0]] = len(devices) // fixed
  _check_model(config, sizes)
  devices = devices[: math.prod(sizes.values())]
  if own:
    _check_processes(devices)
  shape = tuple(sizes.values())
  if getattr(devices[0], 'platform', '') == 'tpu':  # neighbours in the mesh by links of the chips
    grid = mesh_utils.create_device_mesh(shape, devices)
  else:
    grid = np.asarray(devices).reshape(shape)
  return Mesh(grid, AXES, axis_types=(AxisType.Auto,) * len(AXES))


def _check_processes(devices: Sequence[jax.Device]) -> None:
  """A process without a device in the mesh would wait for ever."""
  idle = set(range(jax.process_count())) - {d.process_index for d in devices}
  if idle:
    raise UserError(
      f'the mesh of {len(devices)} devices has none of process {", ".join(map(str, sorted(idle)))} '
      f'of {jax.process_count()}; set mesh.data=-1 to take every device, or start fewer processes'
    )


def _check_model(config: ConfigDict, sizes: dict[str, int]) -> None:
  m = config.model
  for key, axes in (
    ('heads', ('tensor',)),
    ('context', ('sequence',)),
    ('vocab_multiple', ('tensor', 'fsdp')),
  ):
    parts = math.prod(sizes[axis] for axis in axes)
    if m[key] % parts:
      below, above = m[key] // parts * parts, -(-m[key] // parts) * parts
      would_do = f'{below} or {above}' if below else str(above)
      raise UserError(
        f'model.{key}={m[key]} does not divide over '
        f'{" x ".join(f"mesh.{axis}={sizes[axis]}" for axis in axes if sizes[axis] > 1)}; '
        f'model.{key}={would_do} would do, or sizes that divide it'
      )


def row_shards(mesh: Mesh) -> int:
  """Into how many parts the rows of a batch fall."""
  return math.prod(mesh.shape[axis] for axis in ROWS)


def batch_sharding(mesh: Mesh) -> NamedSharding:
  """Of arrays (B, L): rows over `data` and `fsdp`, the length over `sequence`."""
  return NamedSharding(mesh, PartitionSpec(ROWS, 'sequence'))


def replicated(mesh: Mesh) -> NamedSharding:
  """Whole on every device."""
  return NamedSharding(mesh, PartitionSpec())
