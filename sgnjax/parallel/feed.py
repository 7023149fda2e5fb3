"""From each process's own rows to batches on the mesh."""

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from sgnjax.parallel.mesh import batch_sharding

EXAMPLES = ('image', 'label')  # arrays of a batch that have no length to share out


def rows(mesh: Mesh, batch: int, process: int | None = None) -> slice:
  """The rows of a global batch that the devices of a process (None: this one) hold.

  Processes that share a row, since the mesh cuts its length or its width among them, all read it.
  Where the devices of a process are no neighbours in the mesh, what lies between is read too.
  """
  process = jax.process_index() if process is None else process
  held = batch_sharding(mesh).devices_indices_map((batch, mesh.size))
  parts = [
    index[0].indices(batch) for device, index in held.items() if device.process_index == process
  ]
  return slice(min(part[0] for part in parts), max(part[1] for part in parts))


def place(batch: dict[str, np.ndarray], mesh: Mesh, first: int = 0, total: int | None = None):
  """The global arrays of a batch, from rows that this process has: (B, L), and `EXAMPLES` (B, ...).

  first: where its rows begin in the global batch; total: rows of that (None: these are all).
  """
  spec = batch_sharding(mesh).spec

  def put(key: str, local: np.ndarray) -> jax.Array:
    shape = (len(local) if total is None else total, *local.shape[1:])

    def part(index):
      start, stop, _ = index[0].indices(shape[0])
      return local[(slice(start - first, stop - first), *index[1:])]

    sharding = NamedSharding(mesh, PartitionSpec(*spec[: 1 if key in EXAMPLES else local.ndim]))
    return jax.make_array_from_callback(shape, sharding, part)

  return {key: put(key, array) for key, array in batch.items()}
