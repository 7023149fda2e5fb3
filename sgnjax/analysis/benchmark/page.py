"""What was measured, as JSON and as a Markdown page whose sections can be renewed one by one."""

import datetime
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from sgnjax.machine import in_words
from sgnjax.train.log import mark, write_atomically

Row = dict[str, Any]  # column, with its unit -> value; 'LEAKY' true: of a form that sees the future
FLAG = 'LEAKY'
BEGIN = '<!-- Below here --job=benchmark writes; what is above is kept. -->'
TITLE = """# How fast

Ratios are medians over rounds in which the things compared take turns, seconds are medians. FLOPs
are by `sgnjax.analysis.flops` where a column says so, else as XLA counts the compiled program (the
body of a loop once). LEAKY: of a form that sees the future. `aim` is what was asked for
beforehand. A comparison takes `benchmark.repeats` rounds after two that are not counted; where they
are long it begins none after `benchmark.seconds`, but takes three."""
CALLED = {'main.py': 'python launch/main.py', '__main__.py': 'sgnjax', 'sgnjax': 'sgnjax'}


def read(path: Path) -> dict[str, Any]:
  """What a benchmark.json holds already; nothing where there is none, or none of ours."""
  try:
    found = json.loads(path.read_text(encoding='utf-8'))
  except (OSError, ValueError):
    return {}
  return found if isinstance(found, dict) else {}


def record(rows: Iterable[Row], notes: Iterable[str], seconds: float, where: Mapping) -> dict:
  """A section's entry in benchmark.json; where: commit and machine, and whether it is all."""
  return {
    'rows': [{k: None if v != v else v for k, v in row.items()} for row in rows],
    'notes': list(notes),
    'seconds': seconds,
    'when': datetime.datetime.now(datetime.UTC).strftime('%Y-%m-%d %H:%M UTC'),
    'command': command(),
    **where,
  }


def command() -> str:
  """The command line, without the folder that it writes to."""
  called = CALLED.get(Path(sys.argv[0]).name)
  if called is None:
    return 'sgnjax.jobs.benchmark.run(config, workdir)'
  words = [w for w in sys.argv[1:] if not w.startswith(('--workdir', '--config.benchmark.page'))]
  return ' '.join([called, *words])


def table(rows: list[Row]) -> list[str]:
  """Markdown lines; every number of a leaky row says so."""
  columns = list(dict.fromkeys(key for row in rows for key in row if key != FLAG))
  numeric = {c for c in columns if any(isinstance(row.get(c), int | float) for row in rows)}
  lines = ['| ' + ' | '.join(columns) + ' |']
  lines.append('|' + ''.join(' ---: |' if c in numeric else ' --- |' for c in columns))
  for row in rows:
    cells = [cell(row.get(c), row.get(FLAG, False)) for c in columns]
    lines.append('| ' + ' | '.join(cells) + ' |')
  return lines


def line(row: Row) -> str:
  """A row on one line of the screen."""
  leaky = row.get(FLAG, False)
  shown = {key: cell(value, leaky) for key, value in row.items() if key != FLAG}
  return ', '.join(f'{key} {value}' for key, value in shown.items() if value)


def cell(value: Any, leaky: bool = False) -> str:
  """A number to three digits or whole; nothing for None."""
  if value is None:
    return ''
  if isinstance(value, str | bool):
    return str(value)
  if isinstance(value, int) or abs(value) >= 100:
    return f'{value:,.0f}{mark(leaky)}'
  digits = 3 if abs(value) < 1 else 2 if abs(value) < 10 else 1
  return f'{value:.{digits}f}{mark(leaky)}'


def section(name: str, title: str, text: str, found: Mapping[str, Any]) -> list[str]:
  """A section's lines: what it is, its table, and where that was measured."""
  lines = [f'### {title} (`{name}`)', '', *([text, ''] if text else [])]
  if found['rows']:
    lines += [*table(found['rows']), '']
  if not found['finished']:
    lines += ['**Unfinished: the run was ended here.**', '']
  for note in found['notes']:
    lines.append(f'- {note}')
  lines += [''] if found['notes'] else []
  where = f'{in_words(found)}; code of commit {found["commit"]}; {found["when"]}'
  return [*lines, f'{where}; took {found["seconds"]:,.0f} s: `{found["command"]}`', '']


def page(names: Mapping[str, tuple[str, str]], found: Mapping[str, Mapping], head: str) -> str:
  """The page. names: of all sections, in order, {'part/section': (title, text)}."""
  lines, part = [head.rstrip(), '', BEGIN, ''], None
  for name, (title, text) in names.items():
    if name not in found:
      continue
    if name.partition('/')[0] != part:
      part = name.partition('/')[0]
      lines += [f'## {part}', '']
    lines += section(name, title, text, found[name])
  missing = [name for name in names if name not in found]
  if missing:
    lines += [f'Not run: {", ".join(missing)}.', '']
  return '\n'.join(lines)


def write(path: Path, names: Mapping[str, tuple[str, str]], found: Mapping[str, Mapping]) -> None:
  """Writes the page, keeping what a person wrote above its figures."""
  head = TITLE
  if path.is_file():
    before, mine, _ = path.read_text(encoding='utf-8').partition(BEGIN)
    head = before if mine else TITLE
  path.parent.mkdir(parents=True, exist_ok=True)
  write_atomically(path, page(names, found, head))
