"""Runs every mixer on every mesh and prints the table: `python -m tests.parallel [FILE]`."""

import os
import sys
from collections import defaultdict
from pathlib import Path

import pytest

TITLE = """# Meshes

Each cell is the largest difference between a mesh of eight (fake CPU) devices and one device, of
five losses, of the gradients of the first step and of the parameters after five steps, in float64
(absolute for losses, else of the largest number of an array). Sizes of a mesh: data x fsdp x tensor
x sequence. Two layers (CHIAR: three) of width 32 with 4 heads, 8 rows of 32 tokens, dropout 0.1.
Written by `python -m tests.parallel FILE` and not by hand.
"""


class Table:
  """Collects what the tests found, by variant and mesh."""

  def __init__(self):
    self.cells = defaultdict(dict)

  def pytest_runtest_logreport(self, report):
    case = report.nodeid.partition('::test_losses_and_gradients')[2]
    if case and (report.when == 'call' or not report.passed):
      name, _, mesh = report.nodeid.partition('[')[2].rstrip(']').rpartition('-')
      found = dict(report.user_properties).get('cell')
      self.cells[name][mesh] = found if report.passed else report.outcome.upper()

  def text(self) -> str:
    meshes = sorted({mesh for row in self.cells.values() for mesh in row}, reverse=True)
    lines = ['| variant | ' + ' | '.join(meshes) + ' |', '|---' * (len(meshes) + 1) + '|']
    for name, row in sorted(self.cells.items()):
      lines.append(f'| {name} | ' + ' | '.join(row.get(mesh, '-') for mesh in meshes) + ' |')
    return '\n'.join(lines)


def main(arguments: list[str]) -> int:
  os.environ['SGNJAX_MESHES'] = 'all'
  table = Table()
  test = str(Path(__file__).parent / 'test_sharding.py')
  status = pytest.main([test, *arguments[1:]], plugins=[table])
  print(table.text())
  if arguments:
    Path(arguments[0]).write_text(f'{TITLE}\n{table.text()}\n')
  return int(status)


if __name__ == '__main__':
  sys.exit(main(sys.argv[1:]))
