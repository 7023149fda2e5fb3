"""The token cache: found again, never half there, shared, and the same as without it."""

import multiprocessing
import os
import pickle
import threading
import time

import numpy as np
import pytest

from configs import base
from sgnjax.data import cache, pipeline, tokenizers
from sgnjax.data.sources import Documents
from sgnjax.errors import UserError

TEXT = 'some words of a text\n' * 400


def config(tmp_path, kept=True, tokenizer='word', text=TEXT, **keys):
  (tmp_path / 'a.txt').write_text(text)
  c = base.get_config()
  c.model.context, c.train.batch = 8, 4
  c.data.name, c.data.path, c.data.tokenizer = 'text', str(tmp_path / 'a.txt'), tokenizer
  c.data.cache_dir = str(tmp_path / 'cache') if kept else None
  for key, value in keys.items():
    c.data[key] = value
  return c


@pytest.fixture
def counted(monkeypatch):
  """How many splits were tokenized."""
  calls = []
  original = cache._Parts.__iter__

  def counting(self):
    calls.append(self.name)
    return original(self)

  monkeypatch.setattr(cache._Parts, '__iter__', counting)
  return calls


def assert_same(a, b):
  for split in a.splits:
    np.testing.assert_array_equal(a.splits[split], b.splits[split])
    np.testing.assert_array_equal(a.ends[split], b.ends[split])
  for name in ('bytes_per_token', 'characters_per_token', 'words_per_token', 'unigram_nats'):
    assert getattr(a, name) == getattr(b, name)
  assert a.identity == b.identity


@pytest.mark.parametrize('tokenizer', ['word', 'char', 'byte'])
def test_the_same_from_the_disk(tmp_path, counted, tokenizer):
  plain = pipeline.load(config(tmp_path, kept=False, tokenizer=tokenizer))
  made = pipeline.load(config(tmp_path, tokenizer=tokenizer))
  assert len(counted) == 4
  found = pipeline.load(config(tmp_path, tokenizer=tokenizer))
  assert len(counted) == 4  # nothing is made anew
  assert_same(plain, made)
  assert_same(plain, found)
  assert isinstance(found.splits['train'], np.memmap)
  assert not list((tmp_path / 'cache').glob('*.*[!kn]'))  # locks and vocabularies, nothing half


def test_another_text_tokenizer_or_cut_is_another_entry(tmp_path, counted):
  first = pipeline.load(config(tmp_path))
  others = [
    pipeline.load(config(tmp_path, tokenizer='char')),
    pipeline.load(config(tmp_path, vocab_size=4)),
    pipeline.load(config(tmp_path, validation=0.2)),
    pipeline.load(config(tmp_path, text=TEXT.replace('words', 'parts'))),
  ]
  assert len(counted) == 10
  assert len({first.identity, *(other.identity for other in others)}) == 5


def test_a_failure_leaves_nothing(tmp_path, monkeypatch):
  def broken(self, texts):
    raise RuntimeError('power cut')

  monkeypatch.setattr(tokenizers.WordTokenizer, 'encode_batch', broken)
  with pytest.raises(RuntimeError, match='power cut'):
    pipeline.load(config(tmp_path))
  left = [path for path in (tmp_path / 'cache').iterdir() if path.suffix not in ('.lock', '.json')]
  assert left == []


def test_one_of_many_makes_it(tmp_path, monkeypatch, counted):
  original = tokenizers.WordTokenizer.encode_batch

  def slow(self, texts):
    time.sleep(0.05)
    return original(self, texts)

  monkeypatch.setattr(tokenizers.WordTokenizer, 'encode_batch', slow)
  c = config(tmp_path)
  found = []
  threads = [threading.Thread(target=lambda: found.append(pipeline.load(c))) for _ in range(4)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  assert sorted(counted) == ['text train', 'text validation']
  for corpus in found:
    assert_same(corpus, found[0])


@pytest.mark.skipif(not hasattr(os, 'geteuid') or os.geteuid() == 0, reason='root writes all')
def test_a_folder_that_cannot_be_written(tmp_path):
  (tmp_path / 'cache').mkdir()
  (tmp_path / 'cache').chmod(0o500)
  with pytest.raises(UserError, match=r'data\.cache_dir=DIR'):
    pipeline.load(config(tmp_path))


def test_a_file_in_the_way(tmp_path):
  (tmp_path / 'cache').write_text('')
  with pytest.raises(UserError, match=r'data\.cache_dir=DIR'):
    pipeline.load(config(tmp_path))


def test_short_texts_stay_in_memory_and_long_ones_do_not(tmp_path, monkeypatch):
  monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path / 'home'))
  c = config(tmp_path, kept=False)
  pipeline.load(c)
  assert not (tmp_path / 'home').exists()
  monkeypatch.setattr(cache, 'LARGE', 1000)
  pipeline.load(c)
  assert (tmp_path / 'home' / 'sgnjax' / 'tokens').is_dir()


def test_mapped_arrays_are_pickled_by_path(tmp_path):
  np.arange(100_000, dtype=np.uint16).tofile(tmp_path / 'ids.bin')
  mapped = cache.Mapped(tmp_path / 'ids.bin', np.uint16, 'r')
  pickled = pickle.dumps(mapped)
  assert len(pickled) < 1000
  np.testing.assert_array_equal(pickle.loads(pickled), mapped)
  part = mapped[10:20]
  assert type(part) is np.ndarray
  assert pickle.loads(pickle.dumps(part)).tolist() == list(range(10, 20))


def test_documents_are_ended_where_they_are_separate():
  examples = [('ab', 1), ('', 0), ('c', 1)]
  word = tokenizers.make('word', 'ab c')
  documents = Documents.of(examples, separate=True, labels='class')
  found = cache._in_memory(documents, word, 'x', 'key')
  assert found.ids.tolist() == [word._ids['ab'], 1, 1, word._ids['c'], 1]
  assert found.ends.tolist() == [2, 3, 5]
  assert found.labels.tolist() == [1, 0, 1]
  assert (found.text_bytes, found.characters, found.words) == (3, 3, 2)
  assert found.counts.sum() == 5
  char = cache._in_memory(documents, tokenizers.make('char', 'abc\n'), 'x', 'key')
  assert char.ids.tolist() == [1, 2, 0, 0, 3, 0]  # an end of line, where there is no better end
  joined = cache._in_memory(Documents.of(examples), tokenizers.make('char', 'abc'), 'x', 'key')
  assert joined.ids.tolist() == [0, 1, 2]
  assert joined.labels is None


def test_long_texts_are_tokenized_in_parts(monkeypatch, capsys):
  monkeypatch.setattr(cache, 'GROUP', 50_000)
  monkeypatch.setattr(cache, 'SAY_EVERY', 0.0)
  text = 'a bb ccc\n' * 20_000
  documents = Documents.of([(text, None), ('end', None)])
  tokenizer = tokenizers.make('word', text)
  found = cache._in_memory(documents, tokenizer, 'long text', 'key')
  np.testing.assert_array_equal(found.ids, tokenizer.encode(text + 'end'))
  assert found.ends.tolist() == [80_000, 80_001]
  said = capsys.readouterr().err.splitlines()
  assert len(said) > 2
  assert 'tokenizing long text: ' in said[0]
  assert 'MB/s' in said[0]
  assert 'left' in said[0]


def _load(c, queue):
  corpus = pipeline.load(c)
  queue.put((corpus.identity, int(corpus.splits['train'].sum())))


@pytest.mark.slow
def test_processes_share_an_entry(tmp_path):
  c = config(tmp_path)
  context = multiprocessing.get_context('spawn')
  queue = context.Queue()
  processes = [context.Process(target=_load, args=(c, queue)) for _ in range(2)]
  for process in processes:
    process.start()
  found = {queue.get(timeout=60) for _ in processes}
  for process in processes:
    process.join()
  assert len(found) == 1
  assert len([p for p in (tmp_path / 'cache').iterdir() if p.is_dir()]) == 2
