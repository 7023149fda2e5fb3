"""Lists the configs: name and first line of the docstring."""

import ast

from sgnjax.config import CONFIGS


def run(config=None, workdir=None) -> int:
  paths = [p for p in sorted(CONFIGS.glob('*.py')) if p.stem not in ('__init__', 'base')]
  width = max((len(p.name) for p in paths), default=0)
  for path in paths:
    lines = (ast.get_docstring(ast.parse(path.read_text())) or '').splitlines()
    print(f'configs/{path.name:<{width}} {lines[0] if lines else ""}')
  return 0
