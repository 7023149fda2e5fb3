"""Runs of every task: their commands are configs that build, and the page tells what they found."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import pytest

from launch import main
from sgnjax import config as config_lib
from sgnjax.analysis.tasks import page
from sgnjax.analysis.tasks.runs import TASKS, Task
from sgnjax.data import tokenizers
from sgnjax.models import build

RUNS = [
  pytest.param(task, model, id=task.workdir(model)) for task in TASKS for model in task.models
]


def config_of(task, model):
  return main.find_config(*main.parse(task.flags(model, 'data')))[0]


def test_each_run_has_a_workdir_of_its_own():
  workdirs = [task.workdir(model) for task in TASKS for model in task.models]
  assert len(set(workdirs)) == len(workdirs) == len(RUNS)


@pytest.mark.parametrize(('task', 'model'), RUNS)
def test_each_command_is_a_config_that_builds(task, model):
  config = config_of(task, model)
  for key, path in task.data.items():
    assert config_lib.flat(config)[key] == f'data/{path}'
  build(config, vocab=61, classes=2)
  assert task.kind in page.KINDS
  assert task.margin > 0
  batch, steps = config.train.batch, config.train.steps
  assert config.train.eval_every == steps, 'evaluated once, at the end'
  assert batch * steps * config.model.context < 2**24, 'some minutes'


@pytest.fixture
def runs(tmp_path, monkeypatch):
  """A task with one model that has finished, one that sees the future and one that is not done."""
  task = Task(
    'poem', 'A poem', 'quickstart', {'data.path': 'poem'},
    {'train.steps': 20, 'model.layers': 1, 'model.width': 8, 'model.heads': 1},
    {'good': {}, 'leaky': {'allow_leak': True}, 'undone': {}}, 'text', 1.0, 'A note.',
  )  # fmt: skip
  monkeypatch.setattr(page, 'TASKS', (task,))
  monkeypatch.setattr(page, 'committed', lambda workdir: [10, 20])
  config, tokenizer = config_of(task, 'good'), tokenizers.make('char', 'abc')
  params = build(config, vocab=3).init(jax.random.key(0), jnp.zeros((1, 4), jnp.int32))['params']
  monkeypatch.setattr(page, 'load_params', lambda workdir: (config, params, tokenizer, 20))
  for model, loss in (('good', 1.5), ('leaky', 2.25)):
    config = config_of(task, model)
    workdir = tmp_path / task.workdir(model)
    workdir.mkdir()
    (workdir / 'config.json').write_text(json.dumps(config_lib.serialise(config)))
    records = [
      {'kind': 'train', 'step': 20, 'step_seconds': 1.2345},
      {'kind': 'evaluation', 'step': 20, 'split': 'validation', 'loss': loss, 'perplexity': 4.5,
       'bits_per_character': 2.0, 'unigram': 3.0},
    ]  # fmt: skip
    if model == 'leaky':
      records[-1]['leaky'] = True
    lines = ''.join(json.dumps(record) + '\n' for record in records)
    (workdir / 'metrics.jsonl').write_text(lines)
  return task, tmp_path


def test_what_the_page_says(runs):
  task, folder = runs
  assert [page.finished(task, model, folder) for model in task.models] == [True, True, False]
  text = page.page(folder, 'abc1234')
  rows = {line.split(' | ')[0].strip('| *'): line.split(' | ') for line in text.split('\n')}
  heads = rows['model']
  assert heads[2] == 'validation: nats a token'
  assert 'of words' not in heads  # no run has it
  good, leaky = (dict(zip(heads, rows[name], strict=True)) for name in ('good', 'leaky'))
  assert good['validation: nats a token'] == '1.5000'
  assert good['margin (asked 1)'] == '1.5000'
  assert leaky['validation: nats a token'] == '2.2500 LEAKY'
  assert leaky['margin (asked 1)'] == '0.7500 LEAKY **too little**'
  assert (good['steps'], good['seed'], good['ms a step']) == ('20', '0', '1,234')
  assert good['config hash |'] == f'{config_lib.fingerprint(config_of(task, "good"))} |'
  assert rows['token frequencies'][2] == '3.0000'
  assert 'undone' not in rows
  assert good['parameters'] == '2,880'
  assert '--config.data.path=$SGNJAX_DATA/poem' in text
  assert 'code of commit abc1234' in text


def test_a_longer_run_and_other_settings_are_not_what_was_run(runs, monkeypatch):
  task, folder = runs
  other = dataclasses.replace(task, sizes=task.sizes | {'optim.lr': 0.5})
  assert not page.finished(other, 'good', folder)
  monkeypatch.setattr(page, 'committed', lambda workdir: [10])
  assert not page.finished(task, 'good', folder)
