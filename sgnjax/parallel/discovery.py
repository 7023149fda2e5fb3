"""Which process of how many this is, and where process 0 listens, from environment variables.

Looked for in this order:

1. plain: `JAX_COORDINATOR_ADDRESS` (host:port of process 0), `JAX_NUM_PROCESSES`, `JAX_PROCESS_ID`;
   number and id may be left to Open MPI or SLURM;
2. Open MPI: `OMPI_COMM_WORLD_SIZE`, `OMPI_COMM_WORLD_RANK` (the address: what JAX finds);
3. a step of SLURM (started by srun): `SLURM_PROCID` of `SLURM_STEP_NUM_TASKS`; process 0 is on the
   first host of `SLURM_STEP_NODELIST`;
4. TPU hosts, of Cloud TPU and of GKE: what JAX finds.

JAX's own `JAX_LOCAL_DEVICE_IDS`, `JAX_COORDINATOR_BIND_ADDRESS` and `JAX_COORDINATOR_PORT` (SLURM)
are honoured.
"""

import glob
import re
from collections.abc import Mapping
from typing import NamedTuple

from sgnjax.errors import UserError, check_choice

BY_JAX = ('ompi', 'gketpu', 'gcetpu', 'k8s', 'mpi4py')  # JAX's own names of what it detects
METHODS = ('auto', 'none', 'variables', 'slurm', 'tpu', *BY_JAX)
PLAIN = ('JAX_COORDINATOR_ADDRESS', 'JAX_NUM_PROCESSES', 'JAX_PROCESS_ID')
STEP = ('SLURM_JOB_ID', 'SLURM_STEP_NODELIST', 'SLURM_PROCID', 'SLURM_LOCALID')


class Found(NamedTuple):
  """Where the processes of a run are; None is for JAX to find out."""

  method: str
  address: str | None = None
  count: int | None = None
  index: int | None = None
  local_devices: tuple[int, ...] | None = None


def detect(method: str, env: Mapping[str, str]) -> Found | None:
  """What the environment says of this process; None: it is alone.

  method: `hosts.connect` of the config. Raises UserError for variables that are half set, that
  contradict each other, or that are not what they should be.
  """
  check_choice('hosts.connect', method, METHODS)
  if method in BY_JAX:
    return Found(method)
  if method == 'none':
    return None
  if method in ('auto', 'variables') and any(env.get(name) for name in PLAIN):
    return _plain(env)
  if method == 'variables':
    raise UserError(f'hosts.connect=variables, but none of {", ".join(PLAIN)} is set')
  if method == 'auto' and _number(env, 'OMPI_COMM_WORLD_SIZE', 1) > 1:
    return Found('ompi')
  if method == 'slurm' or (method == 'auto' and _in_step(env)):
    return _slurm(env)
  if method == 'tpu' or _several_tpu_hosts(env):
    return Found('tpu')
  return None


def check_address(name: str, address: str) -> None:
  """Raises UserError where a variable is no HOST:PORT."""
  _, colon, port = address.rpartition(':')
  if not (colon and port.isdecimal() and 0 < int(port) < 65536):
    raise UserError(f'{name}={address}: expected HOST:PORT of process 0, the port up to 65535')


def _number(env: Mapping[str, str], name: str, default: int | None = None) -> int:
  text = env.get(name) or default
  try:
    return int(text)
  except (TypeError, ValueError):
    raise UserError(f'{name}={text}: expected a whole number') from None


def _plain(env: Mapping[str, str]) -> Found | None:
  given = {name: env[name] for name in PLAIN if env.get(name)}
  if _number(env, 'JAX_NUM_PROCESSES', 2) == 1:
    return None
  size, rank, launcher = _launched(env)
  missing = [name for name in PLAIN if name not in given]
  if missing and not ('JAX_COORDINATOR_ADDRESS' in given and launcher):
    shown = ', '.join(f'{k}={v}' for k, v in given.items())
    raise UserError(
      f'{shown} is set, but not {" and ".join(missing)}; several processes need all three of '
      f'{", ".join(PLAIN)}'
    )
  address = given['JAX_COORDINATOR_ADDRESS']
  check_address('JAX_COORDINATOR_ADDRESS', address)
  count, index = _number(env, PLAIN[1], size), _number(env, PLAIN[2], rank)
  if count < 1 or not 0 <= index < count:
    raise UserError(
      f'JAX_PROCESS_ID={index} of JAX_NUM_PROCESSES={count}: expected an id from 0 to one below '
      'the number of processes'
    )
  if launcher and size > 1 and (count, index) != (size, rank):
    raise UserError(
      f'JAX_NUM_PROCESSES={count} and JAX_PROCESS_ID={index}, but {launcher} started this as '
      f'process {rank} of {size}; leave the two variables out, or set them for each process'
    )
  if count == 1:
    return None
  return Found('variables', address, count, index, _devices(env) if launcher == 'srun' else None)


def _launched(env: Mapping[str, str]) -> tuple[int, int, str]:
  """Number and id of this process by its launcher, and the launcher's name ('' for none)."""
  if env.get('OMPI_COMM_WORLD_SIZE'):
    return _number(env, 'OMPI_COMM_WORLD_SIZE'), _number(env, 'OMPI_COMM_WORLD_RANK'), 'Open MPI'
  if _in_step(env):
    return _tasks(env), _number(env, 'SLURM_PROCID'), 'srun'
  return 1, 0, ''


def _in_step(env: Mapping[str, str]) -> bool:
  """Whether srun started this: an sbatch script and a login shell have job variables alone."""
  return any(env.get(name) for name in ('SLURM_STEP_ID', 'SLURM_STEPID', 'SLURM_STEP_NODELIST'))


def _tasks(env: Mapping[str, str]) -> int:
  """Tasks of the step; an interactive shell keeps the SLURM_NTASKS of its job."""
  name = 'SLURM_STEP_NUM_TASKS' if env.get('SLURM_STEP_NUM_TASKS') else 'SLURM_NTASKS'
  return _number(env, name, 1)


def _slurm(env: Mapping[str, str]) -> Found | None:
  count = _tasks(env)
  if count == 1:
    return None
  missing = [name for name in STEP if not env.get(name)]
  if missing:
    raise UserError(
      f'SLURM started {count} processes, but {" and ".join(missing)} is not set; start them with '
      'srun, or set --config.hosts.connect=none to run each alone'
    )
  # node001 of 'node001', 'node001,other', 'node[001-015],other' and 'node[001,007-015]'.
  first = re.match(r'([^,\[]+)(?:\[(\w+))?', env['SLURM_STEP_NODELIST'])
  # A port that other jobs on the node are unlikely to have, from the last 4096 there are.
  port = _number(env, 'JAX_COORDINATOR_PORT', 61440 + _number(env, 'SLURM_JOB_ID') % 4096)
  if not 0 < port < 65536:
    raise UserError(f'JAX_COORDINATOR_PORT={port}: expected a port from 1 to 65535')
  address = f'{first[1]}{first[2] or ""}:{port}'
  return Found('slurm', address, count, _number(env, 'SLURM_PROCID'), _devices(env))


def _devices(env: Mapping[str, str]) -> tuple[int, ...] | None:
  """This task's share of the GPUs that it sees; None: all of them.

  Tasks that share a node divide what all of them see. One task a node takes everything, and so do
  tasks to which SLURM has given GPUs of their own (fewer are seen than there are tasks).
  """
  nodes = _number(env, 'SLURM_STEP_NUM_NODES', _number(env, 'SLURM_NNODES', 1))
  here = -(-_tasks(env) // nodes)
  seen = [d for d in env.get('CUDA_VISIBLE_DEVICES', '').split(',') if d]
  if here == 1 or env.get('JAX_LOCAL_DEVICE_IDS') or 0 < len(seen) < here:
    return None
  share, local = max(1, len(seen) // here), _number(env, 'SLURM_LOCALID')
  return tuple(range(local * share, (local + 1) * share))


def _several_tpu_hosts(env: Mapping[str, str]) -> bool:
  platforms = env.get('JAX_PLATFORMS', 'tpu').split(',')
  if 'tpu' not in platforms or not glob.glob('/dev/accel*') + glob.glob('/dev/vfio/[0-9]*'):
    return False
  names = env.get('TPU_PROCESS_ADDRESSES') or env.get('TPU_WORKER_HOSTNAMES')
  slices = _number(env, 'MEGASCALE_NUM_SLICES', 1)
  if names is not None:  # GKE
    return ',' in names or slices > 1
  return not env.get('TPU_SKIP_MDS_QUERY')  # a Cloud TPU VM: its metadata knows
