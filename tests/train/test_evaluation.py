"""Metrics of language models against sums made directly, one token at a time."""

import math

import jax
import numpy as np
import pytest

from configs import base
from sgnjax.data import pipeline
from sgnjax.errors import UserError
from sgnjax.parallel.mesh import make_mesh
from sgnjax.train.evaluation import check_eval, describe, evaluate, perplexity

CONTEXT = 8
TEXT = 'the cat sat on the mat \n a dog  ran\n\nünd so weiter \n' * 3


def config(tokenizer='char', stride=None, **data):
  c = base.get_config()
  c.model.context, c.data.tokenizer, c.eval.stride, c.eval.batch = CONTEXT, tokenizer, stride, 3
  for key, value in data.items():
    c.data[key] = value
  return c


def nats(before: np.ndarray, target: int) -> float:
  """What some model gives a target: it depends on all that the model sees."""
  return (3 + target % 7) / len(before) + 0.25 * (before[-1] % 5) + 0.125 * (before[0] % 3)


def step(params, batch):
  """The sums of `nats` over a batch, as the compiled evaluation step gives them."""
  tokens, targets = np.asarray(batch['tokens']), np.asarray(batch['targets'])
  scored = np.argwhere(targets != -1)
  total = sum(nats(tokens[i, : j + 1], int(targets[i, j])) for i, j in scored)
  return {'loss_sum': np.float64(total), 'tokens': np.float64(len(scored))}


def record_of(c, corpus):
  return evaluate(c, corpus, step, None, make_mesh(c, jax.devices()[:1]), 7)


@pytest.fixture(scope='module')
def text(tmp_path_factory):
  path = tmp_path_factory.mktemp('text') / 'text.txt'
  path.write_text(TEXT, encoding='utf-8')
  return str(path)


def corpus_of(c, text):
  c.data.name, c.data.path, c.data.validation = 'text', text, 0.5
  return pipeline.load(c)


@pytest.mark.parametrize('stride', [None, 1, 3, CONTEXT])
def test_sliding_and_separate_windows(text, stride):
  """Each token once; its model sees from the start of the first window that holds it."""
  c = config(stride=stride)
  corpus = corpus_of(c, text)
  ids = np.asarray(corpus.splits['validation'])
  fresh = stride or CONTEXT // 2
  total = 0.0
  for at in range(1, len(ids)):
    window = max(0, math.ceil((at - CONTEXT) / fresh)) * fresh
    start = min(window, len(ids) - 1 - CONTEXT)  # the last window is moved back to be whole
    total += nats(ids[start:at], int(ids[at]))
  record = record_of(c, corpus)
  assert (record['tokens'], record['stride']) == (len(ids) - 1, fresh)
  assert record['loss'] == pytest.approx(total / (len(ids) - 1), rel=1e-12)
  assert record['perplexity'] == pytest.approx(math.exp(total / (len(ids) - 1)), rel=1e-12)


def test_units_of_a_text(text):
  """Bits a byte and a character, and perplexity of words, by the text itself."""
  validation = TEXT[int(0.5 * len(TEXT)) :]
  units = len(validation.encode()), len(validation), len(validation.replace('\n', ' $ ').split())
  assert units[0] > units[1]
  by_bytes = TEXT.encode()[int(0.5 * len(TEXT.encode())) :]
  byte_units = len(by_bytes), len(by_bytes.decode()), len(by_bytes.replace(b'\n', b' $ ').split())
  for kind, (in_bytes, characters, words) in (('char', units), ('byte', byte_units)):
    c = config(kind)
    corpus = corpus_of(c, text)
    record = record_of(c, corpus)
    per_text = record['loss'] * len(corpus.splits['validation'])
    assert record['bits_per_byte'] == pytest.approx(per_text / math.log(2) / in_bytes)
    assert record['bits_per_character'] == pytest.approx(per_text / math.log(2) / characters)
    assert record['word_perplexity'] == pytest.approx(math.exp(per_text / words))
    assert f'{record["word_perplexity"]:.4g} of words' in describe(record, leaky=False)


def test_words_as_tokens_have_one_perplexity(text):
  c = config('word')
  record = record_of(c, corpus_of(c, text))
  assert 'word_perplexity' not in record
  assert 'of words' not in describe(record, leaky=False)


def test_a_perplexity_that_overflows_is_not_said(text):
  assert perplexity(700.0) is None
  c = config()
  record = record_of(c, corpus_of(c, text)) | {'word_perplexity': None}
  assert 'of words' not in describe(record, leaky=False)


def test_subwords_of_ptb_are_compared_by_its_words(real_data, tmp_path):
  """GPT-2's tokens of PTB: 82,430 words of the test split with their ends of line."""
  for split, of in (('train', 'valid'), ('valid', 'valid'), ('test', 'test')):
    (tmp_path / f'ptb.{split}.txt').symlink_to(real_data / 'ptb' / f'ptb.{of}.txt')
  c = config('gpt2', stride=CONTEXT, tokenizer_path=str(real_data / 'gpt2-bpe'))
  c.data.name, c.data.path, c.eval.split, c.eval.batch = 'ptb', str(tmp_path), 'test', 1000
  corpus = pipeline.load(c)

  def flat(params, batch):
    scored = np.sum(batch['targets'] != -1)
    return {'loss_sum': 2.0 * scored, 'tokens': scored}

  record = evaluate(c, corpus, flat, None, make_mesh(c, jax.devices()[:1]), 1)
  assert record['loss'] == pytest.approx(2.0)
  ids = len(corpus.splits['test'])
  assert record['word_perplexity'] == pytest.approx(math.exp(2.0 * ids / 82_430))


def test_protocol_is_checked():
  c = config()
  c.eval.protocol = 'papers'
  with pytest.raises(UserError, match="did you mean 'paper'"):
    check_eval(c)
