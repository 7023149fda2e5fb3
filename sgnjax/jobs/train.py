"""Trains, or goes on with what the workdir holds, and writes the report of a finished run.

Exit status: 0 finished or out of wall time (saved), 130 after Ctrl-C and 143 after SIGTERM (saved).
"""

from pathlib import Path

from ml_collections import ConfigDict

from sgnjax.train.evaluation import describe
from sgnjax.train.loop import train


def run(config: ConfigDict, workdir: Path) -> int:
  result = train(config, workdir)
  if result['signal'] is not None:
    return 128 + result['signal']
  if result['status'] == 'finished':
    from sgnjax.analysis.report import report

    if result['final'] is not None:
      print(describe(result['final'], result['leaky']))
    print(f'report: {report(workdir)}')
  return 0
