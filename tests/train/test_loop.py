import json
import math
import struct
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from sgnjax.data import pipeline
from sgnjax.errors import LeakError, UserError
from sgnjax.jobs import eval as eval_job
from sgnjax.machine import commit
from sgnjax.train import loop
from sgnjax.train.checkpoint import committed, load_params
from sgnjax.train.initial import start_from
from sgnjax.train.log import read_records
from sgnjax.train.model import make_model

from .tiny import tiny

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope='module')
def run(tmp_path_factory):
  """A finished run: config, workdir, result."""
  folder = tmp_path_factory.mktemp('run')
  config = tiny(folder)
  return config, folder / 'w', loop.train(config, folder / 'w')


def scalars(workdir: Path) -> set[tuple[str, int]]:
  """(tag, step) of every scalar in the event files."""
  from tensorboardX.proto import event_pb2

  found = set()
  for path in (workdir / 'tensorboard').iterdir():
    raw = path.read_bytes()
    while raw:
      (size,) = struct.unpack('<Q', raw[:8])
      event = event_pb2.Event.FromString(raw[12 : 12 + size])
      found |= {(value.tag, event.step) for value in event.summary.value}
      raw = raw[16 + size :]
  return found


def test_what_a_run_leaves(run):
  _, workdir, result = run
  assert (result['status'], result['step'], result['leaky']) == ('finished', 20, False)
  assert json.loads((workdir / 'config.json').read_text())['config']['train']['steps'] == 20
  assert json.loads((workdir / 'tokenizer.json').read_text())['kind'] == 'char'
  assert 'Total' in (workdir / 'parameters.txt').read_text()
  assert committed(workdir) == [10, 20]
  (begun,) = read_records(workdir, 'starts.jsonl')
  assert (begun['step'], begun['commit'], begun['processes']) == (0, commit(), 1)
  assert begun['device'] == f'{jax.device_count()} x cpu'
  records = read_records(workdir)
  assert [(r['kind'], r['step']) for r in records] == [
    ('train', 4), ('train', 8), ('evaluation', 10), ('train', 12), ('train', 16), ('train', 20),
    ('evaluation', 20),
  ]  # fmt: skip
  tags = scalars(workdir)
  assert {('train/loss', 4), ('train/lr', 20), ('validation/loss', 10)} <= tags


def test_the_numbers_of_a_record_agree(run):
  config, workdir, result = run
  corpus = pipeline.load(config)
  records = read_records(workdir)
  for record in records:
    assert record['perplexity'] == pytest.approx(math.exp(record['loss']))
    per_byte = corpus.bytes_per_token['train' if record['kind'] == 'train' else 'validation']
    assert record['bits_per_byte'] == pytest.approx(record['loss'] / math.log(2) / per_byte)
  train = [r for r in records if r['kind'] == 'train']
  for record in train:
    assert len(record['losses']) == 4
    assert record['loss'] == pytest.approx(np.mean(record['losses']))
    assert record['tokens'] == 4 * 8 * 16
    assert record['tokens_per_second'] > 0
  assert train[-1]['loss'] < train[0]['loss']
  final = records[-1]
  assert result['final'] == final
  assert final['tokens'] == len(corpus.splits['validation']) - 1
  assert final['unigram'] == corpus.unigram_nats['validation']
  assert not any('leaky' in r for r in records)


def test_the_final_loss_is_that_of_the_final_weights(run):
  config, workdir, result = run
  _, params, _, step = load_params(workdir, 'latest')
  assert step == 20
  corpus = pipeline.load(config)
  model = make_model(config, corpus.tokenizer)
  tokens = corpus.splits['validation']
  total = count = 0.0
  seen = 1  # the first token has nothing before it
  starts = list(range(0, len(tokens) - 17, 8))
  for start in [*starts, len(tokens) - 17]:  # stride: half the context; the last one is full
    window = tokens[start : start + 17]
    logits = np.asarray(model.apply({'params': params}, window[None, :-1])[0][0], np.float64)
    nats = np.log(np.exp(logits).sum(-1)) - logits[np.arange(16), window[1:]]
    new = start + 17 - seen
    total, count, seen = total + nats[16 - new :].sum(), count + new, start + 17
  assert count == result['final']['tokens']
  assert result['final']['loss'] == pytest.approx(total / count, rel=1e-5)


def test_a_finished_run_says_so_and_does_nothing(run, capsys):
  config, workdir, result = run
  before = (workdir / 'metrics.jsonl').read_text()
  assert loop.train(config, workdir) == result
  assert 'is finished: 20 steps' in capsys.readouterr().out
  assert (workdir / 'metrics.jsonl').read_text() == before


def test_another_config_is_refused_with_the_difference(run):
  config, workdir, _ = run
  other = config.copy_and_resolve_references().unlock()
  other.optim.lr, other.model.width, other.sample.tokens = 0.5, 32, 9
  with pytest.raises(UserError) as error:
    loop.train(other, workdir)
  said = str(error.value)
  assert 'model.width: 16 -> 32, optim.lr: 0.001 -> 0.5' in said
  assert 'use another --workdir' in said
  assert 'sample' not in said


def test_eval_job(run, capsys):
  config, workdir, _ = run
  assert eval_job.run(config, workdir) == 0
  said = capsys.readouterr().out
  record = json.loads((workdir / 'eval.json').read_text())
  best = min((r for r in read_records(workdir) if r['kind'] == 'evaluation'), key=_loss)
  assert record['step'] == best['step']
  assert record['loss'] == pytest.approx(best['loss'], rel=1e-6)
  assert f'{record["loss"]:.4f} nats/token' in said
  assert 'token frequencies alone' in said
  other = config.copy_and_resolve_references().unlock()
  other.eval.split, other.eval.protocol, other.eval.batches = 'train', 'paper', 3
  eval_job.run(other, workdir)
  record = json.loads((workdir / 'eval.json').read_text())
  assert (record['split'], record['tokens']) == ('train', 3 * 8 * 16)
  other.model.width = 32
  with pytest.raises(UserError, match=r'model\.width: 16 -> 32'):
    eval_job.run(other, workdir)


def _loss(record):
  return record['loss']


def test_weights_of_another_run_for_a_longer_context(run):
  config, workdir, _ = run
  longer = config.copy_and_resolve_references().unlock()
  longer.init_from, longer.model.context, longer.model.layers = str(workdir), 24, 1
  tokenizer = pipeline.load(config).tokenizer
  fresh = make_model(longer, tokenizer).init(jax.random.key(9), np.zeros((1, 24), np.int32))
  params, lines = start_from(longer, tokenizer, fresh['params'])
  old = load_params(workdir)[1]
  np.testing.assert_array_equal(params['position'][:16], old['position'])
  np.testing.assert_array_equal(params['position'][16:], fresh['params']['position'][16:])
  np.testing.assert_array_equal(params['embedding'], old['embedding'])
  assert 'fitted to this model: position (16, 16) -> (24, 16)' in '\n'.join(lines)
  assert 'not taken' not in '\n'.join(lines)


def test_weights_of_another_run_that_do_not_fit(run):
  config, workdir, _ = run
  other = config.copy_and_resolve_references().unlock()
  other.init_from, other.model.mixer, other.model.width = str(workdir), 'sgn', 16
  tokenizer = type(pipeline.load(config).tokenizer)('abc')
  fresh = make_model(other, tokenizer).init(jax.random.key(9), np.zeros((1, 16), np.int32))
  params, lines = start_from(other, tokenizer, fresh['params'])
  said = '\n'.join(lines)
  assert 'embedding (another tokenizer)' in said
  assert 'stack/group_0/0_sgn/mixer/gate (not there)' in said
  assert 'left over there: ' in said
  assert 'stack/group_0/0_softmax/mixer/q/kernel' in said
  np.testing.assert_array_equal(params['embedding'], fresh['params']['embedding'])
  np.testing.assert_array_equal(params['position'], load_params(workdir)[1]['position'])


def _poisoned(state):
  return state.replace(params=jax.tree.map(lambda a: a * math.nan, state.params))


@pytest.mark.parametrize('where', ['weights', 'update'])
def test_what_is_not_finite_stops_the_run_and_is_not_saved(tmp_path, monkeypatch, where):
  make = loop.make_train_step

  def poisoned(*args):
    step = make(*args)

    def run(state, batch):
      sixth = int(state.step) == 6
      state, metrics = step(_poisoned(state) if sixth and where == 'weights' else state, batch)
      return (_poisoned(state) if sixth and where == 'update' else state), metrics

    return run

  monkeypatch.setattr(loop, 'make_train_step', poisoned)
  config = tiny(tmp_path, train__checkpoint_every=1)
  workdir = tmp_path / 'w'
  with pytest.raises(UserError) as error:
    loop.train(config, workdir)
  said = str(error.value)
  what = {'weights': 'loss nan', 'update': 'its update overflows'}[where]
  assert f'step 7 is not finite ({what}' in said
  assert 'windows 48 to 55 of the shuffled order of seed 0' in said
  assert 'the last good checkpoint is step 6' in said
  assert committed(workdir) == [5, 6]
  assert all(math.isfinite(x) for r in read_records(workdir) for x in r['losses'])


def test_wall_time_saves_and_leaves(tmp_path, capsys):
  config = tiny(tmp_path, train__wall_minutes=1e-6)
  result = loop.train(config, tmp_path / 'w')
  assert (result['status'], result['signal'], result['step']) == ('wall time', None, 1)
  assert committed(tmp_path / 'w') == [1]
  assert 'wall time: saved step 1 of 20; the same command resumes' in capsys.readouterr().out


def test_a_leaking_model_says_so_at_every_number(tmp_path, capsys):
  config = tiny(tmp_path, model__mixer='sgn', model__form='published', train__steps=4)
  workdir = tmp_path / 'w'
  with pytest.raises(LeakError, match='layer 00'):
    loop.train(config, workdir)
  assert committed(workdir) == []
  config.allow_leak = True
  config.train.eval_every = 2
  result = loop.train(config, workdir)
  assert result['leaky']
  assert all(r['leaky'] is True for r in read_records(workdir))
  tags = scalars(workdir)
  assert {tag for tag, _ in tags} >= {'train/loss_LEAKY', 'validation/bits_per_byte_LEAKY'}
  assert all(tag.endswith('_LEAKY') for tag, _ in tags)
  said = [line for line in capsys.readouterr().out.splitlines() if 'nats' in line or 'loss' in line]
  assert said
  assert all('LEAKY' in line for line in said if 'frequencies' not in line)
  assert loop.train(config, workdir)['leaky']  # a finished run remembers


def test_a_workdir_that_cannot_be_written(tmp_path):
  (tmp_path / 'file').write_text('')
  with pytest.raises(UserError, match='cannot be written'):
    loop.train(tiny(tmp_path), tmp_path / 'file' / 'w')


@pytest.mark.parametrize(
  ('key', 'value', 'words'),
  [
    ('train__log_every', 0, r'train\.log_every=0'),
    ('train__eval_every', -1, r'train\.eval_every=-1'),
    ('train__checkpoint_every', 0, r'train\.checkpoint_every=0'),
    ('train__wall_minutes', 0.0, r'train\.wall_minutes=0.0'),
    ('train__steps', 0, r'train\.steps=0'),
    ('train__batch', 7, r'train\.batch=8 would do'),
    ('eval__protocol', 'ful', "'ful' is not known; did you mean 'full'"),
    ('eval__pick', 'beast', "did you mean 'best'"),
    ('eval__batch', 0, r'eval\.batch=0'),
    ('eval__batches', 0, r'eval\.batches=0'),
    ('model__vocab', 99, r'model\.vocab=99, but the tokenizer .*--config\.model\.vocab=none'),
  ],
)
def test_impossible_settings_are_named(tmp_path, key, value, words):
  with pytest.raises(UserError, match=words):
    loop.train(tiny(tmp_path, **{key: value}), tmp_path / 'w')
  assert not (tmp_path / 'w' / 'config.json').exists()


def test_starting_is_lean():
  heavy = {'tensorflow', 'tensorflow_datasets', 'matplotlib', 'torch'}
  code = f'import sys, sgnjax.jobs.train; print(sorted({heavy} & set(sys.modules)))'
  found = subprocess.run([sys.executable, '-c', code], cwd=ROOT, capture_output=True, text=True)
  assert found.stdout.strip() == '[]', found.stderr
