"""The notebooks and the scripts beside them hold the same cells, with their outputs."""

from pathlib import Path

import pytest

jupytext = pytest.importorskip('jupytext', reason='pip install sgnjax[dev]')
COLAB = Path(__file__).parent.parent / 'colab'


@pytest.mark.parametrize('path', sorted(COLAB.glob('*.py')), ids=lambda path: path.stem)
def test_a_notebook_is_its_script(path):
  script, notebook = jupytext.read(path), jupytext.read(path.with_suffix('.ipynb'))

  def cells(book):
    return [(cell.cell_type, cell.source.strip()) for cell in book.cells]

  assert cells(script) == cells(notebook), f'python -m tests.notebooks --write {path.stem}'
  pictures = [
    output
    for cell in notebook.cells
    for output in cell.get('outputs', ())
    if 'image/png' in output.get('data', {})
  ]
  assert pictures
