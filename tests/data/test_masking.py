"""What masked language modelling asks for, and padding that is read."""

import numpy as np
import pytest

from configs import base
from sgnjax.data import pipeline
from sgnjax.data.masking import FixedMasks, Masking, ReadPadding
from sgnjax.data.rows import Labelled, SideBySide
from sgnjax.data.tokenizers import ByteTokenizer, NoTokens, from_json
from sgnjax.errors import UserError

VOCAB = 50


def masked(length=40_000, mask=None, rate=0.15):
  tokens = np.random.default_rng(0).integers(0, VOCAB, length).astype(np.int32)
  example = {'tokens': tokens} | ({} if mask is None else {'mask': mask})
  return tokens, Masking(VOCAB, rate)(example, np.random.default_rng(1))


def test_shares_of_what_is_asked_for():
  tokens, out = masked()
  asked = out['targets'] != -1
  assert abs(asked.mean() - 0.15) < 0.01
  np.testing.assert_array_equal(out['targets'][asked], tokens[asked])
  np.testing.assert_array_equal(out['tokens'][~asked], tokens[~asked])
  shown = out['tokens'][asked]
  assert abs((shown == VOCAB).mean() - 0.8) < 0.02
  assert abs((shown == tokens[asked]).mean() - (0.1 + 0.1 / VOCAB)) < 0.02
  assert shown.max() == VOCAB
  assert (out['tokens'].dtype, out['targets'].dtype) == (np.int32, np.int32)


def test_padding_is_not_asked_for():
  _, out = masked(mask=np.arange(40_000) < 100)
  assert np.all(out['targets'][100:] == -1)
  assert 'mask' in out


def config(task, **data):
  c = base.get_config().unlock()
  c.model.context, c.train.batch, c.data.task, c.data.threads = 8, 4, task, 0
  c.eval.batch = 4
  c.data.update(data)
  return c.lock()


def corpus():
  tokens = np.random.default_rng(2).integers(0, 256, 103).astype(np.int32)
  splits = {'train': tokens, 'validation': tokens}
  each = dict.fromkeys(splits, 1.0)
  return pipeline.Corpus(splits, each, each, each, ByteTokenizer(), 'noise')


def test_training_asks_by_seed_step_and_row():
  whole = pipeline.train_iterator(config('mlm'), corpus())
  first, second = next(whole), next(whole)
  half = pipeline.train_iterator(config('mlm'), corpus(), slice(2, 4))
  half.set_state({'next_index': 1})
  for key, value in next(half).items():
    np.testing.assert_array_equal(value, second[key][2:])
  assert np.any(first['targets'] != second['targets'])


def test_evaluation_asks_the_same_each_time_whatever_the_batch():
  rows = SideBySide(corpus().splits['validation'], 8)
  whole = FixedMasks(rows, Masking(256, 0.15), keep_mask=False).take(np.arange(len(rows)))
  seen = list(pipeline.eval_windows(config('mlm'), corpus(), 'validation'))
  for key in ('tokens', 'targets'):
    np.testing.assert_array_equal(np.concatenate([b[key] for b in seen])[: len(rows)], whole[key])
  assert len(seen) == 4  # 13 windows side by side, in batches of 4
  assert all(set(batch) == {'tokens', 'targets'} for batch in seen)
  (drawn,) = pipeline.random_batches(config('mlm'), corpus(), 'validation', 1, 0)
  assert np.any(drawn['tokens'] == 256)


def test_evaluation_can_ask_each_token_once():
  tokens = np.arange(100, 121)
  rows = SideBySide(tokens, 8)
  batch = rows.take(np.arange(len(rows)))
  np.testing.assert_array_equal(batch['tokens'][batch['mask']], tokens)
  assert batch['tokens'].shape == (3, 8)


def test_padding_may_be_read_as_a_token():
  rows = Labelled(np.arange(7), np.array([3, 7]), np.array([0, 1], np.int32), 5)
  batch = ReadPadding(rows, VOCAB).take(np.arange(2))
  assert set(batch) == {'tokens', 'label'}
  np.testing.assert_array_equal(
    batch['tokens'], [[0, 1, 2, VOCAB + 1, VOCAB + 1], [3, 4, 5, 6, VOCAB + 1]]
  )


@pytest.mark.parametrize('rate', [0.0, 1.0, -0.1])
def test_a_rate_outside_0_to_1_is_refused(rate):
  with pytest.raises(UserError, match=r'data\.mask_rate'):
    pipeline.train_iterator(config('mlm', mask_rate=rate), corpus())


def test_what_stands_for_no_tokenizer_is_stored():
  found = from_json(NoTokens().to_json())
  assert isinstance(found, NoTokens)
  assert found.vocab_size == 0
