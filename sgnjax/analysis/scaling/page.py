"""The page of scaling: what was measured, what the law continues, and the pictures of both."""

import itertools
import os
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from ml_collections import ConfigDict

from sgnjax.analysis.plots.panels import LINES
from sgnjax.analysis.plots.style import entitle, new_figure, plain_log, save
from sgnjax.analysis.scaling.law import Law, fit
from sgnjax.analysis.scaling.measure import GIB
from sgnjax.machine import in_words, machine
from sgnjax.train.log import mark

LONGEST = 2**20
POINTS = 5  # the longest lengths, which a law is fitted to
Curves = dict[str, dict[int, float]]  # mixer -> length -> value

HEAD = """# What a longer sequence costs

{what}

{lead}

- **Time**: median of a training step (forward, backward, AdamW) on one device, in seconds of all
  processors together, which other programs on the machine change less than the clock. Measured as
  far as {seconds:g} s a step and {memory:g} GiB go; beyond, *continued by the fitted law*, and
  written so.
- **Memory**: what the compiled program holds at its peak, by the compiler, at every length. No
  program beyond the measured lengths was run.
- **FLOPs**: by formula (`sgnjax.analysis.flops`), at every length.
- **Collectives**: bytes that a device sends in a step when the length lies over {devices} devices,
  by the compiled program.

The exponent is the slope through the logarithms of the five longest lengths that were measured, and
in brackets its 95 % interval (Student's t): how far the points lie from one power, on this machine.
"""
PICTURES = {
  'scaling_time': 'processor seconds of a step; filled: measured, dashed beyond: the fitted law',
  'scaling_memory': 'GiB that the program of one device holds at its peak',
  'scaling_flops': 'FLOPs of a step, by formula',
  'scaling_collectives': 'bytes that a device sends in a step, the length over several devices',
}


def curves(records: list[dict]) -> dict[str, Curves]:
  """Processor seconds, GiB, FLOPs and bytes sent, by mixer and length; zeros are left out."""
  found: dict[str, Curves] = {key: {} for key in ('seconds', 'peak', 'flops', 'sent')}
  for r in sorted(records, key=lambda r: r['length']):
    values = {'seconds': r.get('processor_seconds'), 'flops': r.get('flops')}
    values['peak'] = r['peak'] / GIB if 'peak' in r else None
    values['sent'] = sum(r['collectives'].values()) if 'collectives' in r else None
    for key, value in values.items():
      if value:
        found[key].setdefault(r['mixer'], {})[r['length']] = value
  return found


def laws(values: Curves) -> dict[str, Law]:
  """The law of each mixer that has two lengths or more."""
  found = {mixer: fit(v, v.values(), POINTS) for mixer, v in values.items()}
  return {mixer: law for mixer, law in found.items() if law is not None}


def figure(
  title: str,
  ylabel: str,
  values: Curves,
  leaky: set[str],
  fitted: dict[str, Law] | None = None,
) -> Figure:
  """Log-log: a mark a measurement, solid between; with `fitted`, dotted beyond, to `LONGEST`.

  The legend gives each mixer's slope. leaky: the mixers that see the future.
  """
  slopes = laws(values)
  drawn = new_figure(4.2)
  ax = drawn.subplots()
  for (mixer, v), (colour, _, point) in zip(values.items(), itertools.cycle(LINES), strict=False):
    label = f'{mixer}: {slopes[mixer].exponent:.2f}' if mixer in slopes else mixer
    label += mark(mixer in leaky)
    style = {'color': colour, 'marker': point, 'markersize': 5, 'linewidth': 1.4}
    # The eighth line has the first one's colour; its dashes tell them apart.
    dashes = '-' if list(values).index(mixer) < 7 else '--'
    ax.plot(list(v), list(v.values()), linestyle=dashes, label=label, **style)
    last = max(v)
    if fitted is not None and mixer in fitted and last < LONGEST:
      beyond = [n for n in 2 ** np.arange(8, 21) if n > last]
      ax.plot(
        [last, *beyond], [v[last], *(fitted[mixer](n) for n in beyond)], color=colour,
        linestyle=':', linewidth=1.4, marker=point, markersize=5, fillstyle='none', alpha=0.8,
      )  # fmt: skip
  ax.set_xscale('log', base=2)
  ax.set_yscale('log')
  plain_log(ax.yaxis)
  ticks = [2**n for n in range(8, 21, 2)]
  ax.set_xticks(
    ticks, [f'{t // 1024}k' if 1024 <= t < LONGEST else f'{t}' for t in ticks[:-1]] + ['1M']
  )
  ax.minorticks_off()
  ax.set(xlabel='length (tokens)', ylabel=ylabel)
  ax.grid(alpha=0.25)
  ax.legend(
    title='mixer: slope', loc='upper left', bbox_to_anchor=(1.01, 1.0), frameon=False, fontsize=9,
    alignment='left',
  )  # fmt: skip
  entitle(drawn, title, bool(leaky & set(values)))
  return drawn


def write(config: ConfigDict, records: list[dict], path: Path, pictures: Path) -> Path:
  """Writes the page at `path` and the pictures into their folder; returns the page's path."""
  found, leaky = curves(records), {r['mixer'] for r in records if r['leaky']}
  pictures.mkdir(parents=True, exist_ok=True)
  drawn = {
    'scaling_time': figure(
      'Time of a training step', 'processor seconds (open: by the law)', found['seconds'],
      leaky, laws(found['seconds']),
    ),
    'scaling_memory': figure('Memory of a training step', 'GiB at the peak', found['peak'], leaky),
    'scaling_flops': figure('FLOPs of a training step', 'FLOPs', found['flops'], leaky),
    'scaling_collectives': figure(
      f'Sent by one of {config.scaling.devices} devices', 'bytes a step', found['sent'], leaky
    ),
  }  # fmt: skip
  where = os.path.relpath(pictures, path.parent)
  shown = []
  for name, drawn_figure in drawn.items():
    save(drawn_figure, pictures / f'{name}.png')
    shown.append(f'![{PICTURES[name]}]({where}/{name}.png)')
  m, s = config.model, config.scaling
  what = (
    f'{m.layers} layers of width {m.width}, {m.heads} heads, {m.dtype}, one row of random tokens, '
    f'model.remat={m.remat} (all: layers are computed again in the backward pass); '
    f'{in_words(machine())}.'
  )
  head = HEAD.format(
    what=what, lead=_lead(found, leaky), seconds=s.seconds, memory=s.memory_gib, devices=s.devices
  )
  parts = [head, shown[0], _exponents(found, leaky), *shown[1:], _measured(records, found, leaky)]
  parts.append('```\npython launch/main.py --config=configs/scaling.py --job=scaling\n```')
  path.write_text('\n\n'.join(parts) + '\n', encoding='utf-8')
  return path


def _lead(found: dict[str, Curves], leaky: set[str]) -> str:
  """The page in two sentences."""
  slopes = laws(found['seconds'])
  if not slopes:
    return 'No step was timed yet.'
  order = sorted(slopes, key=lambda mixer: slopes[mixer].exponent)
  reach = {mixer: max(found['seconds'][mixer]) for mixer in order}
  flat = ', '.join(f'{mixer} {slopes[mixer].exponent:.2f}{mark(mixer in leaky)}' for mixer in order)
  longest = ', '.join(m for m in order if reach[m] == max(reach.values()))
  return (
    f'Time grows with the length to the power of: {flat}. The longest sequence that was run here, '
    f'{max(reach.values()):,} tokens, was run by {longest}.'
  )


def _exponents(found: dict[str, Curves], leaky: set[str]) -> str:
  """Exponents, and what a million tokens take."""
  lines = [
    '| mixer | time: exponent | longest measured | seconds there | seconds at 1,048,576 | memory: '
    'exponent | GiB at 1,048,576 | FLOPs: exponent | collectives: exponent |',
    '|' + ' --- |' * 9,
  ]
  fitted = {key: laws(values) for key, values in found.items()}
  for mixer in found['flops']:
    seconds, law = found['seconds'].get(mixer, {}), fitted['seconds'].get(mixer)
    last = max(seconds, default=None)
    cells = [str(law or ''), f'{last:,}' if last else '', _short(seconds.get(last))]
    if last == LONGEST:
      cells.append(f'{_short(seconds[last])}, measured')
    else:
      cells.append(f'{_short(law(LONGEST))}, by the law' if law else '')
    memory = found['peak'].get(mixer, {}).get(LONGEST)
    cells += [str(fitted['peak'].get(mixer, '')), _short(memory)]
    cells += [str(fitted[key].get(mixer, '')) for key in ('flops', 'sent')]
    lines.append(_row(mixer, cells, leaky))
  return '\n'.join(lines)


def _measured(records: list[dict], found: dict[str, Curves], leaky: set[str]) -> str:
  """Every measurement, and why a step was not run."""
  lengths = sorted({r['length'] for r in records})
  head = f'| mixer | {" | ".join(f"{n:,}" for n in lengths)} |'
  rule = '|' + ' --- |' * (len(lengths) + 1)
  parts = []
  for key, title in (
    ('seconds', 'Processor seconds of a step'),
    ('peak', 'GiB of the compiled program'),
  ):
    rows = [
      _row(mixer, [_short(values.get(n)) for n in lengths], leaky)
      for mixer, values in found[key].items()
    ]
    parts.append('\n'.join([f'{title}:\n', head, rule, *rows]))
  skipped: dict[str, tuple[int, str]] = {}
  for r in records:
    if 'skipped' in r:
      skipped[r['mixer']] = min(
        skipped.get(r['mixer'], (LONGEST + 1, '')), (r['length'], r['skipped'])
      )
  if skipped:
    told = '; '.join(f'{m} from {n:,} on ({why})' for m, (n, why) in skipped.items())
    parts.append(f'Not run: {told}.')
  return '\n\n'.join(parts)


def _row(mixer: str, cells: list[str], leaky: set[str]) -> str:
  said = mark(mixer in leaky)
  return f'| {" | ".join([mixer, *(cell and cell + said for cell in cells)])} |'


def _short(value: float | None) -> str:
  if value is None:
    return ''
  return f'{value:,.0f}' if value >= 100 else f'{value:.3g}'
