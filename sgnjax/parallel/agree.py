"""What the processes of a run decide together. Each call is made by all of them, in one order."""

import secrets
import time
from pathlib import Path

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from sgnjax.errors import UserError
from sgnjax.parallel.mesh import replicated

PATIENCE = 10.0  # seconds that a network file system may take to show another machine's file


def first() -> bool:
  """Whether this process writes and prints for all."""
  return jax.process_index() == 0


def of_first(value: int) -> int:
  """Process 0's value, on all."""
  if jax.process_count() == 1:
    return value
  return int(multihost_utils.broadcast_one_to_all(np.int32(value)))


def wait_for_all(where: str) -> None:
  """Returns once every process has come here."""
  if jax.process_count() > 1:
    multihost_utils.sync_global_devices(where)


def _gather(values: np.ndarray) -> np.ndarray:
  """(processes, ...): each process's array."""
  return np.asarray(multihost_utils.process_allgather(values))


def check_same(**digests: str) -> None:
  """Raises UserError, on all, where processes differ in one of the named hexadecimal digests."""
  if jax.process_count() == 1:
    return
  mine = np.stack([np.frombuffer(bytes.fromhex(d[:24]), np.uint8) for d in digests.values()])
  for what, column in zip(digests, _gather(mine).swapaxes(0, 1), strict=True):
    others = [str(p) for p, row in enumerate(column) if (row != column[0]).any()]
    if others:
      raise UserError(
        f'{what} of process {", ".join(others)} is not that of process 0; all processes of a run '
        'need the same command and the same files'
      )


def check_shared(folder: Path) -> None:
  """Raises UserError, on all, where a folder is not one and the same for all processes."""
  if jax.process_count() == 1:
    return
  token = folder / f'.shared-{of_first(secrets.randbelow(2**31))}'
  if first():
    token.write_text('')
  wait_for_all('token')
  until = time.monotonic() + PATIENCE
  while not (seen := token.exists()) and time.monotonic() < until:
    time.sleep(0.2)
  missing = [str(p) for p, found in enumerate(_gather(np.int32(seen))) if not found]
  if first():
    token.unlink()
  if missing:
    raise UserError(
      f"workdir '{folder}' is not shared: process {', '.join(missing)} does not see what process 0 "
      'writes there; name a folder on a file system that all of them mount (--workdir=DIR)'
    )


class Votes:
  """A number from each process, the largest of which all learn, without waiting for the device."""

  def __init__(self, mesh: Mesh):
    self._sharding = NamedSharding(mesh, PartitionSpec(mesh.axis_names))
    self._shape = (mesh.size,)
    self._largest = jax.jit(lambda votes: votes.max(), out_shardings=replicated(mesh))
    self._ballots: dict[int, jax.Array] = {}

  def cast(self, number: int) -> jax.Array:
    """The largest number that any process casts in this round, once it is computed."""
    if number not in self._ballots:
      self._ballots[number] = jax.make_array_from_callback(
        self._shape, self._sharding, lambda _: np.full(1, number, np.int32)
      )
    return self._largest(self._ballots[number])
