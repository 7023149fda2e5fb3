"""Writes the reference of config keys: `python -m sgnjax.analysis.config_page docs/config.md`.

Every key of configs/base.py with its default and what the file itself says of it.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from sgnjax import config as config_lib

BASE = config_lib.CONFIGS / 'base.py'
GROUPS = {
  '': 'A run',
  'model': 'The model',
  'model.sgn': 'SGN',
  'model.fourier_qk': 'FourierQK',
  'model.ega': 'EGA',
  'model.chiar': 'CHIAR',
  'model.baselines': 'Baselines',
  'data': 'Data',
  'train': 'Training',
  'optim': 'The optimiser',
  'eval': 'Evaluation',
  'audit': 'The audit',
  'scaling': 'Scaling with length',
  'sample': 'Generation',
  'score': 'Probabilities of a text',
  'reproduce': 'Claims of the papers',
  'lr_range': 'The learning rate range test',
  'export': 'Export',
  'benchmark': 'The benchmark',
  'mesh': 'Devices',
  'hosts': 'Processes',
}
INTRODUCTION = """# Every key of a config

Written from `configs/base.py` by `python -m sgnjax.analysis.config_page docs/config.md`. On the
command line a key is `--config.KEY=VALUE`, as `--config.train.steps=1000`; `none` unsets a key that
may be None; a tuple is `--config.model.ega.lengths=3,7`. The configs of experiments in `configs/`
change a few of these each.
"""


def keys(text: str) -> Iterator[tuple[str, str]]:
  """Each key that `get_config` of this file sets, with the comment above it or behind it."""
  above: list[str] = []
  for line in text.partition('def get_config')[2].partition('return c.lock()')[0].splitlines():
    line = line.strip()
    if line.startswith('#'):
      above.append(line.lstrip('# '))
      continue
    found = re.match(r'c\.([\w.]+) = (.*?)(?:\s+#\s*(.*))?$', line)
    if found and 'ConfigDict' not in found[2]:
      yield found[1], ' '.join([*above, found[3] or '']).strip()
    above = []


def page() -> str:
  """The whole reference, as Markdown."""
  config, said = config_lib.load(BASE), dict(keys(BASE.read_text(encoding='utf-8')))
  flat, parts = config_lib.flat(config), [INTRODUCTION]
  groups = dict.fromkeys(key.rpartition('.')[0] for key in said)
  for group in groups:
    own = [key for key in said if key.rpartition('.')[0] == group]
    lines = [f'## {GROUPS.get(group, group)}\n', '| key | default | |', '|---|---|---|']
    for key in own:
      what = said[key].replace('|', r'\|')
      lines.append(f'| `{key}` | `{_told(flat[key])}` | {what} |')
    parts.append('\n'.join([*lines, '']))
  return '\n'.join(parts)


def _told(value) -> str:
  if isinstance(value, list):
    return f'({", ".join(map(str, value))}{"," if len(value) == 1 else ""})'
  return repr(value) if value == '' or value != str(value).strip() else str(value)


def main() -> int:
  if len(sys.argv) != 2:
    sys.exit(f'usage: python -m {__spec__.name} FILE')
  Path(sys.argv[1]).write_text(page(), encoding='utf-8')
  return 0


if __name__ == '__main__':
  sys.exit(main())
