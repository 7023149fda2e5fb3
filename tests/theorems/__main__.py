"""Runs every theorem over every variant and prints the table: `python -m tests.theorems [FILE]`.

With SGNJAX_VARIANTS=all the whole suite does so too, and prints the table at its end.
"""

import os
import sys
from pathlib import Path

import pytest

from tests.theorems.table import TITLE, Table

TESTS = Path(__file__).parents[1]


def main(arguments: list[str]) -> int:
  table = Table()
  folders = [str(TESTS / name) for name in ('theorems', 'ops', 'mixers', 'models')]
  os.environ['SGNJAX_VARIANTS'] = 'all'
  status = pytest.main([*folders, '-m', 'theorem'], plugins=[table])
  if arguments:
    Path(arguments[0]).write_text(f'{TITLE}\n{table.text()}\n')
  return int(status)


if __name__ == '__main__':
  sys.exit(main(sys.argv[1:]))
