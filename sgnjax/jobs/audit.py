"""Audits the small twin of the config and the weights of the workdir, or every named variant."""

import time
from collections.abc import Iterator
from pathlib import Path

from ml_collections import ConfigDict

from sgnjax import audit
from sgnjax.errors import UserError, nearest
from sgnjax.models import build
from sgnjax.models.variants import VARIANTS, variant
from sgnjax.train import checkpoint

CONTEXT = 1024  # longest input at which trained weights are audited


def run(config: ConfigDict, workdir: str | Path) -> int:
  """Prints tables and verdicts. 0: blind to the future; 3: not, with allow_leak too.

  With `audit.variants` (`all`, or how their names begin) the named variants take the config's sizes
  one after the other; their table goes to `audit.md` of the workdir, and 0 says that each is as it
  declares itself. Raises UserError where a model's own word, or its cache, contradicts what was
  found.
  """
  if config.audit.variants is not None:
    return _variants(config, Path(workdir))
  reports = [('the small twin of the config, all its parameters random', audit.twin_report(config))]
  if checkpoint.committed(workdir):
    stored, params, tokenizer, step = checkpoint.load_params(workdir)
    model = build(stored, vocab=tokenizer.vocab_size)
    length = min(stored.model.context, CONTEXT)
    report = audit.audit(model, params, vocab=model.vocab, length=length)
    reports.append((f'the weights of {workdir} at step {step}, in their own config', report))
  for title, report in reports:
    print(f'{title}\n{report.table()}\n{report.verdict()}\n')
  if any(report.leaky for _, report in reports):
    return 3
  for _, report in reports:
    if report.contradiction:
      raise UserError(f'internal check: {report.contradiction}')
  return 0


def _variants(config: ConfigDict, workdir: Path) -> int:
  """The table of the named variants, a line as each is audited."""
  wanted = config.audit.variants
  names = [name for name in VARIANTS if wanted == 'all' or name.startswith(wanted)]
  if not names:
    raise UserError(f"no variant is called '{wanted}'" + nearest(wanted, VARIANTS))
  lines, wrong = [], []
  for line, contradiction in _rows(config, names):
    print(line, flush=True)
    lines.append(line)
    wrong += [contradiction] if contradiction else []
  workdir.mkdir(parents=True, exist_ok=True)
  (workdir / 'audit.md').write_text('\n'.join(lines) + '\n')
  if wrong:
    raise UserError('internal check: ' + '; '.join(wrong))
  return 0


def _rows(config: ConfigDict, names: list[str]) -> Iterator[tuple[str, str]]:
  """Lines of the Markdown table, each with what contradicts the variant's own word, or ''."""
  yield '| variant | form | verdict | largest change | in | padding | decoding | seconds |', ''
  yield '|---' * 8 + '|', ''
  for name in names:
    start = time.perf_counter()
    chosen = variant(config, name)
    report = audit.twin_report(chosen)
    rows = {row.check: row for row in report.rows}
    compared = [r.relative for r in report.rows if r.check != 'decoding' and r.relative >= 0]
    cells = (
      name,
      chosen.model.form,
      'LEAKY' if report.leaky else 'causal',
      f'{report.size:.1e} LEAKY' if report.leaky else f'{max(compared):.1e}',
      report.layer or '-',
      _outcome(rows['padding']),
      _outcome(rows['decoding']),
      f'{time.perf_counter() - start:.0f}',
    )
    yield f'| {" | ".join(cells)} |', f'{name}: {report.contradiction}' * bool(report.contradiction)


def _outcome(row: audit.Row) -> str:
  """The relative change of a row, or why nothing was compared."""
  if row.relative >= 0:
    return f'{row.relative:.1e}{" FAILS" if row.fails else ""}'
  return row.note.partition(':')[0]
