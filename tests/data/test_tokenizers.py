"""Tokenizers: text to ids and back, through JSON, and what they refuse."""

import json

import numpy as np
import pytest

from sgnjax.data import tokenizers
from sgnjax.errors import UserError

TEXT = 'Où?\x00\n\t🙂 "naïve" \U0010ffff'


@pytest.mark.parametrize('kind', ['char', 'byte'])
def test_round_trip_through_json(kind):
  made = tokenizers.make(kind, TEXT)
  read = tokenizers.from_json(json.loads(json.dumps(made.to_json())))
  ids = made.encode(TEXT)
  assert ids.dtype == np.int32
  assert ids.max() < made.vocab_size == read.vocab_size
  np.testing.assert_array_equal(read.encode(TEXT), ids)
  assert read.decode(ids) == made.decode(ids.tolist()) == TEXT
  assert made.encode('').shape == (0,)
  assert made.decode([]) == ''


def test_char_ids_follow_the_sorted_vocabulary():
  tokenizer = tokenizers.make('char', 'banana split')
  assert tokenizer.characters == ' abilnpst'
  assert tokenizer.encode('tab').tolist() == [8, 1, 2]


def test_lone_surrogates_survive():
  text = 'a\udcffb'
  tokenizer = tokenizers.make('char', text)
  assert tokenizer.decode(tokenizer.encode(text)) == text
  assert len(tokenizers.make('byte', text).encode(text)) == 5


@pytest.mark.parametrize(
  ('text', 'shown', 'at'),
  [
    ('hello wörld', "'ö' (U+00F6)", 7),
    ('hell🙂', "'🙂' (U+1F642)", 4),
    ('hell\x07', "'\\x07' (U+0007)", 4),
    ('!', "'!'", 0),
  ],
)
def test_unknown_character_is_named(text, shown, at):
  tokenizer = tokenizers.make('char', 'hello world')
  with pytest.raises(UserError) as error:
    tokenizer.encode(text)
  assert shown in str(error.value)
  assert f'position {at} ' in str(error.value)
  assert 'data.tokenizer=byte' in str(error.value)


def test_ids_out_of_range_are_refused():
  with pytest.raises(IndexError):
    tokenizers.make('char', 'abc').decode([0, -1])
  with pytest.raises(IndexError):
    tokenizers.make('char', 'abc').decode([3])
  with pytest.raises(ValueError, match='range'):
    tokenizers.make('byte', b'').decode([256])


def test_bytes_that_are_not_utf8():
  tokenizer = tokenizers.make('byte', b'')
  raw = bytes(range(256))
  assert tokenizer.encode(raw).tolist() == list(range(256))
  assert tokenizer.decode([0x61, 0xFF, 0x62]) == 'a\ufffdb'


@pytest.mark.parametrize('kind', ['char', 'byte'])
def test_a_megabyte_comes_back(kind):
  text = 'the quick brown fox ' * 50_000
  tokenizer = tokenizers.make(kind, text)
  assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize(('kind', 'hint'), [('xyz', 'char, byte'), ('bytes', "mean 'byte'")])
def test_unknown_kind(kind, hint):
  with pytest.raises(UserError, match=hint):
    tokenizers.make(kind, 'text')
  with pytest.raises(UserError, match=hint):
    tokenizers.from_json({'kind': kind})
