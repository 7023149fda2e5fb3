"""`python -m sgnjax.analysis.leakage_page PAGE RUN ...`: gap and audit of several runs on a page.

A run without leakage.json is measured first. Pictures go into the folder `pictures` beside the
page's own folder.
"""

import json
import os
import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from sgnjax.analysis.leakage import CLEAN, FILE, LEAKY, measure
from sgnjax.analysis.plots.style import BLACK, BLUE, MAP, ORANGE, entitle, new_figure, save
from sgnjax.errors import UserError
from sgnjax.train.log import mark

FLOOR = 1e-16  # where no change at all is drawn
WIDE = 0.05  # nats that a letter of a name takes
HEAD = """# Two ways of looking for a leak

The **shuffled gap** of the FourierQK paper: the loss on one permutation of the validation stream's
tokens minus the loss in order; above 4 nats its paper reads "clean", below 2 "leaky". The **audit**
replaces later tokens and looks whether anything before them changes, in float64, on the weights
that were trained.

{lead}
"""
AFTER = """The gap says how much a model gains from the order of the text, however it gains it. A
model that peeks a little at everything keeps its gap, since peeking at shuffled text helps as
little as reading it; a model that reads little has a small gap without any peeking. So a gap
decides nothing about the future, and the audit alone is used as a gate (exit status 3).
"""


def gap_against_audit(found: list[dict]) -> Figure:
  """Each run by its gap and by what the audit of its weights saw."""
  figure = new_figure(4.6)
  ax = figure.subplots()
  ax.axhspan(1e-9, 10, color=ORANGE, alpha=0.15, linewidth=0)
  for x, said in ((LEAKY, 'gap: leaky below 2'), (CLEAN, 'gap: clean above 4')):
    ax.axvline(x, color=BLACK, linestyle='--', linewidth=1)
    ax.text(x, 12, said, ha='center', va='bottom', fontsize=8)
  # Names are moved apart where points lie close: from the right, since each begins at its point.
  placed: list[tuple[float, float]] = []
  for r in sorted(found, key=lambda r: -r['gap']):
    said = r['name'] + mark(r['leaky'])
    y = max(r['size'], FLOOR) if r['leaky'] else FLOOR
    ax.plot(
      r['gap'], y, linestyle='none', marker='s' if r['leaky'] else 'o', markersize=8,
      color=ORANGE if r['leaky'] else BLUE, markeredgecolor=BLACK,
    )  # fmt: skip
    step = 0
    end = r['gap'] + 0.2 + WIDE * len(said)
    while any(end > a and abs(np.log10(y) + step - b) < 0.9 for a, b in placed):
      step += 1.0 if not r['leaky'] else -1.0
    placed += [(r['gap'], np.log10(y)), (r['gap'], np.log10(y) + step)]
    ax.annotate(
      said, (r['gap'], y), (r['gap'] + 0.08, y * 10**step), va='center',
      fontsize=8, arrowprops={'arrowstyle': '-', 'linewidth': 0.5} if step else None,
    )  # fmt: skip
  ax.set_yscale('log')
  ax.set_ylim(FLOOR / 10, 1e2)
  low, high = (f([r['gap'] for r in found]) for f in (min, max))
  ax.set_xlim(min(low, LEAKY) - 0.5, max(high, CLEAN) + 1.6)
  ax.set_yticks([FLOOR, 1e-12, 1e-9, 1e-6, 1e-3, 1], ['0', '1e-12', '1e-9', '1e-6', '1e-3', '1'])
  ax.minorticks_off()
  ax.set(xlabel='shuffled gap (nats)', ylabel='audit: change before replaced tokens')
  ax.grid(alpha=0.25)
  wrong = any(r['leaky'] and r['reading'] != 'leaky' for r in found)
  entitle(figure, 'The gap passes models that the audit fails' if wrong else 'Gap and audit', False)
  return figure


def by_layer(found: list[dict], most: int = 4) -> Figure:
  """Of leaking runs: how much each layer changes at each place before the replaced tokens."""
  shown = [r for r in found if r['leaky']][:most]
  figure = new_figure(0.9 + 1.6 * len(shown))
  axes = np.atleast_1d(figure.subplots(len(shown), 1))
  for ax, r in zip(axes, shown, strict=True):
    change_NL = np.array(list(r['changes'].values()))
    image = ax.imshow(
      np.log10(np.maximum(change_NL, FLOOR)), aspect='auto', cmap=MAP, vmin=-9, vmax=0,
      interpolation='nearest', extent=(-change_NL.shape[1], 0, len(change_NL), 0),
    )  # fmt: skip
    names = [n.partition(' (')[0].replace('layer 0', 'layer ') for n in r['changes']]
    ax.set_yticks(np.arange(len(names)) + 0.5, names, fontsize=8)
    ax.set_title(r['name'] + mark(True), fontsize=10)
  axes[-1].set_xlabel('place (tokens before the first replaced one)')
  bar = figure.colorbar(image, ax=axes, shrink=0.7, aspect=30, extend='min')
  bar.set_label('change over largest value')
  bar.set_ticks([-9, -6, -3, 0], labels=['1e-9', '1e-6', '1e-3', '1'])
  entitle(figure, 'Where the future is seen', True)
  return figure


def page(found: list[dict], where: str) -> str:
  """Markdown; where: the folder of the pictures, as the page links to it."""
  passed = [r for r in found if r['leaky'] and r['reading'] != 'leaky']
  failed = [r for r in found if not r['leaky'] and r['reading'] != 'clean']
  lead = (
    f'{len(passed)} of {sum(r["leaky"] for r in found)} models that leak are not called leaky by '
    f'the gap, and {len(failed)} of {sum(not r["leaky"] for r in found)} that do not leak are not '
    'called clean.'
  )
  lines = [
    '| run | loss | on shuffled text | gap | the gap says | the audit says | size | first layer | '
    'coverage |',
    '|' + ' --- |' * 9,
  ]
  for r in sorted(found, key=lambda r: -r['gap']):
    said = mark(r['leaky'])
    cells = [r['name'], *(f'{r[k]:.3f}{said}' for k in ('loss', 'shuffled', 'gap')), r['reading']]
    cells += ['LEAKY' if r['leaky'] else 'causal', f'{r["size"]:.1e}{said}' if r['leaky'] else '-']
    cells += [r['layer'] or '-', f'{r["coverage"]:.1%}{said}' if 'coverage' in r else '-']
    lines.append(f'| {" | ".join(cells)} |')
  parts = [HEAD.format(lead=lead), f'![Shuffled gap against the audit]({where}/leakage_gap.png)']
  parts += ['\n'.join(lines), AFTER]
  if any(r['leaky'] for r in found):
    parts.append(f'![Change by layer and place]({where}/leakage_layers.png)')
  surrogates = [r for r in found if 'surrogates' in r]
  if surrogates:
    names = list(surrogates[0]['surrogates'])
    lines = [f'| run | as trained | {" | ".join(names)} |', '|' + ' --- |' * (len(names) + 2)]
    for r in surrogates:
      said = mark(r['leaky'])
      told = [f'{r["surrogates"][n]:.3f}{said}' for n in names]
      lines.append(f'| {r["name"]} | {r["loss"]:.3f}{said} | {" | ".join(told)} |')
    parts += ['Loss with the phases of queries and keys changed at evaluation:', '\n'.join(lines)]
    parts.append(
      'Coverage: the share of bins whose response is at least half its peak, mean over filters.'
    )
  return '\n\n'.join(parts) + '\n'


def main(arguments: list[str]) -> None:
  if len(arguments) < 2:
    sys.exit('usage: python -m sgnjax.analysis.leakage_page PAGE RUN ...')
  path, *runs = map(Path, arguments)
  found = []
  try:
    for run in runs:
      kept = run / FILE
      found.append(json.loads(kept.read_text()) if kept.is_file() else measure(run))
  except UserError as error:
    sys.exit(f'error: {error}')
  axes = {r['name'].partition('-')[0] for r in found}
  if len(found) > 1 and len(axes) == 1:  # of a sweep's points, in each name
    for r in found:
      r['name'] = r['name'].removeprefix(f'{min(axes)}-')
  pictures = path.parent.parent / 'pictures'
  pictures.mkdir(parents=True, exist_ok=True)
  save(gap_against_audit(found), pictures / 'leakage_gap.png')
  if any(r['leaky'] for r in found):
    save(by_layer(found), pictures / 'leakage_layers.png')
  path.write_text(page(found, os.path.relpath(pictures, path.parent)), encoding='utf-8')
  print(path)


if __name__ == '__main__':
  main(sys.argv[1:])
