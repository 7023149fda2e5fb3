"""A process that trains the tiny run: `driver.py FOLDER WORKDIR COMMAND`, for tests that kill it.

COMMAND: `sigterm=N`: SIGTERM once step N is on the device; `slow`: a pause after each step.
"""

import os
import signal
import sys
import time
from pathlib import Path

from sgnjax.jobs import train as job
from sgnjax.train import loop
from sgnjax.train.log import Progress

from .tiny import tiny


def main(folder: str, workdir: str, command: str) -> int:
  update = Progress.update
  changes = {}
  if command.startswith('sigterm='):
    last = int(command.removeprefix('sigterm='))

    def hook(self, step, *args):
      update(self, step, *args)
      if step == last - 1:  # the loop reads a step's metrics while the next one runs
        os.kill(os.getpid(), signal.SIGTERM)

  else:
    changes = {'train__steps': 240, 'train__checkpoint_every': 3, 'train__eval_every': 20}

    def hook(self, step, *args):
      update(self, step, *args)
      if command == 'slow':
        time.sleep(0.1)

  Progress.update = hook
  config = tiny(Path(folder), train__compile_cache=True, **changes)
  if command.startswith('sigterm='):
    return job.run(config, Path(workdir))
  loop.train(config, workdir)
  return 0


if __name__ == '__main__':
  sys.exit(main(*sys.argv[1:]))
