"""Lists the configs: name and first line of the docstring."""

import ast

from sgnjax.config import CONFIGS


def run(config=None, workdir=None) -> int:
  for path in sorted(CONFIGS.glob('*.py')):
    if path.stem == '__init__' or path.stem == 'base':
      continue
    lines = (ast.get_docstring(ast.parse(path.read_text())) or '').splitlines()
    print(f'configs/{path.name:<28} {lines[0] if lines else ""}')
  return 0
