"""Trains every point of the config's `sweep()`, each in its folder of the workdir.

One after another, or as a SLURM array of one task a point (SLURM_ARRAY_TASK_ID is its number). What
is finished is not run again, what was cut off goes on; sweep.md and sweep.json tell all points.
Exit status: 0 all finished, 130 after Ctrl-C, 143 after SIGTERM, `train.wall_status` out of wall
time; otherwise that of the first point that failed (the others are run all the same).
"""

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path

import jax

from sgnjax import config as config_lib
from sgnjax.analysis import sweeps
from sgnjax.errors import LeakError, UserError
from sgnjax.grid import Point, Sweep
from sgnjax.train.log import check_writable, write_atomically
from sgnjax.train.loop import train

TASK = 'SLURM_ARRAY_TASK_ID'


def run(sweep: Sweep, workdir: Path, env: Mapping[str, str] = os.environ) -> int:
  started, workdir = time.monotonic(), Path(workdir)
  check_writable(workdir)
  minutes = sweep.base.train.wall_minutes
  status, failed, begun = 0, {}, False
  for number, point in _mine(sweep, env):
    if sweeps.finished(point, workdir):
      print(f'{point.name}: finished before', flush=True)
      continue
    left = None if minutes is None else minutes - (time.monotonic() - started) / 60
    if begun and left is not None and left <= 0:
      return sweep.base.train.wall_status
    begun = True
    print(f'{point.name}: point {number} of {len(sweep.points)}', flush=True)
    try:
      result = train(_within(point, left), workdir / point.name)
    except (UserError, jax.errors.JaxRuntimeError) as error:
      said = ' '.join(str(error).split())
      print(f'{point.name}: error: {said}', flush=True)
      failed[point.name] = f'failed: {said[:120]}'
      status = status or (3 if isinstance(error, LeakError) else 2)
      _write(sweep, workdir, failed)
      continue
    _write(sweep, workdir, failed)
    if result['signal'] is not None:
      return 128 + result['signal']
    if result['status'] != 'finished':
      return sweep.base.train.wall_status
    jax.clear_caches()  # programs of a finished point would pile up
  print(_write(sweep, workdir, failed))
  return status


def _mine(sweep: Sweep, env: Mapping[str, str]) -> list[tuple[int, Point]]:
  """The points to run here with their numbers: all, or that of the array's task."""
  numbered = list(enumerate(sweep.points))
  if TASK not in env:
    return numbered
  task = int(env[TASK])
  if task >= len(numbered):
    raise UserError(
      f'{TASK}={task}, and the sweep has {len(numbered)} points: use --array=0-{len(numbered) - 1}'
    )
  return [numbered[task]]


def _within(point: Point, minutes: float | None):
  """The point's config with what is left of the sweep's wall time."""
  if minutes is None:
    return point.config
  config = config_lib.deserialise(config_lib.serialise(point.config)).unlock()
  config_lib.apply_override(config, f'train.wall_minutes={max(minutes, 1e-9)}')
  return config.lock()


def _write(sweep: Sweep, workdir: Path, failed: dict[str, str]) -> str:
  """Writes both files from what lies in the folders; gives the table."""
  found = sweeps.rows(sweep, workdir, failed)
  text = sweeps.table(found)
  write_atomically(workdir / 'sweep.json', json.dumps(found, indent=2) + '\n')
  write_atomically(workdir / 'sweep.md', text)
  return text
