"""Runs the notebooks: `python -m tests.notebooks [--write] [NAME ...]`.

Each colab/*.py is executed from top to bottom as a notebook, in a folder of its own; its time is
printed. --write: at full size, and its cells and outputs become the .ipynb beside it; else at the
small size that SGNJAX_SMALL asks for, and nothing is written.
"""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

import jupytext
import nbclient
import nbformat

COLAB = Path(__file__).resolve().parent.parent / 'colab'
LIMIT = 900  # seconds of a cell


def execute(path: Path, folder: str) -> nbformat.NotebookNode:
  """The notebook of a .py file with its outputs."""
  notebook = jupytext.read(path)
  resources = {'metadata': {'path': folder}}
  nbclient.NotebookClient(notebook, timeout=LIMIT, resources=resources).execute()
  return notebook


def stripped(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
  """Without what differs from run to run: times of cells, and warnings of the machine."""
  for number, cell in enumerate(notebook.cells):
    cell['id'] = f'cell-{number}'
    cell.metadata = {}
    if cell.cell_type == 'code':
      cell.outputs = [o for o in cell.outputs if o.get('name') != 'stderr']
  language = notebook.metadata.get('language_info', {})
  notebook.metadata = {
    'kernelspec': {'display_name': 'Python 3', 'language': 'python', 'name': 'python3'},
    'language_info': {'name': language.get('name', 'python')},
    'jupytext': {'formats': 'ipynb,py:percent'},
  }
  return notebook


def main() -> int:
  parser = argparse.ArgumentParser(prog='python -m tests.notebooks', description=__doc__)
  parser.add_argument('names', nargs='*', help='of the notebooks, or how they begin (none: all)')
  parser.add_argument('--write', action='store_true')
  flags = parser.parse_args()
  if not flags.write:
    os.environ['SGNJAX_SMALL'] = '1'
  os.environ.setdefault('JAX_PLATFORMS', 'cpu')
  os.environ['PYTHONPATH'] = os.pathsep.join(
    filter(None, [str(COLAB.parent), os.environ.get('PYTHONPATH')])
  )
  for path in sorted(COLAB.glob('*.py')):
    if flags.names and not any(path.stem.startswith(name) for name in flags.names):
      continue
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
      try:
        notebook = execute(path, folder)
      except nbclient.exceptions.CellExecutionError as error:
        print(f'{path.name}: {error}', file=sys.stderr)
        return 1
    if flags.write:
      nbformat.write(stripped(notebook), path.with_suffix('.ipynb'))
    print(f'{path.name}: {time.monotonic() - start:.0f} s', flush=True)
  return 0


if __name__ == '__main__':
  sys.exit(main())
