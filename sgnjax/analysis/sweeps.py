"""What a sweep has found so far: a row a point, and means over the seeds."""

import math
from pathlib import Path

from sgnjax import config as config_lib
from sgnjax.grid import Point, Sweep
from sgnjax.train.checkpoint import committed
from sgnjax.train.evaluation import that_counts
from sgnjax.train.log import mark, read_records

# Numbers of an evaluation record that are told, where a record has them, and their form.
NUMBERS = {
  'accuracy': '{:.2%}',
  'loss': '{:.4f}',
  'perplexity': '{:,.2f}',
  'bits_per_byte': '{:.4f}',
}
SEED = 'seed'


def finished(point: Point, workdir: Path) -> bool:
  """Whether the point's folder holds the last step of this very config."""
  folder = workdir / point.name
  if not (folder / 'config.json').is_file():
    return False
  stored = config_lib.stored(folder)
  if config_lib.differences(stored, point.config, config_lib.RESUME_FREE):
    return False
  return point.config.train.steps in committed(folder)


def rows(sweep: Sweep, workdir: Path, failed: dict[str, str]) -> list[dict]:
  """A record a point: its labels, its state, and the evaluation that counts, if there is one.

  failed: by name of a point, what its run ended with.
  """
  found = []
  for point in sweep.points:
    records = read_records(workdir / point.name)
    record = that_counts(point.config, records) or {}
    state = 'finished' if finished(point, workdir) else failed.get(point.name)
    if state is None:
      step = max((r['step'] for r in records), default=0)
      state = f'at step {step:,}' if step else 'to come'
    seconds = [r['step_seconds'] for r in records if 'step_seconds' in r]
    found.append(
      {
        'name': point.name,
        'labels': point.labels,
        'config_hash': config_lib.fingerprint(point.config),
        'state': state,
        'step': record.get('step'),
        'leaky': any(r.get('leaky') for r in records),
        'step_seconds': seconds[-1] if seconds else None,
        **{key: record[key] for key in NUMBERS if record.get(key) is not None},
      }
    )
  return found


def table(found: list[dict]) -> str:
  """Markdown: the finished points by their labels, means over seeds where there are several."""
  axes = list(found[0]['labels'])
  done = [row for row in found if row['state'] == 'finished']
  lines = [f'{len(done)} of {len(found)} points are finished.', '']
  numbers = [key for key in NUMBERS if any(key in row for row in found)]
  if SEED in axes and len({row['labels'][SEED] for row in done}) > 1:
    others = [axis for axis in axes if axis != SEED]
    lines += _lines([*others, 'seeds', *(f'{key}, mean ± deviation' for key in numbers)])
    groups: dict[tuple, list[dict]] = {}
    for row in done:
      groups.setdefault(tuple(row['labels'][axis] for axis in others), []).append(row)
    for labels, group in groups.items():
      cells = [_spread(group, key) for key in numbers]
      lines.append(f'| {" | ".join([*labels, str(len(group)), *cells])} |')
    lines.append('')
  lines += _lines([*axes, 'state', 'step', *numbers, 'ms a step', 'config hash'])
  for row in found:
    said = mark(row['leaky'])
    cells = [row['labels'][axis] for axis in axes]
    cells += [row['state'], f'{row["step"]:,}' if row['step'] else '']
    cells += [NUMBERS[key].format(row[key]) + said if key in row else '' for key in numbers]
    cells.append(f'{1000 * row["step_seconds"]:,.1f}{said}' if row['step_seconds'] else '')
    lines.append(f'| {" | ".join([*cells, row["config_hash"]])} |')
  return '\n'.join(lines) + '\n'


def _lines(head: list[str]) -> list[str]:
  return [f'| {" | ".join(head)} |', '|' + ' --- |' * len(head)]


def _spread(group: list[dict], key: str) -> str:
  """Mean and sample standard deviation over the seeds."""
  values = [row[key] for row in group if key in row]
  if not values:
    return ''
  mean = math.fsum(values) / len(values)
  said = mark(any(row['leaky'] for row in group))
  if len(values) == 1:
    return NUMBERS[key].format(mean) + said
  deviation = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1))
  return f'{NUMBERS[key].format(mean)} ± {NUMBERS[key].format(deviation)}{said}'
