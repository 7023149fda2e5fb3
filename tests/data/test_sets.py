"""Sets with labels from their plain files: sizes, balance, and what a row of them is."""

import lzma

import numpy as np
import pytest

from configs import base
from sgnjax.data import pipeline, sources, tokenizers
from sgnjax.errors import UserError


def config(name, path, **keys):
  c = base.get_config()
  c.model.context, c.train.batch, c.eval.batch = 16, 6, 4
  c.data.name, c.data.path = name, str(path)
  c.data.tokenizer, c.data.task = 'word', 'classify'
  for key, value in keys.items():
    c.data[key] = value
  return c


def test_sst2(real_data):
  corpus = pipeline.load(config('sst2', real_data / 'sst2'))
  assert {s: len(v) for s, v in corpus.labels.items()} == {
    'train': 6920,
    'validation': 872,
    'test': 1821,
  }
  assert corpus.classes == 2
  assert 0.45 < corpus.labels['test'].mean() < 0.55
  batch = next(pipeline.train_iterator(config('sst2', real_data / 'sst2'), corpus))
  assert batch['tokens'].shape == batch['mask'].shape == (6, 16)
  assert batch['label'].shape == (6,)
  text = corpus.tokenizer.decode(batch['tokens'][0][batch['mask'][0]])
  lines = (real_data / 'sst2' / 'stsa.binary.train').read_text(encoding='utf-8').split('\n')
  found = [line for line in lines if line[2:].startswith(text.strip(' \n'))]
  assert str(batch['label'][0]) in {line[0] for line in found}


def test_imdb(real_data):
  source = sources.load(config('imdb_reviews', real_data / 'imdb'))
  labels = {s: [label for _, label in found.read()] for s, found in source.splits.items()}
  assert {s: len(v) for s, v in labels.items()} == {
    'train': 22_500,
    'test': 25_000,
    'validation': 2_500,
  }
  assert np.mean(labels['test']) == 0.5
  assert 0.45 < np.mean(labels['validation']) < 0.55


@pytest.fixture
def reviews(tmp_path):
  lines = ''.join(f'{i % 2} review number {i}\n' for i in range(10))
  for part in ('train', 'dev', 'test'):
    with lzma.open(tmp_path / f'stsa.binary.{part}.xz', 'wt') as file:
      file.write(lines)
  return tmp_path


def test_compressed_files_and_evaluation(reviews):
  c = config('sst2', reviews)
  corpus = pipeline.load(c)
  batches = list(pipeline.eval_windows(c, corpus, 'validation'))
  labels = np.concatenate([batch['label'] for batch in batches])
  assert labels.tolist() == [0, 1] * 5 + [-1, -1]
  (drawn,) = pipeline.random_batches(c, corpus, 'test', 1, 0)
  assert set(drawn) == {'tokens', 'mask', 'label'}


def test_labelled_sets_are_texts_too(reviews):
  c = config('sst2', reviews, task='lm')
  corpus = pipeline.load(c)
  assert set(next(pipeline.train_iterator(c, corpus))) == {'tokens', 'targets'}
  eos = corpus.tokenizer.end
  assert (corpus.splits['train'] == eos).sum() == 10  # between documents
  c.data.packing = True
  batch = next(pipeline.train_iterator(c, corpus))
  assert batch['segments'].max() > 1
  assert (batch['targets'] == eos).any()  # a document's end is learnt


@pytest.mark.parametrize('kept', [False, True])
def test_characters_have_an_end_of_line_for_each_document(reviews, tmp_path, kept):
  """No review holds one."""
  keys = {'tokenizer': 'char', 'cache_dir': str(tmp_path / 'cache') if kept else None}
  corpus = pipeline.load(config('sst2', reviews, **keys))
  end = corpus.tokenizer.encode('\n')
  assert (corpus.splits['train'][corpus.ends['train'] - 1] == end).all()
  assert corpus.tokenizer.decode(corpus.splits['train'][:16]) == 'review number 0\n'
  with pytest.raises(UserError, match='an end of line is set after each document'):
    pipeline.load(config('sst2', reviews, **keys), tokenizers.make('char', 'a review'))


@pytest.mark.parametrize(
  ('name', 'file', 'line', 'said'),
  [
    ('sst2', 'stsa.binary.train', 'a review', "example 2: ValueError: .*'a'"),
    ('sst2', 'stsa.binary.train', '2 a review', 'a label of 2 among 2 classes'),
    ('imdb_reviews', 'imdb.train.jsonl', '{"text": "a"}', "KeyError: 'label'"),
    ('imdb_reviews', 'imdb.train.jsonl', 'no json', 'JSONDecodeError'),
    ('list_ops', 'basic_train.tsv', '3', "KeyError: 'Source'"),
  ],
)
def test_a_line_that_is_no_example(tmp_path, name, file, line, said):
  first = {'sst2': '1 good', 'imdb_reviews': '{"text": "good", "label": 1}', 'list_ops': 'a\tb'}
  (tmp_path / file).write_text(f'{first[name]}\n{line}\n')
  with pytest.raises(UserError, match=f'{file}.* is not as {name} should be.*{said}'):
    pipeline.load(config(name, tmp_path))
  with pytest.raises(UserError, match='is no folder'):
    pipeline.load(config(name, tmp_path / file))


def test_what_is_missing_or_broken(reviews, tmp_path):
  with pytest.raises(UserError, match=r'no train split of ptb: expected ptb\.train\.txt'):
    pipeline.load(config('ptb', reviews, task='lm'))
  with pytest.raises(UserError, match='is not read from plain files'):
    pipeline.load(config('lm1b', reviews, task='lm'))
  (tmp_path / 'stsa.binary.train.xz').write_bytes(b'not compressed')
  with pytest.raises(UserError, match='cannot read'):
    pipeline.load(config('sst2', tmp_path))
  c = config('sst2', reviews)
  c.data.path = None
  with pytest.raises(UserError, match=r'needs data\.path=FOLDER'):
    pipeline.load(c)
