"""The page of results: a table for each task, with what no model at all would reach."""

from pathlib import Path
from typing import NamedTuple

from sgnjax import config as config_lib
from sgnjax.analysis.tasks.runs import TASKS, Task
from sgnjax.machine import in_words, machine
from sgnjax.models import build, count
from sgnjax.train.checkpoint import committed, load_params
from sgnjax.train.log import mark, read_records

ROOT = Path(__file__).resolve().parents[3]


class Number(NamedTuple):
  """A column: heading, key of the evaluation record, its form, and the key without a model."""

  heading: str
  key: str
  form: str
  without: str | None = None


class Kind(NamedTuple):
  """How a result is told. The first number decides; sign: 1 where more is better, -1 where less."""

  numbers: tuple[Number, ...]
  sign: int
  without: str  # what answers without a model


_LOSS = Number('nats a token', 'loss', '{:.4f}', 'unigram')
KINDS = {
  'text': Kind(
    (
      _LOSS,
      Number('bits a character', 'bits_per_character', '{:.4f}'),
      Number('perplexity', 'perplexity', '{:,.2f}'),
      Number('of words', 'word_perplexity', '{:,.1f}'),
    ),
    -1,
    'token frequencies',
  ),
  'masked': Kind((_LOSS, Number('accuracy', 'accuracy', '{:.2%}')), -1, 'token frequencies'),
  'labels': Kind(
    (
      Number('accuracy', 'accuracy', '{:.2%}', 'majority'),
      Number('nats an example', 'loss', '{:.4f}', 'entropy'),
    ),
    1,
    'most frequent class, and frequencies of classes',
  ),
}

INTRODUCTION = """# Every task, on real data

Short runs of configs by name on two processor cores, minutes each (steps by ms a step). They show
that a task is learnt, not how well it can be. One seed; settings were searched only where a note
says so. All models of a task see the same batches and differ in the mixer alone. The split is read
whole, at the last step. Below each table's models stands what answers without one: the frequencies
of the train split's tokens, or the most frequent class of the split itself. `margin`: how much
better than that the first number is.
"""


def finished(task: Task, model: str, runs: Path) -> bool:
  """Whether the workdir holds the last step of this run, with these settings."""
  workdir = runs / task.workdir(model)
  if not (workdir / 'config.json').exists():
    return False
  file, *changes = (flag.removeprefix('--config') for flag in task.flags(model, ''))
  config = config_lib.load(file[1:], [change[1:] for change in changes])
  stored = config_lib.stored(workdir)
  if config_lib.differences(stored, config, (*config_lib.RESUME_FREE, 'data.path')):
    return False
  return config.train.steps in committed(workdir)


def page(runs: Path, commit: str | None) -> str:
  """The whole page, as Markdown, from the workdirs that are finished."""
  parts = [INTRODUCTION]
  for task in TASKS:
    done = [model for model in task.models if finished(task, model, runs)]
    if done:
      parts.append(section(task, done, runs))
  code = f'; code of commit {commit}' if commit else ''
  parts.append(f'{in_words(machine())}{code}.\n')
  return '\n'.join(parts)


def section(task: Task, models: list[str], runs: Path) -> str:
  """One task: its table and the commands."""
  kind = KINDS[task.kind]
  found = [(model, _result(runs / task.workdir(model))) for model in models]
  records = [result['record'] for _, result in found]
  numbers = [n for n in kind.numbers if any(r.get(n.key) is not None for r in records)]
  split = records[0]['split']
  heads = ['model', 'parameters', f'{split}: {numbers[0].heading}']
  heads += [number.heading for number in numbers[1:]]
  heads += [f'margin (asked {task.margin:g})', 'steps', 'seed', 'ms a step', 'config hash']
  lines = [f'## {task.title}\n']
  if task.note:
    lines.append(f'{task.note}\n')
  lines += [_row(heads), _row(['---'] * len(heads))]
  for model, result in found:
    lines.append(_row(_cells(model, result, numbers, kind, task.margin)))
  without = [_told(records[0], n.without, n.form) if n.without else '' for n in numbers]
  lines.append(_row([f'*{kind.without}*', '', *without, '', '', '', '', '']))
  lines.append('\n```')
  for model in models:
    flags = task.flags(model, '$SGNJAX_DATA')
    lines.append(' \\\n  '.join(['python launch/main.py', *_wrapped(flags)]))
  return '\n'.join([*lines, '```\n'])


def _result(workdir: Path) -> dict:
  """What a finished run says of itself."""
  records = read_records(workdir)
  config, params, tokenizer, _ = load_params(workdir)
  model = build(config, vocab=tokenizer.vocab_size)
  return {
    'config': config_lib.stored(workdir),
    'record': [r for r in records if r['kind'] == 'evaluation'][-1],
    'step_seconds': [r for r in records if r['kind'] == 'train'][-1].get('step_seconds'),
    'parameters': count(model, params),
  }


def _cells(model: str, result: dict, numbers: list[Number], kind: Kind, asked: float) -> list[str]:
  record, config = result['record'], result['config']
  said = mark(record.get('leaky', False))
  cells = [model, f'{result["parameters"]:,}']
  cells += [_told(record, n.key, n.form) + said for n in numbers]
  first = numbers[0]
  margin = kind.sign * (record[first.key] - record[first.without])
  cells.append(first.form.format(margin) + said + ('' if margin >= asked else ' **too little**'))
  seconds = result['step_seconds']
  cells += [f'{record["step"]:,}', str(config.seed), f'{1000 * seconds:,.0f}' if seconds else '']
  return [*cells, config_lib.fingerprint(config)]


def _told(record: dict, key: str, form: str) -> str:
  value = record.get(key)
  return '' if value is None else form.format(value)


def _row(cells: list[str]) -> str:
  return f'| {" | ".join(cells)} |'


def _wrapped(flags: list[str], width: int = 90) -> list[str]:
  """Flags in lines of a command."""
  lines = ['']
  for flag in flags:
    if lines[-1] and len(lines[-1]) + len(flag) > width:
      lines.append('')
    lines[-1] += f' {flag}' if lines[-1] else flag
  return lines
