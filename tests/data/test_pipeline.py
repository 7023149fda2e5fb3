"""Batches: the order, its resumption, and what each evaluation covers."""

import json
from collections import Counter

import numpy as np
import pytest

from configs import base
from sgnjax.data import pipeline, tokenizers
from sgnjax.errors import UserError
from tests.data.batches import assert_same, take


def config(**keys):
  c = base.get_config()
  c.model.context, c.train.batch, c.eval.batch = 8, 4, 3
  for key, value in keys.items():
    group, leaf = key.split('_', 1)
    c[group][leaf] = value
  return c


def corpus(length=53, validation=40):
  """Tokens that are their own positions."""
  splits = {'train': np.arange(length, dtype=np.int32)}
  splits['validation'] = np.arange(validation, dtype=np.int32)
  ones = dict.fromkeys(splits, 1.0)
  return pipeline.Corpus(splits, ones, ones, ones, tokenizers.make('byte', b''), 'positions')


def test_targets_are_one_token_later():
  for batch in take(pipeline.train_iterator(config(), corpus()), 30):
    assert batch['tokens'].shape == batch['targets'].shape == (4, 8)
    assert batch['tokens'].dtype == batch['targets'].dtype == np.int32
    np.testing.assert_array_equal(batch['targets'], batch['tokens'] + 1)
    np.testing.assert_array_equal(np.diff(batch['tokens'], axis=1), 1)


@pytest.mark.parametrize('stride', [1, 3, 8, 100])
def test_epochs_cover_every_window_once_in_different_orders(stride):
  c = config(data_stride=stride, train_batch=1)
  starts = list(range(0, 53 - 8, stride))
  batches = take(pipeline.train_iterator(c, corpus()), 2 * len(starts))
  seen = [int(b['tokens'][0, 0]) for b in batches]
  first, second = seen[: len(starts)], seen[len(starts) :]
  assert sorted(first) == sorted(second) == starts
  if len(starts) > 5:
    assert len({tuple(starts), tuple(first), tuple(second)}) == 3


@pytest.mark.parametrize('count', [2, 4])
def test_order_does_not_depend_on_the_processes(count):
  c, share = config(train_batch=8), 8 // count
  whole = take(pipeline.train_iterator(c, corpus()), 12)  # over two epochs of 45 windows
  parts = [
    take(pipeline.train_iterator(c, corpus(), slice(p * share, (p + 1) * share)), 12)
    for p in range(count)
  ]
  assert parts[0][0]['tokens'].shape == (8 // count, 8)
  joined = [
    {k: np.concatenate([b[k] for b in bs]) for k in bs[0]} for bs in zip(*parts, strict=True)
  ]
  assert_same(joined, whole)


@pytest.mark.parametrize('threads', [0, 1, 4])
def test_order_does_not_depend_on_the_threads(threads):
  got = take(pipeline.train_iterator(config(data_threads=threads), corpus()), 25)
  assert_same(got, take(pipeline.train_iterator(config(), corpus()), 25))


def test_seeds_differ_and_do_not_share_epochs():
  def epochs(seed, count):
    c = config(train_batch=1)
    c.seed = seed
    starts = [
      int(b['tokens'][0, 0]) for b in take(pipeline.train_iterator(c, corpus()), 45 * count)
    ]
    return {tuple(starts[45 * e : 45 * (e + 1)]) for e in range(count)}

  assert epochs(0, 4) == epochs(0, 4)
  assert not epochs(0, 4) & epochs(1, 4)


# 45 windows: with 5 rows an epoch ends exactly after step 9, with 4 rows inside a batch.
@pytest.mark.parametrize('batch', [5, 4])
@pytest.mark.parametrize('at', [0, 1, 8, 9, 10, 18])
def test_resume_equals_straight(batch, at):
  c = config(train_batch=batch)
  straight = take(pipeline.train_iterator(c, corpus()), at + 12)
  stopped = pipeline.train_iterator(c, corpus())
  take(stopped, at)
  state = json.dumps(stopped.get_state())
  assert len(state) < 100
  resumed = pipeline.train_iterator(c, corpus())
  take(resumed, 3)  # a used iterator is set back as well
  resumed.set_state(json.loads(state))
  assert_same(take(resumed, 12), straight[at:])


def test_batch_larger_than_an_epoch():
  c = config(train_batch=64, data_stride=8)
  (batch,) = take(pipeline.train_iterator(c, corpus()), 1)
  counts = Counter(batch['tokens'][:, 0].tolist())
  assert set(counts) == set(range(0, 45, 8))
  assert max(counts.values()) - min(counts.values()) <= 1


@pytest.mark.parametrize(
  ('key', 'value'),
  [('data_stride', 0), ('data_threads', -1), ('train_batch', 0)],
)
def test_training_keys_out_of_range(key, value):
  with pytest.raises(UserError, match=key.replace('_', r'\.', 1)):
    pipeline.train_iterator(config(**{key: value}), corpus())


def test_no_rows_of_a_batch():
  with pytest.raises(UserError, match=r'train\.batch=4: expected at least one'):
    pipeline.train_iterator(config(), corpus(), slice(4, 8))


def test_negative_seed():
  c = config()
  c.seed = -1
  with pytest.raises(UserError, match='seed=-1'):
    pipeline.train_iterator(c, corpus())


@pytest.mark.parametrize('length', [9, 10, 16, 17, 40, 41])
@pytest.mark.parametrize('stride', [None, 1, 3, 7, 8])
@pytest.mark.parametrize('batch', [1, 3, 64])
def test_evaluation_scores_each_token_once(length, stride, batch):
  windows = pipeline.eval_windows(
    config(eval_stride=stride, eval_batch=batch), corpus(validation=length), 'validation'
  )
  batches = list(windows)
  assert len(batches) == len(windows)
  scored = []
  for b in batches:
    assert b['tokens'].shape == b['targets'].shape == (batch, 8)
    assert b['tokens'].dtype == b['targets'].dtype == np.int32
    is_scored = b['targets'] != -1
    np.testing.assert_array_equal(b['targets'][is_scored], b['tokens'][is_scored] + 1)
    scored += b['targets'][is_scored].tolist()
  assert scored == list(range(1, length))
  assert_same(list(windows), batches)  # it can be run again


def test_evaluation_gives_context_to_what_it_scores():
  windows = pipeline.eval_windows(config(eval_batch=1), corpus(), 'validation')
  _, *later = list(windows)
  assert later
  for b in later:
    assert (b['targets'][0, :4] == -1).all()  # half the context
    assert b['targets'][0, -1] != -1


@pytest.mark.parametrize(('stride', 'said'), [(0, 'at least 1'), (9, r'1 to model\.context=8')])
def test_evaluation_stride_out_of_range(stride, said):
  with pytest.raises(UserError, match=said):
    pipeline.eval_windows(config(eval_stride=stride), corpus(), 'validation')


def test_evaluation_of_an_unknown_split():
  with pytest.raises(UserError, match="did you mean 'validation'"):
    pipeline.eval_windows(config(), corpus(), 'validatoin')
  with pytest.raises(UserError, match="'test' is not known"):
    pipeline.random_batches(config(), corpus(), 'test', 1, 0)


def test_random_batches():
  def draw(seed, count=200):
    return list(pipeline.random_batches(config(), corpus(), 'validation', count, seed))

  batches = draw(0)
  assert len(batches) == 200
  assert_same(batches, draw(0))
  assert_same(batches[:5], draw(0, 5))
  assert any((a['tokens'] != b['tokens']).any() for a, b in zip(batches, draw(1), strict=True))
  for b in batches:
    assert b['tokens'].shape == (4, 8)
    np.testing.assert_array_equal(b['targets'], b['tokens'] + 1)
  assert {int(s) for b in batches for s in b['tokens'][:, 0]} == set(range(40 - 8))


def text_corpus(tmp_path, text, tokenizer='char', **keys):
  (tmp_path / 'a.txt').write_bytes(text.encode())
  return pipeline.load(
    config(data_name='text', data_path=str(tmp_path / 'a.txt'), data_tokenizer=tokenizer, **keys)
  )


def test_ratios_of_characters_and_bytes(tmp_path):
  text = 'aé🙂b' * 100  # 8 bytes, 4 characters
  char = text_corpus(tmp_path, text)
  assert char.bytes_per_token == {'train': 2.0, 'validation': 2.0}
  assert char.characters_per_token == {'train': 1.0, 'validation': 1.0}
  byte = text_corpus(tmp_path, text, 'byte')
  assert byte.bytes_per_token == {'train': 1.0, 'validation': 1.0}
  assert byte.characters_per_token == {'train': 0.5, 'validation': 0.5}


def test_vocabulary_is_of_the_whole_text(tmp_path):
  loaded = text_corpus(tmp_path, 'ab' * 90 + 'cd' * 10)
  assert loaded.tokenizer.characters == 'abcd'
  assert set(loaded.splits['train'].tolist()) == {0, 1}
  # Counts with one added: 91, 91, 1, 1.
  assert loaded.unigram_nats['validation'] == pytest.approx(np.log(184))
  assert loaded.unigram_nats['train'] == pytest.approx(np.log(184 / 91))


@pytest.mark.parametrize('tokenizer', ['char', 'byte'])
def test_ten_bytes_are_too_short(tmp_path, tokenizer):
  with pytest.raises(UserError, match=r'train 9, validation 1, and model\.context=8 needs 9'):
    text_corpus(tmp_path, '0123456789', tokenizer)


def test_shortest_text_that_does(tmp_path):
  loaded = text_corpus(tmp_path, 'x' * 90)
  assert len(loaded.splits['validation']) == 9
  (batch,) = pipeline.eval_windows(config(eval_batch=1), loaded, 'validation')
  assert (batch['targets'] == 0).all()
