"""Runs side by side on one self-contained page: results, what differs, losses, what was learned."""

import json
from pathlib import Path
from typing import NamedTuple

from ml_collections import ConfigDict

from sgnjax import config as config_lib
from sgnjax.analysis.history import panels
from sgnjax.analysis.page import Picture, escape, image, section, table, whole
from sgnjax.analysis.plots.over_training import Band, Panel, figure, over_runs
from sgnjax.errors import UserError, nearest_path
from sgnjax.train.evaluation import that_counts
from sgnjax.train.log import mark, read_records, write_atomically

# Numbers of an evaluation that are told, where a run has them: name, form, and whether more is
# better.
NUMBERS = {
  'accuracy': ('accuracy', '{:.2%}', True),
  'loss': ('nats', '{:.4f}', False),
  'perplexity': ('perplexity', '{:,.2f}', False),
  'bits_per_byte': ('bits per byte', '{:.4f}', False),
}
# What does not make another model of a run: its seed, and all that a resumed run may change.
ALIKE = ('seed', *config_lib.RESUME_FREE)
MOST = 8  # lines of a picture that eyes tell apart


class Run(NamedTuple):
  """A run's name on the page, its config and records, and whether it sees the future."""

  name: str
  config: ConfigDict
  records: list[dict]
  leaky: bool


def read(workdirs: list[Path]) -> list[Run]:
  """The runs of the workdirs. Raises UserError for one that has no record yet."""
  if len(workdirs) < 2:
    raise UserError('compare needs two workdirs or more: --job=compare runs/a runs/b')
  names = _names([Path(w).resolve() for w in workdirs])
  runs = []
  for workdir, name in zip(workdirs, names, strict=True):
    if not Path(workdir).is_dir():
      raise UserError(f"workdir '{workdir}' does not exist{nearest_path(workdir)}")
    records = read_records(workdir)
    if not any(r['kind'] == 'evaluation' for r in records):
      raise UserError(f"workdir '{workdir}' holds no evaluation to compare (metrics.jsonl)")
    leaky = any(r.get('leaky') for r in records)
    runs.append(Run(name, config_lib.stored(workdir), records, leaky))
  return runs


def _names(paths: list[Path]) -> list[str]:
  """The last parts of the paths, as many as tell them apart."""
  for count in range(1, max(len(p.parts) for p in paths) + 1):
    names = ['/'.join(p.parts[-count:]) for p in paths]
    if len(set(names)) == len(paths):
      return names
  raise UserError(f"workdir '{paths[0]}' was named twice")


def groups(runs: list[Run]) -> dict[str, list[Run]]:
  """Runs that differ in their seed alone together, by the name of the first."""
  found: dict[str, list[Run]] = {}
  for run in runs:
    for others in found.values():
      if not config_lib.differences(others[0].config, run.config, ALIKE):
        others.append(run)
        break
    else:
      found[run.name] = [run]
  return found


def compare(workdirs: list[Path], folder: Path) -> Path:
  """Writes compare.html and its pictures into the folder; returns the page's path.

  Raises UserError as `read`, and where losses are of tasks that cannot be compared.
  """
  runs = read(workdirs)
  tasks = {config_lib.flat(run.config).get('data.task', 'lm') for run in runs}
  if len(tasks) > 1:
    raise UserError(f'runs of other tasks cannot be compared: data.task is {", ".join(tasks)}')
  grouped = groups(runs)
  leaky = any(run.leaky for run in runs)
  (folder / 'pictures').mkdir(parents=True, exist_ok=True)
  drawn = [*_losses(grouped, leaky), *_history(grouped)]
  images = [image(picture, folder / 'pictures') for picture in drawn]
  title = f'{len(runs)} runs compared{mark(leaky)}'
  parts = [
    f'<h1>{escape(title)}</h1>',
    f'<p>{_lead(runs)}</p>',
    _banner(runs),
    section('Results', _results(runs), _warnings(runs)),
    section('What differs between them', _differences(runs)),
    section('Learning', *images[:2]),
    section('What the mechanisms did meanwhile', *images[2:]) if images[2:] else '',
  ]
  path = folder / 'compare.html'
  write_atomically(path, whole(title, parts))
  return path


def _deciding(runs: list[Run]) -> str:
  """The number that all runs have and that decides: accuracy, else the loss."""
  finals = [that_counts(run.config, run.records) for run in runs]
  return 'accuracy' if all('accuracy' in f for f in finals) else 'loss'


def _order(runs: list[Run], key: str) -> list[Run]:
  """The best first; those that leak behind all others."""
  more = NUMBERS[key][2]
  ranked = sorted(runs, key=lambda r: that_counts(r.config, r.records)[key], reverse=more)
  return sorted(ranked, key=lambda run: run.leaky)


def _lead(runs: list[Run]) -> str:
  """Who is best, in one sentence; leaking runs are not ranked with the others."""
  key = _deciding(runs)
  name, form, _ = NUMBERS[key]
  honest = _order([run for run in runs if not run.leaky], key)
  if not honest:
    return 'All of these runs see the future: none of their numbers is a result.'
  best = honest[0]
  told = form.format(that_counts(best.config, best.records)[key])
  said = f'Best of the runs that see no future: <b>{escape(best.name)}</b>, {told} {escape(name)}.'
  if len(honest) > 1:
    other = honest[1]
    value = form.format(that_counts(other.config, other.records)[key])
    said += f' Next: {escape(other.name)}, {value}.'
  return said


def _banner(runs: list[Run]) -> str:
  named = [run.name for run in runs if run.leaky]
  if not named:
    return ''
  return (
    f'<p class="leaky">LEAKY: {escape(", ".join(named))}: these see tokens that they are asked to '
    'predict. Their numbers cannot be compared with the others.</p>'
  )


def _results(runs: list[Run]) -> str:
  key = _deciding(runs)
  finals = {run.name: that_counts(run.config, run.records) for run in runs}
  numbers = [k for k in NUMBERS if any(finals[run.name].get(k) is not None for run in runs)]
  rows = []
  for run in _order(runs, key):
    final, said = finals[run.name], mark(run.leaky)
    told = [
      NUMBERS[k][1].format(final[k]) + said if final.get(k) is not None else '' for k in numbers
    ]
    seconds = [r['step_seconds'] for r in run.records if 'step_seconds' in r]
    rate = f'{1000 * sorted(seconds)[len(seconds) // 2]:,.1f}{said}' if seconds else ''
    m = run.config.model
    cells = [run.name, f'{m.mixer}, {m.form}', *told, f'{final["step"]:,}', run.config.seed, rate]
    rows.append([escape(cell) for cell in cells])
  head = ['run', 'mixer, form', *(NUMBERS[k][0] for k in numbers), 'step', 'seed', 'ms a step']
  unigram = next((f['unigram'] for f in finals.values() if 'unigram' in f), None)
  note = '' if unigram is None else f' Token frequencies alone: {unigram:.4f} nats.'
  split = next(iter(finals.values()))['split']
  return table(rows, head) + f'<p class="soft">On the {escape(split)} split.{note}</p>'


def _warnings(runs: list[Run]) -> str:
  """What makes numbers of the runs incomparable, beside leaks."""
  said = []
  for key, what in (
    ('data.name', 'data sets'),
    ('data.tokenizer', 'tokenizers: compare bits per byte, not nats a token'),
    ('eval.split', 'splits'),
    ('eval.protocol', 'protocols of evaluation'),
    ('model.context', 'contexts'),
    ('train.steps', 'numbers of steps'),
  ):
    values = {json.dumps(config_lib.flat(run.config).get(key)) for run in runs}
    said += [f'other {what}'] if len(values) > 1 else []
  if not said:
    return ''
  return f'<p class="bad">Not of one kind: {escape("; ".join(said))}.</p>'


def _differences(runs: list[Run]) -> str:
  flat = [config_lib.flat(run.config) for run in runs]
  keys = sorted({key for one in flat for key in one})
  rows = []
  for key in keys:
    values = [one.get(key, '(absent)') for one in flat]
    if len({json.dumps(v) for v in values}) > 1:
      rows.append([escape(key), *(escape(v) for v in values)])
  if not rows:
    return '<p>Nothing: their configs are equal.</p>'
  return table(rows, ['key', *(escape(run.name) for run in runs)])


def _losses(grouped: dict[str, list[Run]], leaky: bool) -> list[Picture]:
  """Validation and training losses; the band is from the lowest to the highest seed."""
  unit = 'loss (nats)'
  found = []
  for kind, title in (('evaluation', 'Validation loss'), ('train', 'Training loss')):
    bands = []
    for number, (name, runs) in enumerate(list(grouped.items())[:MOST]):
      curves = []
      for run in runs:
        told = [(r['step'], r['loss']) for r in run.records if r['kind'] == kind]
        curves.append(tuple(zip(*told, strict=True)) or ((), ()))
      band = over_runs(name, curves, any(run.leaky for run in runs))
      bands.append(band._replace(number=number))
    drawn = figure(title, [Panel(unit, [b for b in bands if len(b.steps)])], leaky=leaky)
    caption = (
      'Of several seeds of one config: their mean, and a band from the lowest to the highest.'
    )
    if len(grouped) > MOST:
      caption += f' The first {MOST} of {len(grouped)} configs are drawn.'
    found.append(Picture(f'compare_{kind}', drawn, caption))
  return found


def _history(grouped: dict[str, list[Run]]) -> list[Picture]:
  """One panel for each quantity that a run tells, a line a config: the mean over its layers."""
  told: dict[str, list[Band]] = {}
  limits = {}
  for number, (name, runs) in enumerate(list(grouped.items())[:MOST]):
    for panel in panels(runs[0].records, leaky=runs[0].leaky):
      steps = panel.bands[0].steps
      same = [b for b in panel.bands if list(b.steps) == list(steps)]
      middle = [sum(values) / len(same) for values in zip(*(b.middle for b in same), strict=True)]
      band = Band(name, steps, middle, leaky=runs[0].leaky, number=number)
      told.setdefault(panel.ylabel, []).append(band)
      limits[panel.ylabel] = panel.ylim
  shown = [Panel(label, bands, ylim=limits[label]) for label, bands in told.items()]
  if not shown:
    return []
  leaky = any(band.leaky for bands in told.values() for band in bands)
  caption = 'Mean over layers of the first seed of each config.'
  return [Picture('compare_history', figure('While they trained', shown, leaky=leaky), caption)]
