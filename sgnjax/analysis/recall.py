"""`python -m sgnjax.analysis.recall WORKDIR PAGE`: the page of a sweep over the recall tasks.

WORKDIR holds sweep.json, which the job writes after every run. The picture goes into the folder
`pictures` beside the page's own folder.
"""

import itertools
import json
import os
import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from sgnjax.analysis.plots.panels import LINES
from sgnjax.analysis.plots.style import BLACK, entitle, new_figure, save
from sgnjax.data.recall import DATA, SETS
from sgnjax.errors import UserError
from sgnjax.machine import origin
from sgnjax.train.log import STARTS, mark, read_records

SOLVED = 0.95
PEER = 'softmax'  # what others are measured by
COMMAND = 'python launch/main.py --config=configs/recall.py --job=sweep'
HEAD = """# Recall: where only what stood far before answers

Accuracy on the tokens that each task asks for, {of}.
Models see the same rows in the same order; sizes and steps are those of `configs/recall.py`.
**Bold**: above 95 % for every seed."""
TASKS = {
  'mqar': 'pairs of keys and values, then these keys at random: the value of each is asked for. '
  'How many pairs differs from row to row, from two to a sixteenth of its length.',
  'induction': 'a random order of symbols comes again and again: from the second round on each is '
  'asked for. How long a round is differs from row to row.',
  'copying': f'{DATA} different symbols scattered in filler, asked for in their order.',
}
# Of the papers' own settings: none was run here.
PUBLISHED = """Quoted, not run here, on the authors' own settings (longer rows, other sizes):"""
OTHERS = {
  'mqar': """Arora et al., "Zoology" (2023): attention solves it at a width that does not depend on
the length of the row; models of gates and convolutions need a width that grows with it.""",
  'copying': """Selective copying, in per cent, from Gu and Dao, "Mamba" (2023), table 1:

| S4 | H3 | Hyena | S6 without gate | Mamba |
| --- | --- | --- | --- | --- |
| 18.3 | 57.0 | 30.1 | 97.0 | 99.8 |""",
}

Found = dict[tuple[str, str, int], list[dict]]  # task, mixer, length -> rows of the seeds


def read(workdir: Path) -> Found:
  """Rows of the finished points. Raises UserError where there is no sweep over these tasks."""
  path, found = workdir / 'sweep.json', {}
  if not path.is_file():
    raise UserError(f'{path} is not there: expected the workdir of --job=sweep')
  for row in json.loads(path.read_text(encoding='utf-8')):
    labels = row['labels']
    if not {'task', 'mixer', 'length'} <= set(labels):
      raise UserError(f'{path} is of axes {", ".join(labels)}: expected those of configs/recall.py')
    if row['state'] == 'finished':
      key = labels['task'], labels['mixer'], int(labels['length'])
      found.setdefault(key, []).append(row)
  if not found:
    raise UserError(f'{path}: no point of the sweep is finished')
  return found


def origins(workdir: Path) -> list[str]:
  """Commit and machine of the sweep's runs, each once."""
  starts = [
    start for path in workdir.glob(f'*/{STARTS}') for start in read_records(path.parent, STARTS)
  ]
  return sorted({f'{origin(start)}.' for start in starts})


def leaky(rows: list[dict]) -> bool:
  return any(row['leaky'] for row in rows)


def blind(task: str) -> float:
  """Accuracy of one answer for all."""
  return 1 / SETS[f'recall/{task}'].answers


def guess(task: str, length: int) -> float | None:
  """Accuracy of a guess among the answers that a row has: of copying, among those that are left.

  Who counts how often each key and value came may do better.
  """
  if task == 'copying':
    return sum(1 / n for n in range(1, DATA + 1)) / DATA
  if task != 'mqar':
    return None
  made = SETS[f'recall/{task}'].make(np.random.default_rng(0), 4000, length)
  right = asked = 0.0
  for ids_T, asked_L in zip(made.ids_NT, made.asked_NL, strict=True):
    values = ids_T[1 : np.argmax(asked_L) : 2]
    right += asked_L.sum() * np.unique(values, return_counts=True)[1].max() / len(values)
    asked += asked_L.sum()
  return right / asked


def figure(found: Found) -> Figure:
  """A panel a task: accuracy over the length, a line a mixer with the range of its seeds."""
  tasks = list(dict.fromkeys(task for task, _, _ in found))
  mixers = list(dict.fromkeys(mixer for _, mixer, _ in found))
  drawn = new_figure(0.9 + 2.5 * len(tasks))
  axes = np.atleast_1d(drawn.subplots(len(tasks), 1, sharex=True))
  for ax, task in zip(axes, tasks, strict=True):
    for mixer, (colour, dashes, point) in zip(mixers, itertools.cycle(LINES), strict=False):
      lengths = sorted(n for t, m, n in found if (t, m) == (task, mixer))
      if not lengths:
        continue
      values = [np.array([row['accuracy'] for row in found[task, mixer, n]]) for n in lengths]
      sees = any(leaky(found[task, mixer, n]) for n in lengths)
      ax.plot(
        lengths, [v.mean() for v in values], color=colour, linestyle=dashes, marker=point,
        linewidth=1.5, label=mixer + mark(sees),
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
  entitle(drawn, 'Who can recall', any(map(leaky, found.values())))
  return drawn


def cell(rows: list[dict], seeds: int) -> str:
  """Mean and range; bold where every seed has solved it and none sees the future."""
  accuracies, said = [row['accuracy'] for row in rows], mark(leaky(rows))
  told = f'{np.mean(accuracies):.1%}{said}'
  if len(accuracies) > 1:
    told += f' ({min(accuracies):.1%}{said} to {max(accuracies):.1%}{said})'
  if len(accuracies) < seeds:
    told += f', of {len(accuracies)} only'
  return f'**{told}**' if solved(rows) else told


def solved(rows: list[dict]) -> bool:
  """Whether every seed has solved it without seeing the future."""
  return min(row['accuracy'] for row in rows) > SOLVED and not leaky(rows)


def lead(found: Found, task: str) -> str:
  """Who solves a task and at which lengths, in a sentence or two."""
  at: dict[str, list[int]] = {}
  for (of, mixer, length), rows in sorted(found.items(), key=lambda item: item[0][2]):
    if of == task:
      at.setdefault(mixer, []).extend([length] * solved(rows))
  who = [f'{mixer} at {", ".join(map(str, n))} tokens' for mixer, n in at.items() if n]
  others = [mixer for mixer, n in at.items() if not n]
  said = f'Solved: {"; ".join(who) or "no one"}. Not solved: {", ".join(others) or "no one"}.'
  lengths = {n for of, mixer, n in found if (of, mixer) == (task, PEER)}
  if missed := sorted(lengths - set(at.get(PEER, ()))):
    said += (
      f' At {", ".join(map(str, missed))} tokens {PEER} has not learnt it in these steps: there '
      'the table tells who learns sooner, not who can.'
    )
  return said


def page(found: Found, where: str, runs: list[str]) -> str:
  """Markdown; where: the folder of the picture, as the page links to it; runs: as `origins`."""
  tasks = list(dict.fromkeys(task for task, _, _ in found))
  lengths = sorted({n for _, _, n in found})
  seeds = max(map(len, found.values()))
  of = (
    f'mean of {seeds} seeds and their range'
    if seeds > 1
    else 'of one seed: another may turn what is close'
  )
  parts = [HEAD.format(of=of)]
  parts.append('\n'.join(f'- `{task}`: {TASKS[task]}' for task in tasks))
  if others := [
    f'`{task}` ({said.rstrip(".")})' for task, said in TASKS.items() if task not in tasks
  ]:
    parts.append(f'Not run here: {"; ".join(others)}.')
  parts.append(f'![Accuracy over the length]({where}/recall.png)')
  for task in tasks:
    lines = [
      f'## {task}\n',
      f'{lead(found, task)}\n',
      f'| mixer | {" | ".join(f"{n} tokens" for n in lengths)} |',
    ]
    lines.append('| --- |' + ' --- |' * len(lengths))
    for mixer in dict.fromkeys(m for t, m, _ in found if t == task):
      cells = [
        cell(found[key], seeds) if (key := (task, mixer, n)) in found else '' for n in lengths
      ]
      lines.append(f'| {mixer} | {" | ".join(cells)} |')
    lines.append(f'| *one answer for all* |{f" {blind(task):.1%} |" * len(lengths)}')
    if least := [share for n in lengths if (share := guess(task, n)) is not None]:
      row = ' | '.join(f'{share:.1%}' for share in least)
      lines.append(f'| *a guess among the answers of the row* | {row} |')
    parts.append('\n'.join(lines))
    if task in OTHERS:
      parts += [PUBLISHED, OTHERS[task]]
  parts += runs
  axes = tasks if len(tasks) < len(TASKS) else []
  ran = {row['labels']['seed'] for rows in found.values() for row in rows}
  axes += [f'seed-{seed}' for seed in sorted(ran)] if len(ran) == 1 else []
  only = f' --only={",".join(axes)}' if axes else ''
  parts.append(f'```\n{COMMAND}{only}\npython -m sgnjax.analysis.recall runs/recall PAGE\n```')
  return '\n\n'.join(parts) + '\n'


def main(arguments: list[str]) -> None:
  if len(arguments) != 2:
    sys.exit('usage: python -m sgnjax.analysis.recall WORKDIR PAGE')
  try:
    found, path = read(Path(arguments[0])), Path(arguments[1])
  except UserError as error:
    sys.exit(f'error: {error}')
  pictures = path.parent.parent / 'pictures'
  for folder in (pictures, path.parent):
    folder.mkdir(parents=True, exist_ok=True)
  save(figure(found), pictures / 'recall.png')
  where = os.path.relpath(pictures, path.parent)
  path.write_text(page(found, where, origins(Path(arguments[0]))), encoding='utf-8')
  print(path)


if __name__ == '__main__':
  main(sys.argv[1:])
