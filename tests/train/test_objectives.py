"""Objectives: what is counted, and that it does not depend on how a batch is cut or placed."""

import functools
import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from configs import base
from sgnjax.data import pipeline
from sgnjax.errors import LeakError, UserError
from sgnjax.jobs import eval as eval_job
from sgnjax.jobs import sample
from sgnjax.models import build
from sgnjax.models.decoder import Decoder
from sgnjax.models.variants import variant
from sgnjax.parallel.mesh import make_mesh
from sgnjax.train import loop, objectives
from sgnjax.train import state as state_lib
from sgnjax.train.checkpoint import load_params
from sgnjax.train.evaluation import describe, place, totals
from sgnjax.train.initial import start_from
from sgnjax.train.log import read_records
from sgnjax.train.model import make_model
from sgnjax.train.step import make_eval_step, make_train_step

from .tiny import tiny

LENGTH, VOCAB, CLASSES = 16, 11, 3
AXES = ('data', 'fsdp', 'tensor', 'sequence')


def config_of(task, name='softmax-bidirectional', mesh=(1, 1, 1, 1), **changes):
  c = base.get_config().unlock()
  m = c.model
  m.layers, m.width, m.heads, m.context, m.vocab, m.vocab_multiple = 1, 16, 2, LENGTH, VOCAB, 8
  m.ega.lengths = (3, 5)
  c = variant(c, name).unlock()
  c.data.task, c.model.classes, c.train.batch = task, CLASSES, 16
  for axis, size in zip(AXES, mesh, strict=True):
    c.mesh[axis] = size
  c.update_from_flattened_dict({k.replace('__', '.'): v for k, v in changes.items()})
  return c.lock()


def images(**changes):
  sizes = {'model__image': (8, 8, 1), 'model__patch': 2}
  return config_of('classify', 'sgn-bidirectional', **sizes, **changes)


def batch_of(config, rows=16, seed=0):
  """Ragged rows, some of which are not scored."""
  rng = np.random.default_rng(seed)
  label = rng.integers(0, CLASSES, rows).astype(np.int32)
  label[::5] = -1
  if config.model.image is not None:
    return {'image': rng.random((rows, 8, 8, 1)).astype(np.float32), 'label': label}
  tokens = rng.integers(0, VOCAB, (rows, LENGTH)).astype(np.int32)
  mask = np.arange(LENGTH)[None, :] < rng.integers(1, LENGTH + 1, rows)[:, None]
  if config.data.task == 'mlm':
    targets = np.where(mask & (rng.random(tokens.shape) < 0.3), tokens, -1)
    return {'tokens': tokens, 'mask': mask, 'targets': targets.astype(np.int32)}
  return {'tokens': tokens, 'mask': mask, 'label': label}


def one_step(config, batch):
  """State and metrics after a step of plain gradient descent from the same weights."""
  mesh, model, optimiser = make_mesh(config), build(config), optax.sgd(1.0)
  state = state_lib.create(config, model, optimiser, mesh)
  step = make_train_step(model, optimiser, config, mesh)
  return jax.device_get(step(state, place(batch, mesh)))


def assert_close(a, b, tolerance=1e-6):
  jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance), a, b)


def log_softmax(x):
  return x - np.log(np.exp(x).sum(-1, keepdims=True))


def test_classes_are_counted_where_they_are_scored():
  logits = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
  label = np.array([2, -1, 0, 1, 1], np.int32)
  found = objectives.label_sums(jnp.asarray(logits), {'label': jnp.asarray(label)})
  scored = label >= 0
  nats = -log_softmax(logits)[scored, label[scored]]
  said = logits.argmax(1)
  np.testing.assert_allclose(found['loss_sum'], nats.sum(), rtol=1e-6)
  assert found['tokens'] == objectives.scored_labels({'label': jnp.asarray(label)}) == 4
  np.testing.assert_array_equal(found['labels'], [1, 2, 1])
  np.testing.assert_array_equal(found['said'], np.bincount(said[scored], minlength=3))
  assert found['correct'] == np.sum(said[scored] == label[scored])
  smooth = objectives.label_sums(jnp.asarray(logits), {'label': jnp.asarray(label)}, 0.3)
  even = -log_softmax(logits)[scored].mean(1)
  np.testing.assert_allclose(smooth['loss_sum'], np.sum(0.7 * nats + 0.3 * even), rtol=1e-6)


def test_shares_of_classes_are_as_good_as_classes():
  logits = jnp.asarray(np.random.default_rng(0).normal(size=(3, 3)), jnp.float32)
  hard = objectives.label_sums(logits, {'label': jnp.asarray([2, 0, -1])})
  shares = np.eye(3, dtype=np.float32)[[2, 0, 1]]
  shares[2] = np.nan
  soft = objectives.label_sums(logits, {'label': jnp.asarray(shares)})
  assert_close(hard, soft)
  mixed = objectives.label_sums(logits[:1], {'label': jnp.asarray([[0.25, 0.75, 0.0]])})
  expected = -np.sum(log_softmax(np.asarray(logits[0])) * [0.25, 0.75, 0])
  np.testing.assert_allclose(mixed['loss_sum'], expected, rtol=1e-6)


def test_measures_are_those_of_their_definitions():
  rng = np.random.default_rng(3)
  label, said = rng.integers(0, 2, (2, 50))
  logits = jnp.asarray(np.eye(2)[said], jnp.float32)
  parts = [
    objectives.label_sums(logits[i : i + 20], {'label': jnp.asarray(label[i : i + 20])})
    for i in range(0, 50, 20)
  ]
  told = objectives.tell_labels(totals(jax.device_get(parts)))
  positive = np.sum(said & label)
  assert told['accuracy'] == pytest.approx(np.mean(said == label))
  assert told['f1'] == pytest.approx(2 * positive / (said.sum() + label.sum()))
  assert told['matthews'] == pytest.approx(np.corrcoef(said, label)[0, 1])
  assert told['majority'] == pytest.approx(max(label.mean(), 1 - label.mean()))
  share = label.mean()
  entropy = -share * math.log(share) - (1 - share) * math.log(1 - share)
  assert told['entropy'] == pytest.approx(entropy)


def test_numbers_are_measured_by_their_square_error_and_correlation():
  rng = np.random.default_rng(3)
  label = rng.normal(size=30).astype(np.float32)
  said = (label + rng.normal(size=30)).astype(np.float32)
  batch = {'label': jnp.asarray(np.append(label, np.nan))}
  found = objectives.label_sums(jnp.asarray(np.append(said, 9.0))[:, None], batch)
  told = objectives.tell_labels(totals([jax.device_get(found)]))
  assert found['tokens'] == 30
  assert told['loss'] == pytest.approx(np.mean((said - label) ** 2), rel=1e-5)
  assert told['pearson'] == pytest.approx(np.corrcoef(said, label)[0, 1], rel=1e-4)
  assert told['variance'] == pytest.approx(np.var(label), rel=1e-4)


def test_masked_tokens_are_counted():
  logits = np.random.default_rng(0).normal(size=(2, 3, 5)).astype(np.float32)
  targets = np.array([[1, -1, 3], [-1, -1, 0]], np.int32)
  logits[0, 2, 3] = 9  # one is right
  logits[0, 0, 1], logits[1, 2, 0] = -9, -9
  found = objectives.asked_token_sums(jnp.asarray(logits), {'targets': jnp.asarray(targets)})
  assert (found['tokens'], found['correct']) == (3, 1)
  rows, columns = np.nonzero(targets >= 0)
  nats = -log_softmax(logits)[rows, columns, targets[rows, columns]]
  np.testing.assert_allclose(found['loss_sum'], nats.sum(), rtol=1e-5)


@functools.cache
def whole(kind):
  config = {
    'classify': lambda: config_of('classify'),
    'mlm': lambda: config_of('mlm', 'sgn-bidirectional'),
    'images': images,
  }[kind]()
  return config, one_step(config, batch_of(config))


@pytest.mark.slow
@pytest.mark.parametrize(('kind', 'accumulation'), [('classify', 2), ('classify', 4), ('mlm', 4)])
def test_accumulation_changes_nothing(kind, accumulation):
  config, (state, metrics) = whole(kind)
  config = config.copy_and_resolve_references().unlock()
  config.train.accumulation = accumulation
  other, other_metrics = one_step(config, batch_of(config))
  assert_close(other.params, state.params)
  assert_close(other_metrics, metrics)
  assert 0 <= metrics['accuracy'] <= 1


@pytest.mark.parametrize('kind', ['classify', 'mlm'])
def test_sums_are_the_same_however_a_split_is_cut(kind):
  config, (_, metrics) = whole(kind)
  batch, objective = batch_of(config), objectives.of(config)
  model = build(config)
  params = state_lib.create(config, model, optax.sgd(1.0), make_mesh(config)).params
  step = make_eval_step(model, None, objective.sums)
  for size in (1, 7, 16):
    cut = [{k: v[i : i + size] for k, v in batch.items()} for i in range(0, 16, size)]
    told = objective.tell(totals(jax.device_get([step(params, part) for part in cut])))
    np.testing.assert_allclose(told['loss'], metrics['loss'], rtol=1e-6)
    np.testing.assert_allclose(told['accuracy'], metrics['accuracy'], rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize('kind', ['classify', 'images'])
def test_a_mesh_gives_the_loss_of_one_device(kind):
  config, (state, metrics) = whole(kind)
  config = config.copy_and_resolve_references().unlock()
  config.mesh.update(dict(zip(AXES, (2, 2, 2, 1), strict=True)))
  other, other_metrics = one_step(config, batch_of(config))
  assert_close(other.params, state.params, 3e-6)
  assert_close(other_metrics, metrics, 3e-6)


def test_smoothing_is_of_classes():
  with pytest.raises(UserError, match=r'label_smoothing=1\.5'):
    objectives.of(config_of('classify', train__label_smoothing=1.5))
  with pytest.raises(UserError, match=r'is of data\.task=classify'):
    objectives.of(config_of('mlm', train__label_smoothing=0.1))


def reviews(folder):
  """A set whose label is the word at a random place of a text of letters, and its config's keys."""
  rng = np.random.default_rng(0)
  for split, count in (('train', 300), ('test', 51)):
    with (folder / f'imdb.{split}.jsonl').open('w') as file:
      for _ in range(count):
        label = int(rng.random() < 0.4)
        letters = rng.choice(list('abcd\n'), rng.integers(1, 12))
        letters[rng.integers(len(letters))] = 'xy'[label]
        file.write(json.dumps({'text': ''.join(letters), 'label': label}) + '\n')
  return {
    'data__name': 'imdb_reviews',
    'data__path': str(folder),
    'data__task': 'classify',
    'data__cache_dir': str(folder / 'cache'),
    'model__form': 'bidirectional',
    'train__batch': 16,
    'train__steps': 60,
    'train__eval_every': 30,
    'train__checkpoint_every': 30,
    'train__log_every': 30,
    'optim__lr': 1e-2,
  }


@pytest.fixture(scope='module')
def run(tmp_path_factory):
  """A finished run of a classifier: its config, workdir and result."""
  folder = tmp_path_factory.mktemp('classify')
  config = tiny(folder, **reviews(folder))
  return config, folder / 'w', loop.train(config, folder / 'w')


@pytest.mark.slow
def test_a_classifier_learns_and_says_what_a_guess_would_reach(run, capsys):
  config, workdir, result = run
  final = result['final']
  corpus = pipeline.load(config)
  label = corpus.labels['validation']
  assert final['examples'] == len(label)  # each exactly once, though the last batch is not full
  assert final['majority'] == pytest.approx(max(np.mean(label), 1 - np.mean(label)))
  assert final['accuracy'] > final['majority'] + 0.2
  assert not result['leaky']
  train = [r for r in read_records(workdir) if r['kind'] == 'train']
  assert [r['examples'] for r in train] == [480, 480]
  assert train[-1]['accuracy'] > train[0]['accuracy']
  assert not any('perplexity' in r or 'bits_per_byte' in r for r in read_records(workdir))
  assert eval_job.run(config, workdir) == 0
  said = capsys.readouterr().out
  assert 'accuracy' in said
  assert 'the most frequent class alone' in said
  assert json.loads((workdir / 'eval.json').read_text())['accuracy'] == final['accuracy']
  audited = json.loads((workdir / 'audit.json').read_text())
  assert audited['verdict'].startswith('ENCODER: softmax sees the whole row by design')
  assert load_params(workdir)[0].model.classes == 2


@pytest.mark.slow
def test_an_encoder_writes_no_text(run):
  config, workdir, _ = run
  with pytest.raises(UserError, match='writes no text'):
    sample.run(config, workdir)


def test_another_number_of_classes_is_refused(run, tmp_path):
  config = run[0].copy_and_resolve_references().unlock()
  config.model.classes = 5
  with pytest.raises(UserError, match=r'classes=5, but the labels .* 2 classes'):
    loop.train(config, tmp_path / 'w')
  config.model.image, config.model.patch = (8, 8, 1), 2
  with pytest.raises(UserError, match=r'is text; set --config\.model\.image=none'):
    loop.train(config, tmp_path / 'w')


def test_padding_is_read_where_a_mixer_honours_no_mask(tmp_path, capsys):
  config = tiny(tmp_path, **reviews(tmp_path)).unlock()
  config.model.mixer, config.train.steps, config.train.eval_every = 'fnet', 2, 2
  with pytest.raises(UserError, match=r"mixer 'fnet' .* mask: .* data\.mask_padding=False"):
    loop.train(config, tmp_path / 'w')
  config.data.mask_padding = False
  loop.train(config, tmp_path / 'v')
  assert 'padding is a token that every layer reads' in capsys.readouterr().out


@pytest.mark.slow
def test_a_language_model_becomes_a_classifier(tmp_path):
  """The trunk is taken, the head is fresh; embedding rows that only an encoder has stay fresh."""
  keys = reviews(tmp_path)
  lm = {'data__task': 'lm', 'model__form': 'causal', 'train__steps': 2, 'train__log_every': 2}
  loop.train(tiny(tmp_path, **keys | lm), tmp_path / 'lm')
  tuned = tiny(tmp_path, **keys).unlock()
  tuned.init_from = str(tmp_path / 'lm')
  tokenizer = pipeline.load(tuned).tokenizer
  model = make_model(tuned, tokenizer, 2)
  fresh = model.init(jax.random.key(9), np.zeros((1, 16), np.int32))['params']
  params, lines = start_from(tuned, tokenizer, fresh)
  old = load_params(tmp_path / 'lm')[1]
  assert_close(params['stack'], old['stack'], 0)
  count = tokenizer.vocab_size
  np.testing.assert_array_equal(params['embedding'][:count], old['embedding'][:count])
  np.testing.assert_array_equal(params['embedding'][count:], fresh['embedding'][count:])
  np.testing.assert_array_equal(params['classifier']['kernel'], fresh['classifier']['kernel'])
  said = '\n'.join(lines)
  assert 'classifier/kernel (not there)' in said
  assert 'fitted to this model: embedding' in said


def test_an_encoder_that_sees_other_examples_is_refused(tmp_path):
  config = tiny(tmp_path, **reviews(tmp_path)).unlock()
  config.model.update(mixer='chiar', block='chiar', form='published', layers=2, qkv_bias=True)
  with pytest.raises(LeakError, match='this encoder sees other examples'):
    loop.train(config, tmp_path / 'w')


def test_what_is_said_of_masked_tokens():
  record = {'split': 'validation', 'step': 3, 'masked_tokens': 40, 'loss': 2.5, 'accuracy': 0.25}
  said = describe(record | {'unigram': 3.0}, leaky=False)
  assert 'accuracy 25.00%, 2.5000 nats/masked token, 40 masked tokens' in said
  assert 'token frequencies alone: 3.0000 nats/masked token' in said


def test_recall_tells_accuracy_and_makes_a_decoder():
  config = base.get_config().unlock()
  config.data.task, config.data.name = 'recall', 'recall/mqar'
  goal = objectives.of(config)
  assert goal.unit == 'asked_token'
  assert isinstance(build(config, vocab=9), Decoder)
  logits_BLV = jnp.asarray(np.eye(9)[[[1, 2, 3]]], jnp.float32)
  sums = goal.sums(logits_BLV, {'targets': jnp.asarray([[1, -1, 4]])})
  assert goal.tell(sums)['accuracy'] == 0.5
