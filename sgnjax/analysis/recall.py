"""`python -m sgnjax.analysis.recall WORKDIR PAGE`: the page of a sweep over the recall tasks.

WORKDIR holds sweep.json, which the job writes after every run. The picture goes into the folder
`pictures` beside the page's own folder.
"""

import json
import os
import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from sgnjax.analysis.machine import in_words, machine
from sgnjax.analysis.plots.panels import LINES
from sgnjax.analysis.plots.style import BLACK, entitle, new_figure, save
from sgnjax.data.recall import DATA, SETS

SOLVED = 0.95
HEAD = """# Recall: where only what stood far before answers

Accuracy on the tokens that each task asks for, mean of {seeds} seeds and their range, at three
lengths. Models see the same rows in the same order; sizes and steps are those of
`configs/recall.py`. **Bold**: above 95 % for every seed.

- `mqar`: pairs of keys and values, then these keys at random: the value of each is asked for.
- `induction`: a random order of symbols comes again and again: from the second round on each is
  asked for. How long a round is differs from row to row.
- `copying`: {data} different symbols scattered in filler, asked for in their order.
"""
# Accuracy of other mixers as their papers print it, on their own settings: none was run here.
PUBLISHED = """## What others have published

Quoted, not run here, on the authors' own settings (longer rows, other sizes):

| task | mixer | accuracy | source |
| --- | --- | --- | --- |
| selective copying, 4,096 tokens | S4 | 18.3 % | Gu and Dao, Mamba (2023), table 1 |
| | H3 | 57.0 % | ibid. |
| | Hyena | 30.1 % | ibid. |
| | S6 without gate | 97.0 % | ibid. |
| | Mamba | 99.8 % | ibid. |
| induction heads, 256 tokens | attention, Hyena, H3, Mamba | near 100 % | ibid., table 2 |
| multi-query recall | attention | solved at every width | Arora et al., Zoology (2023), fig. 2 |
| | Hyena, RWKV | solved where the width grows with the length | ibid. |
"""

Found = dict[tuple[str, str, int], list[float]]  # task, mixer, length -> accuracies of the seeds


def read(workdir: Path) -> Found:
  """Accuracies of the finished points."""
  found: Found = {}
  for row in json.loads((workdir / 'sweep.json').read_text()):
    if row['state'] == 'finished':
      labels = row['labels']
      key = labels['task'], labels['mixer'], int(labels['length'])
      found.setdefault(key, []).append(row['accuracy'])
  return found


def blind(task: str) -> float:
  """Accuracy of one answer for all."""
  return 1 / SETS[f'recall/{task}'].answers


def figure(found: Found) -> Figure:
  """A panel a task: accuracy over the length, a line a mixer with the range of its seeds."""
  tasks = list(dict.fromkeys(task for task, _, _ in found))
  mixers = list(dict.fromkeys(mixer for _, mixer, _ in found))
  drawn = new_figure(0.9 + 2.5 * len(tasks))
  axes = np.atleast_1d(drawn.subplots(len(tasks), 1, sharex=True))
  for ax, task in zip(axes, tasks, strict=True):
    for mixer, (colour, dashes, mark) in zip(mixers, LINES, strict=False):
      lengths = sorted(n for t, m, n in found if (t, m) == (task, mixer))
      values = [np.asarray(found[task, mixer, n]) for n in lengths]
      if not lengths:
        continue
      ax.plot(
        lengths, [v.mean() for v in values], color=colour, linestyle=dashes, marker=mark,
        linewidth=1.5, label=mixer,
      )  # fmt: skip
      ax.fill_between(
        lengths, [v.min() for v in values], [v.max() for v in values], color=colour, alpha=0.15,
        linewidth=0,
      )  # fmt: skip
    ax.axhline(blind(task), color=BLACK, linestyle='--', linewidth=1)
    ax.set(ylim=(0, 1.03), ylabel='accuracy')
    ax.set_title(f'{task} (dashed: one answer for all)', fontsize=10)
    ax.set_xscale('log', base=2)
    ticks = sorted({n for _, _, n in found})
    ax.set_xticks(ticks, [str(t) for t in ticks])
    ax.minorticks_off()
    ax.grid(alpha=0.25)
  axes[-1].set_xlabel('length (tokens)')
  handles, labels = axes[0].get_legend_handles_labels()
  drawn.legend(handles, labels, loc='outside right upper', frameon=False, fontsize=9)
  entitle(drawn, 'Who can recall', False)
  return drawn


def cell(accuracies: list[float]) -> str:
  """Mean and range; bold where every seed has solved it."""
  told = f'{np.mean(accuracies):.1%}'
  if len(accuracies) > 1:
    told += f' ({min(accuracies):.1%} to {max(accuracies):.1%})'
  return f'**{told}**' if min(accuracies) > SOLVED else told


def page(found: Found, where: str) -> str:
  """Markdown; where: the folder of the picture, as the page links to it."""
  seeds = max(map(len, found.values()))
  parts = [HEAD.format(seeds=seeds, data=DATA), f'![Accuracy over the length]({where}/recall.png)']
  lengths = sorted({n for _, _, n in found})
  for task in dict.fromkeys(task for task, _, _ in found):
    lines = [f'## {task}\n', f'| mixer | {" | ".join(f"{n} tokens" for n in lengths)} |']
    lines.append('| --- |' + ' --- |' * len(lengths))
    for mixer in dict.fromkeys(m for t, m, _ in found if t == task):
      cells = [cell(found[key]) if (key := (task, mixer, n)) in found else '' for n in lengths]
      lines.append(f'| {mixer} | {" | ".join(cells)} |')
    lines.append(f'| *one answer for all* |{f" {blind(task):.1%} |" * len(lengths)}')
    parts.append('\n'.join(lines))
  if any(task == 'copying' for task, _, _ in found):
    bag = sum(1 / n for n in range(1, DATA + 1)) / DATA
    parts.append(
      f'Who only knows which symbols stood there, and not their order, reaches {bag:.1%} at most '
      'in `copying`: one of those that are left.'
    )
  parts.append(PUBLISHED)
  parts.append(f'{in_words(machine())}.')
  command = 'python launch/main.py --config=configs/recall.py --job=sweep'
  parts.append(f'```\n{command}\npython -m sgnjax.analysis.recall runs/recall PAGE\n```')
  return '\n\n'.join(parts) + '\n'


def main(arguments: list[str]) -> None:
  if len(arguments) != 2:
    sys.exit('usage: python -m sgnjax.analysis.recall WORKDIR PAGE')
  found, path = read(Path(arguments[0])), Path(arguments[1])
  if not found:
    sys.exit(f'{arguments[0]}: no point of the sweep is finished')
  pictures = path.parent.parent / 'pictures'
  pictures.mkdir(parents=True, exist_ok=True)
  save(figure(found), pictures / 'recall.png')
  path.write_text(page(found, os.path.relpath(pictures, path.parent)), encoding='utf-8')
  print(path)


if __name__ == '__main__':
  main(sys.argv[1:])
