"""A run that was stopped and resumed is the straight one, bit for bit."""

import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

from sgnjax.data import pipeline
from sgnjax.machine import commit
from sgnjax.parallel.mesh import make_mesh
from sgnjax.train import loop
from sgnjax.train.checkpoint import Checkpoints, committed
from sgnjax.train.log import read_records
from sgnjax.train.model import make_model
from sgnjax.train.optim import make_optimiser
from sgnjax.train.state import abstract

from . import driver
from .tiny import tiny

ROOT = Path(__file__).parents[2]


def command(text, workdir, last):
  return [sys.executable, '-m', 'tests.train.driver', str(text), str(workdir), last]


@pytest.fixture(scope='module')
def cache(tmp_path_factory):
  """An environment whose compiled programs live in a folder of this test, the quick ones too."""
  return os.environ | {
    'XDG_CACHE_HOME': str(tmp_path_factory.mktemp('cache')),
    'JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS': '0',
  }


def restored(config, workdir, step):
  """State and data of a checkpoint."""
  tokenizer = pipeline.load(config).tokenizer
  model, optimiser = make_model(config, tokenizer), make_optimiser(config)
  checkpoints = Checkpoints(workdir, config, tokenizer)
  found = checkpoints.restore(abstract(config, model, optimiser, make_mesh(config)), step)
  checkpoints.close()
  return found


def assert_same_run(config, a, b, step):
  left, right = (restored(config, w, step) for w in (a, b))
  jax.tree.map(np.testing.assert_array_equal, left.state, right.state)
  assert left.data == right.data  # the next batch, and what waits to be logged
  for key in ('losses', 'loss', 'lr', 'grad_norm', 'step', 'kind'):
    assert [r.get(key) for r in read_records(a)] == [r.get(key) for r in read_records(b)]


@pytest.mark.usefixtures('all_compiled')
def test_sigterm_and_resume(tmp_path, cache):
  # Straight: in this process, nothing cached. Stopped and resumed: two processes, the second of
  # which takes the first one's compiled programs.
  straight, stopped = tmp_path / 'straight', tmp_path / 'stopped'
  loop.train(tiny(tmp_path), straight)
  first = subprocess.run(
    command(tmp_path, stopped, '10'), cwd=ROOT, env=cache, capture_output=True, text=True
  )
  assert first.returncode == 128 + signal.SIGTERM, first.stderr
  assert 'SIGTERM: saved step 10 of 20; the same command resumes from there' in first.stdout
  assert committed(stopped) == [10]
  assert any(Path(cache['XDG_CACHE_HOME'], 'sgnjax').rglob('*'))
  second = subprocess.run(
    command(tmp_path, stopped, '99'), cwd=ROOT, env=cache, capture_output=True, text=True
  )
  assert second.returncode == 0, second.stderr
  assert f'resuming {stopped} from step 10' in second.stdout
  starts = read_records(stopped, 'starts.jsonl')
  assert [(start['step'], start['commit']) for start in starts] == [(0, commit()), (10, commit())]
  assert_same_run(tiny(tmp_path), straight, stopped, 20)


@pytest.fixture
def train_many(tmp_path, cache, monkeypatch):
  """`train_many(workdir)`: a process that trains there, and what it prints.

  Each is a copy of one that has imported everything and run nothing.
  """
  jax.devices()  # of this process, before the environment tells of other ones
  for name in ('XDG_CACHE_HOME', 'JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS'):
    monkeypatch.setenv(name, cache[name])
  monkeypatch.setenv('XLA_FLAGS', os.environ['XLA_FLAGS'].replace('count=8', 'count=2'))
  monkeypatch.setenv('PYTHONPATH', str(ROOT))
  processes = multiprocessing.get_context('forkserver')
  processes.set_forkserver_preload([driver.__name__])

  def start(workdir, pause=0.0, **changes):
    lines, there = processes.Pipe(duplex=False)
    process = processes.Process(
      target=driver.train_many, args=(tmp_path, workdir, there, pause, changes)
    )
    process.start()
    there.close()
    with lines:
      return process, open(os.dup(lines.fileno()))

  return start


@pytest.mark.slow
def test_kill_9_at_random_moments(tmp_path, train_many):
  straight, killed = tmp_path / 'straight', tmp_path / 'killed'

  def finish(workdir, **changes):
    process, lines = train_many(workdir, **changes)
    with lines:
      said = lines.read()
    process.join()
    assert process.exitcode == 0, said

  finish(straight, train__checkpoint_every=50)
  rng = random.Random(0)
  newest = 0
  for i in range(10):
    # From the first line on, while it compiles, or from the first step on.
    line_to_see, seconds = ('parameters', 1.5) if i % 2 else ('step', 1.5)
    process, lines = train_many(killed, pause=0.1)
    said = []
    with lines:
      for line in lines:
        said.append(line)
        if line_to_see in line.split('/')[0] and 'resuming' not in line:
          break
      time.sleep(rng.uniform(0, seconds))
      process.kill()
      process.join()
    assert process.exitcode == -signal.SIGKILL, said
    resumed = [int(line.split()[-1]) for line in said if line.startswith('resuming')]
    assert resumed == ([newest] if newest else [])  # from the newest committed step, no earlier
    steps = committed(killed)
    assert max(steps, default=0) >= newest
    newest = max(steps, default=0)
  assert 0 < newest < 100
  finish(killed)
  assert_same_run(driver.many(tmp_path), straight, killed, 100)
