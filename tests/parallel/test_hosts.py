"""Processes of four fake devices that talk over loopback, beside one of eight."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from sgnjax.train import loop
from sgnjax.train.checkpoint import committed
from sgnjax.train.log import read_records
from tests.train.tiny import tiny

ROOT = Path(__file__).parents[2]
HEARTBEAT = 10


def free_port() -> int:
  with socket.create_server(('', 0)) as server:
    return server.getsockname()[1]


def start(folder: Path, workdir: Path, *flags: str, processes: int = 2, event: str = ''):
  """The processes of one run, of eight devices together: `launch/main.py`, as a user starts it."""
  env = {k: v for k, v in os.environ.items() if not k.startswith(('JAX_', 'SLURM_', 'OMPI_'))}
  env |= {
    'TWO_FOLDER': str(folder),
    'JAX_PLATFORMS': 'cpu',
    'XLA_FLAGS': os.environ['XLA_FLAGS'].replace('count=8', f'count={8 // processes}'),
    'JAX_COORDINATOR_ADDRESS': f'127.0.0.1:{free_port()}',
    'JAX_NUM_PROCESSES': str(processes),
  }
  if event:
    env['TWO_EVENT'] = event
  command = [sys.executable, 'launch/main.py', f'--config={ROOT}/tests/parallel/two.py', *flags]
  command += [f'--workdir={workdir}', f'--config.hosts.heartbeat_seconds={HEARTBEAT}']
  return [
    subprocess.Popen(
      command,
      cwd=ROOT,
      env=env | {'JAX_PROCESS_ID': str(index)},
      stdout=subprocess.PIPE,
      stderr=subprocess.PIPE,
      text=True,
    )
    for index in range(processes)
  ]


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


def test_sigterm_on_one_of_two_and_resumed_by_one(straight, tmp_path):
  folder, whole, final = straight
  workdir = tmp_path / 'w'
  found = ends(start(folder, workdir, event=f'1:5:{signal.SIGTERM.value}'))
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
  print('largest difference', np.abs(np.subtract(losses(workdir), whole)).max())
