"""Processes of four fake devices that talk over loopback, beside one of eight."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from configs import base
from sgnjax.errors import UserError
from sgnjax.parallel import hosts
from sgnjax.parallel.discovery import detect
from sgnjax.train import loop
from sgnjax.train.checkpoint import committed
from sgnjax.train.log import read_records
from tests.train.tiny import tiny

ROOT = Path(__file__).parents[2]
HEARTBEAT = 10
COMMON = (
  f'--config={ROOT}/tests/parallel/two.py',
  f'--config.hosts.heartbeat_seconds={HEARTBEAT}',
)
PLAIN = {'JAX_COORDINATOR_ADDRESS': 'a:1', 'JAX_NUM_PROCESSES': '2', 'JAX_PROCESS_ID': '1'}
STEP = {
  'SLURM_JOB_ID': '7',
  'SLURM_STEP_ID': '0',
  'SLURM_STEP_NODELIST': 'n[017-019,031]',
  'SLURM_STEP_NUM_NODES': '4',
  'SLURM_STEP_NUM_TASKS': '4',
  'SLURM_NTASKS': '8',  # of the job
  'SLURM_PROCID': '2',
  'SLURM_LOCALID': '0',
}
PER_GPU = {'SLURM_STEP_NUM_NODES': '2', 'SLURM_LOCALID': '1'}


def free_port() -> int:
  with socket.create_server(('', 0)) as server:
    return server.getsockname()[1]


@pytest.fixture(scope='module')
def start(tmp_path_factory):
  """`start(folder, command, ...)`: two processes of one run, their programs compiled once for all.

  command: a workdir and flags, of which one of each process is a pair; one command is run by
  `launch/main.py` as a user starts it, several by `several.py`. devices: of each process. event,
  audited: see `two.py`.
  """
  programs = str(tmp_path_factory.mktemp('programs'))

  def run(folder: Path, *commands: tuple, devices=2, event='', audited=True):
    env = {k: v for k, v in os.environ.items() if not k.startswith(('JAX_', 'SLURM_', 'OMPI_'))}
    env |= {
      'TWO_FOLDER': str(folder),
      'PYTHONPATH': str(ROOT),
      'JAX_PLATFORMS': 'cpu',
      'JAX_COMPILATION_CACHE_DIR': programs,
      'JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS': '0',
      'XLA_FLAGS': os.environ['XLA_FLAGS'].replace('count=8', f'count={devices}'),
      'JAX_COORDINATOR_ADDRESS': f'127.0.0.1:{free_port()}',
      'JAX_NUM_PROCESSES': '2',
    }
    env |= {'TWO_EVENT': event} if event else {}
    env |= {'TWO_AUDITED': '1'} if audited else {}

    def flags(index):
      for number, (workdir, *given) in enumerate(commands):
        yield from ('--',) if number else ()
        for flag in (*given, *COMMON):
          yield flag if isinstance(flag, str) else flag[index]
        yield f'--workdir={workdir if isinstance(workdir, Path) else workdir[index]}'

    program = ['launch/main.py'] if len(commands) == 1 else ['-m', 'tests.parallel.several']
    return [
      subprocess.Popen(
        [sys.executable, *program, *flags(index)],
        cwd=ROOT,
        env=env | {'JAX_PROCESS_ID': str(index)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
      )
      for index in range(2)
    ]

  return run


def ends(processes) -> list[tuple[int, str, str]]:
  """(exit status, stdout, stderr) of each."""
  try:
    said = [p.communicate(timeout=240) for p in processes]
  finally:
    for process in processes:
      process.kill()
  return [(p.returncode, *s) for p, s in zip(processes, said, strict=True)]


def losses(workdir: Path) -> list[float]:
  return [x for r in read_records(workdir) if r['kind'] == 'train' for x in r['losses']]


@pytest.fixture(scope='module')
def straight(tmp_path_factory):
  """A run of this process and its eight devices: (folder, losses, final record)."""
  folder = tmp_path_factory.mktemp('straight')
  final = loop.train(tiny(folder), folder / 'w')['final']
  return folder, losses(folder / 'w'), final


@pytest.mark.slow
def test_sigterm_on_one_of_two_and_resumed_by_one(straight, start, tmp_path):
  folder, whole, final = straight
  workdir = tmp_path / 'w'
  event = f'1:5:{signal.SIGTERM.value}'
  found = ends(start(folder, (workdir,), devices=4, event=event, audited=False))
  for status, _, said in found:
    assert status == 128 + signal.SIGTERM, said
  # Heard after step 5 is read, while 6 runs; told with 7 and learnt with 8.
  assert committed(workdir) == [8]
  assert 'SIGTERM: saved step 8 of 20; the same command resumes from there' in found[0][1]
  assert 'saved' not in found[1][1]
  assert '2 processes, 8 devices' in found[0][1]
  result = loop.train(tiny(folder), workdir)
  assert result['step'] == 20
  np.testing.assert_allclose(losses(workdir), whole, rtol=1e-5)
  np.testing.assert_allclose(result['final']['loss'], final['loss'], rtol=1e-5)


@pytest.mark.slow
def test_kill_9_of_each_of_two_and_resumed(straight, start, tmp_path):
  folder, whole, _ = straight
  workdir = tmp_path / 'w'
  more_saves = '--config.train.checkpoint_every=2'
  saved = []
  for victim, at in ((1, 5), (0, 11)):  # the coordinator last, of those that resume
    event = f'{victim}:{at}:{signal.SIGKILL.value}'
    running = start(folder, (workdir, more_saves), event=event)
    running[victim].wait(timeout=240)
    since = time.monotonic()
    found = ends(running)
    assert time.monotonic() - since < HEARTBEAT + 5
    status, _, said = found[1 - victim]
    assert status == hosts.LOST, said
    saved.append(committed(workdir)[-1])
    assert said.strip().endswith(
      f'error: process {1 - victim} of 2 ends because another one was lost (killed, or silent for '
      f'hosts.heartbeat_seconds={HEARTBEAT})\n'
      f'the last saved step is {saved[-1]} ({workdir}); the same command resumes'
    )
  assert 2 <= saved[0] <= 6 < saved[1] <= 12
  assert f'resuming {workdir} from step {saved[0]}' in found[0][1]
  loop.train(tiny(folder, train__checkpoint_every=2), workdir)
  np.testing.assert_allclose(losses(workdir), whole, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize('axes', [('fsdp=2', 'tensor=2', 'sequence=2'), ('sequence=8',)], ids=str)
def test_one_process_then_two_whose_mesh_spans_them(straight, start, tmp_path, axes):
  folder, whole, _ = straight
  workdir = tmp_path / 'w'
  assert loop.train(tiny(folder, train__wall_minutes=1e-6), workdir)['step'] == 1
  mesh = [f'--config.mesh.{axis}' for axis in ('data=1', *axes)]
  for status, _, said in ends(start(folder, (workdir, *mesh), devices=4)):
    assert status == 0, said
  np.testing.assert_allclose(losses(workdir), whole, rtol=1e-5)


@pytest.mark.parametrize(
  ('env', 'expected'),
  [
    ({}, None),
    ({'JAX_NUM_PROCESSES': '1'}, None),
    (PLAIN, ('variables', 'a:1', 2, 1, None)),
    ({'SLURM_JOB_ID': '7', 'SLURM_NTASKS': '4', 'SLURM_PROCID': '0'}, None),  # no srun
    (STEP | {'SLURM_STEP_NUM_TASKS': '1'}, None),
    (STEP, ('slurm', 'n017:61447', 4, 2, None)),
    (STEP | {'SLURM_STEP_NODELIST': 'a1,b[2-3]'}, ('slurm', 'a1:61447', 4, 2, None)),
    (
      STEP | {'SLURM_STEP_NODELIST': 'gpu-a', 'JAX_COORDINATOR_PORT': '9'},
      ('slurm', 'gpu-a:9', 4, 2, None),
    ),
    (STEP | {'JAX_COORDINATOR_ADDRESS': 'h:5'}, ('variables', 'h:5', 4, 2, None)),
    (STEP | PER_GPU, ('slurm', 'n017:61447', 4, 2, (1,))),
    (STEP | PER_GPU | {'CUDA_VISIBLE_DEVICES': '0,1,2,3'}, ('slurm', 'n017:61447', 4, 2, (2, 3))),
    (STEP | PER_GPU | {'CUDA_VISIBLE_DEVICES': '1'}, ('slurm', 'n017:61447', 4, 2, None)),
    ({'OMPI_COMM_WORLD_SIZE': '2', 'OMPI_COMM_WORLD_RANK': '0'}, ('ompi', None, None, None, None)),
    ({'OMPI_COMM_WORLD_SIZE': '1'}, None),
    ({'TPU_WORKER_HOSTNAMES': 'a,b', 'JAX_PLATFORMS': 'cpu'}, None),
  ],
)
def test_what_the_environment_says(env, expected):
  assert detect('auto', env) == expected


@pytest.mark.parametrize(
  ('method', 'env', 'said'),
  [
    (
      'auto',
      {'JAX_PROCESS_ID': '0'},
      'JAX_PROCESS_ID=0 is set, but not JAX_COORDINATOR_ADDRESS',
    ),
    ('auto', {'JAX_COORDINATOR_ADDRESS': 'a:1'}, 'but not JAX_NUM_PROCESSES and JAX_PROCESS_ID'),
    ('auto', PLAIN | {'JAX_PROCESS_ID': '2'}, 'from 0 to one below'),
    ('auto', PLAIN | {'JAX_PROCESS_ID': 'x'}, 'JAX_PROCESS_ID=x: expected a whole number'),
    ('auto', PLAIN | {'JAX_COORDINATOR_ADDRESS': 'a'}, 'expected HOST:PORT'),
    ('auto', PLAIN | {'JAX_COORDINATOR_ADDRESS': 'a:99999'}, 'the port up to 65535'),
    ('auto', STEP | {'JAX_COORDINATOR_PORT': '99999'}, 'JAX_COORDINATOR_PORT=99999: expected'),
    ('auto', STEP | {'JAX_COORDINATOR_PORT': 'x'}, 'JAX_COORDINATOR_PORT=x: expected a whole'),
    ('auto', STEP | PLAIN, 'but srun started this as process 2 of 4'),
    ('auto', {k: v for k, v in STEP.items() if k != 'SLURM_PROCID'}, 'but SLURM_PROCID is not set'),
    ('variables', {}, 'none of JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES, JAX_PROCESS_ID is set'),
    ('slrm', {}, "did you mean 'slurm'"),
  ],
)
def test_what_the_environment_may_not_say(method, env, said):
  with pytest.raises(UserError, match=re.escape(said)):
    detect(method, env)


def waiting(**keys):
  settings = base.get_config().hosts
  settings.start_seconds = 1
  settings.update(keys)
  return settings


def connect(env, **keys):
  with hosts.connected(waiting(**keys), env):
    pass


def test_process_0_that_does_not_answer():
  address = f'127.0.0.1:{free_port()}'
  with pytest.raises(UserError, match=f'does not answer at {address} after 1 s .*refused'):
    connect(PLAIN | {'JAX_COORDINATOR_ADDRESS': address})


def test_a_port_that_is_taken():
  with socket.create_server(('', 0)) as server:
    address = f'127.0.0.1:{server.getsockname()[1]}'
    with pytest.raises(UserError, match=r'cannot listen on port .*another run'):
      connect(PLAIN | {'JAX_COORDINATOR_ADDRESS': address, 'JAX_PROCESS_ID': '0'})


def test_an_address_to_listen_at_without_a_port(monkeypatch):
  monkeypatch.setenv('JAX_COORDINATOR_BIND_ADDRESS', '0.0.0.0')
  with pytest.raises(UserError, match=r'JAX_COORDINATOR_BIND_ADDRESS=0\.0\.0\.0: expected HOST'):
    connect(PLAIN | {'JAX_PROCESS_ID': '0'})


def test_one_process_connects_nothing():
  connect({})
  assert hosts.leave(3) == 3
  with pytest.raises(UserError, match=r'hosts\.end_seconds=0'):
    connect({}, end_seconds=0)


def test_a_job_of_one_process():
  with pytest.raises(UserError, match='job sample runs in one process, and this is process 1 of 2'):
    hosts.check_alone('sample', waiting(), PLAIN)


@pytest.mark.slow
def test_processes_that_do_not_come(start, tmp_path):
  one, other = start(tmp_path, (tmp_path / 'w', '--config.hosts.start_seconds=2'))
  other.kill()
  (status, _, said), _ = ends([one, other])
  assert status == 2
  assert said.strip().splitlines()[-1].startswith('error: the processes of this run at 127.0.0.1:')
  assert 'did not find each other in 2 s (hosts.start_seconds)' in said


@pytest.mark.slow
def test_processes_that_do_not_belong_together(straight, start, tmp_path):
  shared, other = tmp_path / 'shared', tmp_path / 'other'
  four = '--config.mesh.data=4'
  found = ends(
    start(
      straight[0],
      ((shared, other),),
      (shared, ('--config.seed=0', '--config.seed=1')),
      (shared, (four, '--config.mesh.data=2')),
      (shared, '--config.mesh.data=2'),
    )
  )
  for status, _, error in found:
    assert status == 2, error
    different = 'error: config of process 1 is not that of process 0'
    said = [line for line in error.splitlines() if line.startswith(('error: ', 'exit status '))]
    assert said[1::2] == ['exit status 2'] * 3
    assert 'is not shared: process 1 does not see what process 0 writes there' in said[0]
    assert [line.partition(';')[0] for line in said[2:5:2]] == [different] * 2
    assert said[6].startswith(
      'error: the mesh of 2 devices has none of process 1 of 2; set mesh.data=-1'
    )


@pytest.mark.slow
def test_an_error_in_one_of_two(straight, start, tmp_path):
  first, second = ends(start(straight[0], (tmp_path / 'w',), event='1:5:0'))
  assert second[0] == 1
  assert 'RuntimeError: as asked for' in second[2]
  assert 'another one was lost' not in second[2]
  assert first[0] == hosts.LOST
  assert f'nothing was saved yet ({tmp_path}/w); the same command resumes' in first[2]


@pytest.mark.slow
def test_eval_and_benchmark_in_two_processes(straight, start, tmp_path):
  folder, _, final = straight
  found = ends(start(folder, (folder / 'w', '--job=eval'), (tmp_path, '--job=benchmark')))
  for status, _, said in found:
    assert status == 0, said
    assert 'exit status 0' in said
  assert found[0][1]
  assert not [line for line in found[1][1].splitlines() if 'Gloo' not in line]
  record = json.loads((folder / 'w' / 'eval.json').read_text())
  np.testing.assert_allclose(record['loss'], final['loss'], rtol=1e-5)
  assert json.loads((tmp_path / 'benchmark.json').read_text())
