"""`python -m sgnjax.analysis.tasks docs/results/tasks.md`: trains what is not trained, and tells.

--only: words; tasks whose name holds one of them (none: all). --runs: where the workdirs lie. What
is finished there is not run again, and what was cut off goes on. SGNJAX_DATA: the folder of real
data. The page is written anew after each run, from all that are finished.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

from sgnjax.analysis.tasks.page import ROOT, finished, page
from sgnjax.analysis.tasks.runs import TASKS
from sgnjax.machine import commit


def main() -> int:
  parser = argparse.ArgumentParser(prog='python -m sgnjax.analysis.tasks', description=__doc__)
  parser.add_argument('page', type=Path)
  parser.add_argument('--only', nargs='*', default=[])
  parser.add_argument('--runs', type=Path, default=Path('runs/tasks'))
  flags = parser.parse_args()
  data = os.environ.get('SGNJAX_DATA')
  if not data:
    sys.exit('set SGNJAX_DATA to the folder of real data')
  for task in TASKS:
    if flags.only and not any(word in task.name for word in flags.only):
      continue
    for model in task.models:
      if finished(task, model, flags.runs):
        continue
      workdir = flags.runs.resolve() / task.workdir(model)
      command = [sys.executable, 'launch/main.py', f'--workdir={workdir}']
      command += task.flags(model, os.path.abspath(data))
      print(f'{task.title}: {model}', flush=True)
      started = time.monotonic()
      status = subprocess.run(command, cwd=ROOT, check=False).returncode
      print(f'{time.monotonic() - started:.0f} s', flush=True)
      if status:
        return status
      _write(flags)
  _write(flags)
  return 0


def _write(flags: argparse.Namespace) -> None:
  flags.page.write_text(page(flags.runs, commit()), encoding='utf-8')


if __name__ == '__main__':
  sys.exit(main())
