"""Lays runs side by side: `--job=compare RUN_A RUN_B ...`; writes compare.html."""

from pathlib import Path

from sgnjax.analysis.compare import compare
from sgnjax.train.log import check_writable


def run(workdirs: list[str], folder: Path) -> int:
  check_writable(folder)
  print(compare([Path(w) for w in workdirs], folder))
  return 0
