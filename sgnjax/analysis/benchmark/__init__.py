"""What is fast and what is not: `--job=benchmark`, a part a file, a table a section."""

import inspect
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from sgnjax.analysis.benchmark import compile as compiling
from sgnjax.analysis.benchmark import (
  data,
  decode,
  gpu,
  mixers,
  ops,
  page,
  peers,
  scaling,
  tpu,
  train,
)
from sgnjax.analysis.benchmark.settings import ALL, STEP, Settings
from sgnjax.errors import check_choice
from sgnjax.machine import commit, machine
from sgnjax.train.log import write_atomically

Section = Callable[[Settings], Iterator[page.Row | str]]
PARTS: dict[str, dict[str, Section]] = {
  'ops': ops.SECTIONS,
  'mixers': mixers.SECTIONS,
  'train': train.SECTIONS | scaling.SECTIONS,
  'decode': decode.SECTIONS,
  'data': data.SECTIONS,
  'compile': compiling.SECTIONS,
  'peers': peers.SECTIONS,
  'tpu': tpu.SECTIONS,
  'gpu': gpu.SECTIONS,
}
SECTIONS = {f'{part}/{name}': run for part, own in PARTS.items() for name, run in own.items()}
FILE = 'benchmark.json'


def chosen(parts: tuple[str, ...]) -> list[str]:
  """The sections of parts, in the page's order. Raises UserError for a name that is none."""
  wanted = set()
  for name in parts:
    check_choice('benchmark.parts', name, [STEP, ALL, *PARTS, *SECTIONS])
    wanted |= {s for s in SECTIONS if name in (ALL, s, s.partition('/')[0])}
  return [name for name in SECTIONS if name in wanted]


def about(section: Section) -> tuple[str, str]:
  """The title and the text of a section: its docstring's."""
  title, _, text = inspect.cleandoc(section.__doc__ or '').partition('\n')
  return title, text.strip()


def run(settings: Settings, workdir: Path, say: Callable[[str], None] = print) -> None:
  """Measures the sections that `benchmark.parts` names, one after the other.

  After each row, benchmark.json and benchmark.md of the workdir, and `benchmark.page`, have what is
  measured so far, marked as unfinished; a table of the same name that was finished before stays
  until the new one is. All else in them stays.
  """
  code = commit() or 'unknown'
  for name in chosen(settings.parts):
    before = page.read(workdir / FILE).get('sections', {}).get(name)
    finished = before is not None and before['finished']
    if settings.resume and finished:
      say(f'{name}: kept, as measured {before["when"]}')
      continue
    title, _ = about(SECTIONS[name])
    say(f'{name}: {title}')
    start, rows, notes = time.perf_counter(), [], []

    def entry(done: bool, start=start, rows=rows, notes=notes) -> dict:
      seconds = time.perf_counter() - start
      where = {'commit': code, 'finished': done, **machine(1)}
      return page.record(rows, notes, seconds, where)

    for item in SECTIONS[name](settings):
      (notes if isinstance(item, str) else rows).append(item)
      say(f'  {item if isinstance(item, str) else page.line(item)}')
      if not finished:
        _keep(workdir, settings.page, name, entry(False))
    _keep(workdir, settings.page, name, entry(True))


def _keep(workdir: Path, shown: str | None, name: str, entry: dict) -> None:
  """Writes a section's table into the files."""
  found = page.read(workdir / FILE)
  sections = found.get('sections', {}) | {name: entry}
  found['sections'] = {name: sections[name] for name in SECTIONS if name in sections}
  write_atomically(workdir / FILE, json.dumps(found, indent=2) + '\n')
  names = {name: about(section) for name, section in SECTIONS.items()}
  for path in filter(None, (workdir / 'benchmark.md', shown)):
    page.write(Path(path), names, found['sections'])
