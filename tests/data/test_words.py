"""Words: the vocabulary of the train split, ends of line, and the known counts."""

import json

import numpy as np
import pytest

from configs import base
from sgnjax.data import pipeline, tokenizers
from sgnjax.errors import UserError


def test_files_as_ptb_writes_them_come_back():
  text = ' a b <unk> \n \n c a \n'
  words = tokenizers.make('word', text)
  assert words.words == ['<unk>', '<eos>', 'a', 'b', 'c']
  assert words.encode(text).tolist() == [2, 3, 0, 1, 1, 4, 2, 1]
  assert words.decode(words.encode(text)) == text
  assert words.encode('a never-seen b').tolist() == [2, 0, 3]  # no end where there is none
  read = tokenizers.from_json(json.loads(json.dumps(words.to_json())))
  np.testing.assert_array_equal(read.encode(text), words.encode(text))
  with pytest.raises(IndexError):
    words.decode([-1])
  with pytest.raises(IndexError):
    words.decode([5])


def load(name, path, **keys):
  c = base.get_config()
  c.data.name, c.data.path, c.data.tokenizer = name, str(path), 'word'
  c.model.context = 8
  for key, value in keys.items():
    c.data[key] = value
  return pipeline.load(c)


def test_words_of_the_train_split_alone(tmp_path):
  (tmp_path / 'a.txt').write_text('x y z z \n' * 90 + 'new z \n' * 9)
  corpus = load('text', tmp_path / 'a.txt')
  assert set(corpus.tokenizer.words) == {'<unk>', '<eos>', 'x', 'y', 'z'}
  assert 0 in corpus.splits['validation']
  assert corpus.words_per_token == {'train': 1.0, 'validation': 1.0}
  corpus = load('text', tmp_path / 'a.txt', vocab_size=3)
  assert corpus.tokenizer.words == ['<unk>', '<eos>', 'z']
  with pytest.raises(UserError, match=r'data\.vocab_size=2'):
    load('text', tmp_path / 'a.txt', vocab_size=2)


@pytest.mark.parametrize(
  ('name', 'folder', 'vocabulary', 'counts'),
  [
    ('ptb', 'ptb', 10_000, (929_589, 73_760, 82_430)),
    ('wikitext2', 'wikitext-2', 33_278, (2_088_628, 217_646, 245_569)),
  ],
)
def test_known_counts(real_data, name, folder, vocabulary, counts):
  corpus = load(name, real_data / folder)
  assert corpus.tokenizer.vocab_size == vocabulary
  assert tuple(map(len, corpus.splits.values())) == counts
  assert list(corpus.splits) == ['train', 'validation', 'test']
  assert corpus.splits['train'].dtype == np.uint16
  assert corpus.words_per_token == dict.fromkeys(corpus.splits, 1.0)


def test_words_of_subwords_are_counted_for_perplexity(real_data):
  c = base.get_config()
  c.data.name, c.data.path = 'ptb', str(real_data / 'ptb')
  corpus = pipeline.load(c)
  for split, count in (('train', 929_589), ('validation', 73_760), ('test', 82_430)):
    assert corpus.words_per_token[split] * len(corpus.splits[split]) == pytest.approx(count)
