"""Several processes as one run: how they connect, and what ends them when one is lost.

`discovery` says where they are. Nothing here does anything, or loads JAX, where there is one.
"""

import ctypes
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from ml_collections import ConfigDict

from sgnjax.errors import UserError
from sgnjax.parallel.discovery import BY_JAX, PLAIN, Found, check_address, detect

LOST = 75  # exit status: another process was lost; the same command resumes (EX_TEMPFAIL)


class _Run:
  """This process among those of the run, for what is said when it ends."""

  def __init__(self, found: Found, start: int, heartbeat: int):
    self.found, self.start, self.heartbeat = found, start, heartbeat
    self.index, self.count = 0, 0  # known once they are together
    self.leaving: int | None = None  # the exit status, once an error has been said
    self.saved: Callable[[], str] = lambda: ''

  def why(self) -> tuple[str, int]:
    """What to say when JAX ends this process, and the exit status. Asks nothing of JAX."""
    if not self.count:
      where = f' at {self.found.address}' if self.found.address else ''
      return (
        f'error: the processes of this run{where} did not find each other in {self.start} s '
        '(hosts.start_seconds); see that each was started and can reach process 0',
        2,
      )
    return (
      f'error: process {self.index} of {self.count} ends because another one was lost (killed, or '
      f'silent for hosts.heartbeat_seconds={self.heartbeat})\n{self.saved()}',
      LOST,
    )


_run: _Run | None = None
_hook = None  # kept alive: C calls it


@contextmanager
def connected(hosts: ConfigDict, env: Mapping[str, str] = os.environ) -> Iterator[None]:
  """Connects the processes of a run; to be entered before JAX is asked for devices.

  hosts: the config's group. Does nothing where there is one process, or in a second call. Raises
  UserError where the variables are wrong or the coordinator does not answer in time.

  A process whose fellow is lost ends with status 75 and two lines: JAX aborts from C++ when the
  heartbeats stop or process 0 is gone, and a hook on that signal speaks last.
  """
  global _run
  found = detect(hosts.connect, env)
  start, heartbeat, end = hosts.start_seconds, hosts.heartbeat_seconds, hosts.end_seconds
  for key, value in (('start', start), ('heartbeat', heartbeat), ('end', end)):
    if value < 1:
      raise UserError(f'hosts.{key}_seconds={value}: expected at least 1')
  if found is not None and _run is None:
    _check_reachable(found, start)
    _run = _Run(found, start, heartbeat)
    _connect(_run, end)
  try:
    yield
  except UserError:
    raise
  except Exception as error:
    if _run is None:
      raise
    traceback.print_exc()
    _wait_for_the_verdict(error)
    leave(1)


def _check_reachable(found: Found, seconds: int) -> None:
  """Raises UserError where JAX would die from C++."""
  if found.address is None:
    return
  if found.index == 0:
    listens_at = os.environ.get('JAX_COORDINATOR_BIND_ADDRESS') or found.address
    check_address('JAX_COORDINATOR_BIND_ADDRESS', listens_at)
    _check_free(listens_at)
  else:
    _wait_for(found.address, seconds)


def _connect(run: _Run, end: int) -> None:
  import jax

  found = run.found
  # JAX would take SIGTERM for itself; the training loop hears it.
  jax.config.update('jax_enable_preemption_service', False)
  _speak_on_abort()
  by_jax = found.method if found.method in BY_JAX else None
  try:
    jax.distributed.initialize(
      coordinator_address=found.address,
      num_processes=found.count,
      process_id=found.index,
      local_device_ids=found.local_devices,
      cluster_detection_method='deactivate' if found.address else by_jax,
      initialization_timeout=run.start,
      heartbeat_timeout_seconds=run.heartbeat,
      shutdown_timeout_seconds=end,
    )
  except (ValueError, RuntimeError) as error:
    raise UserError(
      f'JAX cannot connect the processes of this run ({found.method}): {error}\n'
      f'set {", ".join(PLAIN)} for each, or --config.hosts.connect=none to run alone'
    ) from error
  run.index, run.count = jax.process_index(), jax.process_count()


def _check_free(address: str) -> None:
  """JAX crashes where the port is taken, or shares it with another run unasked."""
  port = int(address.rsplit(':', 1)[1])
  try:
    socket.create_server(('', port)).close()
  except OSError as error:
    raise UserError(
      f'process 0 cannot listen on port {port} ({error.strerror}); another run may be there: set '
      'JAX_COORDINATOR_PORT (SLURM) or another port in JAX_COORDINATOR_ADDRESS'
    ) from None


def _wait_for(address: str, seconds: int) -> None:
  host, port = address.rsplit(':', 1)
  until = time.monotonic() + seconds
  while True:
    try:
      socket.create_connection((host.strip('[]'), int(port)), timeout=5).close()
      return
    except OSError as error:
      if time.monotonic() >= until:
        raise UserError(
          f'process 0 does not answer at {address} after {seconds} s ({error.strerror or error}); '
          'was it started? hosts.start_seconds is how long to wait'
        ) from None
      time.sleep(0.2)


def _speak_on_abort() -> None:
  """Says why, and gives the exit status, when JAX aborts this process from one of its threads."""
  global _hook

  def speak(_signal):
    status = LOST
    try:
      said, status = _run.why()
      if _run.leaving is None:
        os.write(2, f'\n{said}\n'.encode())
    finally:  # nothing that goes wrong here may let JAX's abort decide the status
      os._exit(status if _run.leaving is None else _run.leaving)

  _hook = ctypes.CFUNCTYPE(None, ctypes.c_int)(speak)
  libc = ctypes.CDLL(None)
  libc.signal.argtypes, libc.signal.restype = (ctypes.c_int, ctypes.c_void_p), ctypes.c_void_p
  libc.signal(signal.SIGABRT, ctypes.cast(_hook, ctypes.c_void_p))


def _wait_for_the_verdict(error: Exception) -> None:
  """A collective fails at once when a process is lost, and JAX says so only after a while."""
  import jax

  if isinstance(error, jax.errors.JaxRuntimeError):
    time.sleep(_run.heartbeat + 5)


def leave(status: int) -> int:
  """The exit status of a process that has said its error.

  Among several it leaves here, after `hosts.heartbeat_seconds` at most: the others may be waiting
  for it in a computation that it will never join.
  """
  if _run is None or not _run.count:
    return status
  import jax

  _run.leaving = status
  sys.stdout.flush()
  sys.stderr.flush()
  goodbye = threading.Thread(target=jax.distributed.shutdown, daemon=True)
  goodbye.start()
  goodbye.join(_run.heartbeat)
  os._exit(status)


def check_alone(job: str, hosts: ConfigDict, env: Mapping[str, str] = os.environ) -> None:
  """Raises UserError where several processes were started for a job that runs in one."""
  found = detect(hosts.connect, env)
  if found is not None and found.count is not None:
    raise UserError(
      f'job {job} runs in one process, and this is process {found.index} of {found.count} '
      f'({found.method}); start one, or set --config.hosts.connect=none'
    )


def say_when_lost(saved: Callable[[], str]) -> None:
  """`saved()` is the last line of the error when another process is lost."""
  if _run is not None:
    _run.saved = saved
