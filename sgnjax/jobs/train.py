"""Trains, or goes on with what the workdir holds, and writes the report of a finished run.

Exit status: 0 finished, `train.wall_status` out of wall time (saved), 130 after Ctrl-C (saved), 143
after SIGTERM (saved), 75 when another process of the run was lost.
"""

import contextlib
from pathlib import Path

from ml_collections import ConfigDict

from sgnjax.errors import UserError
from sgnjax.parallel.agree import first
from sgnjax.train.evaluation import describe
from sgnjax.train.loop import train


def run(config: ConfigDict, workdir: Path) -> int:
  wall_status = config.train.wall_status
  there = workdir.exists()
  try:
    result = train(config, workdir)
  except UserError:
    if not there:
      with contextlib.suppress(OSError):
        workdir.rmdir()  # where it is still empty: a run that was refused leaves no folder
    raise
  if result['signal'] is not None:
    return 128 + result['signal']
  if result['status'] != 'finished':
    return wall_status
  if first():
    from sgnjax.analysis.report import report

    if result['final'] is not None:
      print(describe(result['final'], result['leaky']))
    print(f'report: {report(workdir)}')
  return 0
