"""Texts: what is read, what is refused and in which words."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from configs import base
from sgnjax.data import pipeline, sources
from sgnjax.errors import UserError

ROOT = Path(__file__).parents[2]


def text_config(path, tokenizer='char', context=8):
  c = base.get_config()
  c.data.name, c.data.path, c.data.tokenizer = 'text', str(path), tokenizer
  c.model.context = context
  return c


def read(path, tokenizer='char'):
  splits = sources.load(text_config(path, tokenizer)).splits
  parts = [text for split in splits.values() for text in split.texts()]
  return parts[0][:0].join(parts)


def fresh_python(code, **environment):
  return subprocess.run(
    [sys.executable, '-c', code],
    cwd=ROOT,
    env=os.environ | environment,
    capture_output=True,
    text=True,
    check=False,
    timeout=60,
  )


def test_embedded_is_english_without_repeated_paragraphs():
  text = sources.embedded()
  assert 500_000 < len(text) < 1_500_000
  assert 'The "yield" statement' in text
  assert 'SequenceMatcher is a flexible class' in text  # of a docstring
  paragraphs = text.rstrip('\n').split('\n\n')
  assert len(paragraphs) == len(set(paragraphs))


def test_split_is_by_share(tmp_path):
  (tmp_path / 'a.txt').write_text('0123456789' * 10)
  c = text_config(tmp_path / 'a.txt')
  c.data.validation = 0.25
  splits, origin, _ = sources.load(c)
  assert {split: list(found.texts()) for split, found in splits.items()} == {
    'train': [('0123456789' * 10)[:75]],
    'validation': [('0123456789' * 10)[75:]],
  }
  assert 'a.txt' in origin


def test_folder_is_joined_in_sorted_order(tmp_path):
  for name, text in (('b.txt', 'second'), ('a.txt', '\ufefffirst\r\n'), ('c.md', 'not text')):
    (tmp_path / name).write_bytes(text.encode())
  assert read(tmp_path) == 'first\nsecond'


def test_mark_line_ends_emoji_and_nul(tmp_path):
  raw = b'\xef\xbb\xbfone\r\ntwo\x00 ' + '🙂 é\r\nlone\rreturn'.encode()
  (tmp_path / 'a.txt').write_bytes(raw)
  assert read(tmp_path / 'a.txt') == 'one\ntwo\x00 🙂 é\nlone\rreturn'
  assert read(tmp_path / 'a.txt', 'byte') == raw


def test_one_line_of_five_megabytes(tmp_path):
  (tmp_path / 'a.txt').write_text('abcde' * 1_000_000)
  start = time.perf_counter()
  corpus = pipeline.load(text_config(tmp_path / 'a.txt'))
  assert time.perf_counter() - start < 5
  assert sum(map(len, corpus.splits.values())) == 5_000_000
  assert corpus.tokenizer.vocab_size == 5


@pytest.mark.parametrize('mark', [b'', b'\xef\xbb\xbf'])
def test_invalid_utf8_names_file_byte_and_way_out(tmp_path, mark):
  raw = mark + b'some text \xff more text'
  (tmp_path / 'bad.txt').write_bytes(raw)
  with pytest.raises(UserError, match=r'0xff') as error:
    read(tmp_path / 'bad.txt')
  assert 'bad.txt' in str(error.value)
  assert f'offset {len(mark) + 10}' in str(error.value)
  assert 'data.tokenizer=byte' in str(error.value)
  assert read(tmp_path / 'bad.txt', 'byte') == raw


def test_bad_paths(tmp_path):
  (tmp_path / 'shakespeare.txt').write_text('words')
  (tmp_path / 'empty.txt').write_text('')
  (tmp_path / 'folder').mkdir()
  (tmp_path / 'folder' / 'notes.md').write_text('words')
  with pytest.raises(UserError, match=r"did you mean '.*/shakespeare.txt'"):
    read(tmp_path / 'shakespear.txt')
  with pytest.raises(UserError, match=r"zzz' does not exist$"):
    read(tmp_path / 'zzz')
  with pytest.raises(UserError, match='does not exist'):
    read(tmp_path / 'no' / 'such' / 'folder.txt')
  with pytest.raises(UserError, match='is empty'):
    read(tmp_path / 'empty.txt')
  with pytest.raises(UserError, match=r'holds no \.txt file'):
    read(tmp_path / 'folder')
  c = text_config(tmp_path)
  c.data.path = None
  with pytest.raises(UserError, match=r'needs data\.path'):
    sources.load(c)


@pytest.mark.skipif(not hasattr(os, 'geteuid') or os.geteuid() == 0, reason='root reads every file')
def test_unreadable_file(tmp_path):
  (tmp_path / 'a.txt').write_text('words')
  (tmp_path / 'a.txt').chmod(0)
  with pytest.raises(UserError, match='cannot read'):
    read(tmp_path / 'a.txt')


def test_what_would_not_be_read_is_refused(tmp_path):
  c = base.get_config()
  c.data.path = 'mine.txt'
  with pytest.raises(UserError, match=r"data\.path is 'mine\.txt': set data\.name=text"):
    sources.load(c)
  c = text_config(tmp_path)
  c.data.slice = ':1%'
  with pytest.raises(UserError, match=r'data\.name=text of data\.path is not: unset it'):
    sources.load(c)
  c.data.name, c.data.path = 'tiny_shakespeare', None
  with pytest.raises(UserError, match=r'data\.name=tiny_shakespeare is not: unset it'):
    sources.load(c)


def test_bad_choices():
  c = base.get_config()
  c.data.name = 'embeded'
  with pytest.raises(UserError, match="did you mean 'embedded'"):
    sources.load(c)
  c.data.name, c.data.validation = 'embedded', 1.0
  with pytest.raises(UserError, match='between 0 and 1'):
    sources.load(c)
  c.data.validation, c.data.tokenizer = 0.1, 'gpt3'
  with pytest.raises(UserError, match=r"'gpt3' is not known; did you mean 'gpt2'"):
    pipeline.load(c)


def tiny_config(folder):
  c = base.tiny_shakespeare()
  c.data.dir = str(folder)
  return c


def test_tiny_shakespeare_absent_is_refused_at_once(tmp_path, monkeypatch):
  def no_network(*_, **__):
    raise AssertionError('a network was tried')

  monkeypatch.setattr('socket.getaddrinfo', no_network)
  monkeypatch.setattr('socket.socket.connect', no_network)
  start = time.perf_counter()
  with pytest.raises(UserError) as error:
    sources.load(tiny_config(tmp_path))
  assert time.perf_counter() - start < 5
  assert str(tmp_path / 'downloads' / 'manual' / 'input.txt') in str(error.value)
  assert '--job=prepare --config.data.name=tiny_shakespeare' in str(error.value)


def test_tiny_shakespeare_wrong_file_or_format(tmp_path):
  manual = tmp_path / 'downloads' / 'manual'
  manual.mkdir(parents=True)
  (manual / 'input.txt').write_text('To be, or not to be')
  with pytest.raises(UserError, match=r'expected input\.txt: 1,115,394 bytes'):
    sources.load(tiny_config(tmp_path))
  (tmp_path / 'tiny_shakespeare' / '1.0.0').mkdir(parents=True)
  with pytest.raises(UserError, match='only TensorFlow reads'):
    sources.load(tiny_config(tmp_path))


def test_tiny_shakespeare_round_trip(tmp_path, real_data, monkeypatch):
  original = (real_data / 'tinyshakespeare' / 'input.txt').read_bytes()
  manual = tmp_path / 'downloads' / 'manual'
  manual.mkdir(parents=True)
  (manual / 'input.txt').write_bytes(original)

  def no_network(*_, **__):
    raise AssertionError('a network was tried')

  monkeypatch.setattr('socket.socket.connect', no_network)
  corpus = pipeline.load(tiny_config(tmp_path))
  (manual / 'input.txt').unlink()  # from now on it is prepared
  found = sources.load(tiny_config(tmp_path)).splits
  splits = {split: ''.join(documents.texts()) for split, documents in found.items()}
  assert (splits['train'] + splits['validation']).encode() == original
  assert {s: len(t) for s, t in splits.items()} == {'train': 1_003_854, 'validation': 111_540}
  assert corpus.tokenizer.vocab_size == 65
  assert corpus.tokenizer.decode(corpus.splits['validation']) == splits['validation']
  assert corpus.bytes_per_token == {'train': 1.0, 'validation': 1.0}


FIRST_BATCH = """
import sys
from configs import base
from sgnjax.data import pipeline
c = base.get_config()
for c.data.name, c.data.path, c.data.dir in {sets!r}:
  corpus = pipeline.load(c)
  next(pipeline.train_iterator(c, corpus))
print(corpus.identity)
print('tensorflow' in sys.modules, 'tensorflow_datasets' in sys.modules)
"""


def test_another_process_reads_the_same_text_without_tensorflow(tmp_path):
  (tmp_path / 'a.txt').write_text('some words ' * 500)
  sets = [('text', str(tmp_path / 'a.txt'), None), ('embedded', None, None)]
  out = fresh_python(FIRST_BATCH.format(sets=sets), PYTHONHASHSEED='7')
  identity = pipeline.load(base.get_config()).identity
  assert out.stdout.split() == [identity, 'False', 'False'], out.stderr


def test_a_set_of_tfds_is_read_without_tensorflow(tmp_path, real_data):
  manual = tmp_path / 'downloads' / 'manual'
  manual.mkdir(parents=True)
  shutil.copy(real_data / 'tinyshakespeare' / 'input.txt', manual)
  out = fresh_python(FIRST_BATCH.format(sets=[('tiny_shakespeare', None, str(tmp_path))]))
  assert out.stdout.split()[1:] == ['False', 'True'], out.stderr
