"""The ledger of all claims as JSON, Markdown and HTML, from the findings and never by hand."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path

from sgnjax.analysis import page
from sgnjax.analysis.claims.claim import (
  FAILS,
  HOLDS,
  NEEDS,
  OPEN,
  PAPERS,
  UNDECIDED,
  VERDICTS,
  WITH_LEAK,
  Claim,
  Finding,
  Table,
)
from sgnjax.train.log import write_atomically

Findings = Mapping[str, Finding]
# Colours that differ in lightness too; the words stand beside them.
COLOURS = {
  HOLDS: ('#00614a', '#e3f4ee'),
  WITH_LEAK: ('#8a3800', '#fdeee4'),
  FAILS: ('#7a1030', '#fbe6ec'),
  UNDECIDED: ('#4a4a4a', '#eeeeee'),
  OPEN: ('#004b87', '#e6f0fa'),
}
MADE = (
  'Each verdict is that of the commit, day and machine beside it, by '
  '--job=reproduce --claims=ID. A training that was there already was not run again, and may be '
  'of an earlier commit.'
)
STYLE = """
body { max-width: 64rem; }
.verdict { display: inline-block; padding: .05rem .5rem; border-radius: .3rem; font-weight: 600;
  font-size: .85rem; white-space: nowrap; }
.claim { border-bottom: 1px solid var(--line); padding: .6rem 0; }
.claim p { margin: .2rem 0; }
.claim code { font-size: .85rem; }
.id { font-variant-numeric: tabular-nums; font-weight: 600; margin-right: .5rem; }
nav a { margin-right: 1rem; }
"""


def write(folder: Path, claims: Sequence[Claim], findings: Findings) -> list[Path]:
  """claims.json, claims.md and claims.html in `folder`.

  A claim without a finding is listed as not tried.
  """
  folder.mkdir(parents=True, exist_ok=True)
  record = {
    'claims': [
      {'id': c.id, 'paper': c.paper, 'claim': c.text, 'needs': c.needs}
      | (findings[c.id].to_json() if c.id in findings else {'verdict': None})
      for c in claims
    ],
  }
  texts = {
    'claims.json': json.dumps(record, indent=1) + '\n',
    'claims.md': markdown(claims, findings),
    'claims.html': html(claims, findings),
  }
  for name, text in texts.items():
    write_atomically(folder / name, text)
  return [folder / name for name in texts]


def read(path: Path) -> dict[str, Finding]:
  """The findings of a claims.json; none where there is no such file."""
  if not path.exists():
    return {}
  keys = {field.name for field in fields(Finding)}
  return {
    found['id']: Finding.from_json({key: value for key, value in found.items() if key in keys})
    for found in json.loads(path.read_text())['claims']
    if found['verdict'] is not None
  }


def summary(claims: Sequence[Claim], findings: Findings) -> list[tuple[str, ...]]:
  """Of each paper how many claims have which verdict; the first row is the head."""
  rows = [('paper', *VERDICTS, 'not tried', 'claims')]
  for paper in PAPERS.values():
    own = [c for c in claims if c.paper == paper]
    found = Counter(findings[c.id].verdict for c in own if c.id in findings)
    counts = [found[verdict] for verdict in VERDICTS]
    rows.append((paper, *map(str, [*counts, len(own) - sum(counts), len(own)])))
  return rows


def made(claims: Sequence[Claim], findings: Findings) -> list[tuple[str, ...]]:
  """Which code gave which verdicts, when and where; the first row is the head."""
  by = {}
  for c in claims:
    if found := findings.get(c.id):
      by.setdefault((found.commit, found.when, found.machine), []).append(c.id)
  rows = [(*(cell or 'not recorded' for cell in key), ', '.join(ids)) for key, ids in by.items()]
  return [('commit', 'day', 'machine', 'claims'), *rows]


def markdown(claims: Sequence[Claim], findings: Findings) -> str:
  """The ledger as one page of Markdown."""
  head, *rows = summary(claims, findings)
  lines = [
    '# Which claims of the four papers hold\n',
    'Written by `--job=reproduce`, never by hand. A verdict from a run that is smaller than the '
    "paper's says so: it decides the sign at that size. A number of a model that sees the future "
    'is marked LEAKY. Differences are paired by seed and batch, with the 95 % interval of their '
    'mean (Student, over seeds). Seeds are added, from three up to five, while an interval holds '
    '0: that makes the intervals of such claims a little too narrow.\n',
    *markdown_table([head, *rows]),
    f'\n{MADE}\n',
    *markdown_table(made(claims, findings)),
    '',
  ]
  for paper in PAPERS.values():
    own = [c for c in claims if c.paper == paper]
    lines.append(f'## {paper}\n')
    table = [('id', 'claim', 'verdict', 'evidence')]
    for c in own:
      found = findings.get(c.id)
      needs = ' and '.join(NEEDS[letter] for letter in c.needs)
      verdict = f'**{found.verdict}**' if found else f'not tried: needs {needs}'
      table.append((c.id, c.text, verdict, ' '.join(filter(None, _said(found)))))
    lines += [*markdown_table(table), '']
    for c in own:
      found = findings.get(c.id)
      if found and (found.tables or found.runs):
        lines.append(f'### {c.id}\n\n{c.text}\n')
        for t in found.tables:
          lines += [f'{t.title}:\n', *markdown_table([t.head, *t.rows]), '']
        if found.runs:
          lines.append(f'Config hashes: {_hashes(found)}.\n')
  return '\n'.join(lines)


def _said(found: Finding | None) -> list[str]:
  if found is None:
    return []
  parts = [found.said, f'Setting: {found.setting}.' if found.setting else '']
  if found.decision:
    d = found.decision
    parts.append(f'To decide: `{d.command}` on {d.hardware}; {d.cost}.')
  return parts


def _hashes(found: Finding) -> str:
  return ', '.join(f'{run["hash"]} (seed {run["seed"]})' for run in found.runs)


def markdown_table(rows: Sequence[Sequence[str]]) -> list[str]:
  """A table of Markdown."""
  cells = [[cell.replace('|', r'\|') for cell in row] for row in rows]
  head, *rest = (f'| {" | ".join(row)} |' for row in cells)
  return [head, '|---' * len(rows[0]) + '|', *rest]


def html(claims: Sequence[Claim], findings: Findings) -> str:
  """The ledger as one self-contained page: verdicts in colour, evidence a click away."""
  head, *rows = summary(claims, findings)
  code = made(claims, findings)
  links = ''.join(f'<a href="#{paper}">{paper}</a>' for paper in PAPERS.values())
  parts = [
    f'<nav>{links}</nav>',
    '<p>What each paper states, and what was found. Click a claim for its evidence. Numbers of a '
    'model that sees the future are marked LEAKY. A verdict from smaller runs than the '
    "paper's says so, and holds for that size.</p>",
    page.table(rows, head),
    f'<details><summary>by which code</summary><p>{MADE}</p>{_rows(*code)}</details>',
  ]
  for paper in PAPERS.values():
    own = [c for c in claims if c.paper == paper]
    body = '\n'.join(_claim(c, findings.get(c.id)) for c in own)
    parts.append(f'<div id="{paper}">{page.section(paper, body)}</div>')
  title = 'Which claims of the four papers hold'
  return (
    f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>\n'
    '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    f'<style>{page.STYLE}{STYLE}</style></head>\n<body>\n<h1>{title}</h1>\n'
    + '\n'.join(parts)
    + '\n</body></html>\n'
  )


def _claim(claim: Claim, found: Finding | None) -> str:
  ink, paper = COLOURS[found.verdict] if found else ('#1a1a1a', '#ffffff')
  verdict = found.verdict if found else 'not tried'
  chip = f'<span class="verdict" style="color:{ink};background:{paper}">{verdict}</span>'
  top = f'<p><span class="id">{claim.id}</span>{page.escape(claim.text)} {chip}</p>'
  if found is None:
    return f'<div class="claim" id="{claim.id}">{top}</div>'
  inside = [f'<p>{page.escape(found.said)}</p>']
  if found.setting:
    inside.append(f'<p class="soft">Setting: {page.escape(found.setting)}</p>')
  if found.decision:
    d = found.decision
    inside.append(
      f'<p class="soft">To decide it: {page.escape(d.hardware)}; {page.escape(d.cost)}.</p>'
      f'<pre>{page.escape(d.command)}</pre>'
    )
  more = [_table(t) for t in found.tables]
  if found.runs:
    more.append(f'<p class="soft">Config hashes: {page.escape(_hashes(found))}</p>')
  if more:
    inside.append(f'<details><summary>evidence</summary>{"".join(more)}</details>')
  return f'<div class="claim" id="{claim.id}">{top}{"".join(inside)}</div>'


def _table(t: Table) -> str:
  return f'<p>{page.escape(t.title)}</p>' + _rows(t.head, *t.rows)


def _rows(head: Sequence[str], *rows: Sequence[str]) -> str:
  return page.table([map(page.escape, row) for row in rows], map(page.escape, head))
