"""Two texts of one size for one claim: programs without their English, and English about them."""

import ast
import sys
import sysconfig
from pathlib import Path

from sgnjax.data import sources
from sgnjax.train.log import write_atomically

SCOPES = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def write(folder: Path) -> dict[str, Path]:
  """The files `code` and `prose`, of as many characters each; made once.

  Both from Python's own library, so that they differ by its version; their names say it.
  """
  version = '.'.join(map(str, sys.version_info[:2]))
  paths = {name: folder / f'python{version}_{name}.txt' for name in ('code', 'prose')}
  if all(path.exists() for path in paths.values()):
    return paths
  texts = {'code': programs(), 'prose': sources.embedded()}
  size = min(map(len, texts.values()))
  folder.mkdir(parents=True, exist_ok=True)
  for name, text in texts.items():
    write_atomically(paths[name], text[:size])
  return paths


def programs() -> str:
  """Modules of the standard library as `ast` writes them: no comments, no docstrings."""
  library, found = Path(sysconfig.get_path('stdlib')), []
  for name in sources.MODULES:
    file = library / name / '__init__.py'
    file = file if file.is_file() else library / f'{name}.py'
    found.append(bare(file.read_text(encoding='utf-8')))
  return '\n\n'.join(found) + '\n'


def bare(code: str) -> str:
  """Code without comments and docstrings."""
  tree = ast.parse(code)
  for node in ast.walk(tree):
    if isinstance(node, SCOPES) and ast.get_docstring(node, clean=False) is not None:
      node.body = node.body[1:] or [ast.Pass()]
  return ast.unparse(tree)
