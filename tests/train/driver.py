"""Processes that train the tiny run, for tests that end them.

`driver.py FOLDER WORKDIR N` trains there, and gets SIGTERM once step N is on the device.
"""

import os
import signal
import sys
import time
from pathlib import Path

from sgnjax.jobs import train as job
from sgnjax.train import loop
from sgnjax.train.log import Progress

from .tiny import leave_out_audit, tiny


def after_each_step(do) -> None:
  """`do(step)` once a step's metrics are read, which the loop does while the next one runs."""
  update = Progress.update

  def hook(self, step, *args):
    update(self, step, *args)
    do(step)

  Progress.update = hook


def many(folder: Path, **changes):
  """A longer run that saves often."""
  saves = {'train__steps': 100, 'train__checkpoint_every': 3, 'train__eval_every': 20}
  return tiny(folder, train__compile_cache=True, **saves | changes)


def train_many(folder: Path, workdir: Path, lines, pause: float, changes: dict) -> None:
  """Trains `many` in a process of its own, which prints to the connection `lines`."""
  os.dup2(lines.fileno(), 1)
  leave_out_audit()
  after_each_step(lambda _: time.sleep(pause))
  loop.train(many(folder, **changes), workdir)


def main(folder: str, workdir: str, last: str) -> int:
  def leave(step):
    if step == int(last) - 1:
      os.kill(os.getpid(), signal.SIGTERM)

  after_each_step(leave)
  return job.run(tiny(Path(folder), train__compile_cache=True), Path(workdir))


if __name__ == '__main__':
  sys.exit(main(*sys.argv[1:]))
