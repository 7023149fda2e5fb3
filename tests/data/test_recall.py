"""Recall tasks: what is asked follows from the row and from nothing else, and never changes."""

import itertools
import json

import numpy as np
import pytest

from configs import base
from sgnjax.analysis import recall as recall_page
from sgnjax.data import pipeline, recall
from sgnjax.errors import UserError
from sgnjax.machine import origin
from sgnjax.train.log import note_start, read_records

SMALL = {'train': 40, 'validation': 20}


def rows(name: str, context: int = 32, split: str = 'train'):
  """Lists of words, and {place: word asked for} of each row."""
  config = base.get_config().unlock()
  config.data.update(name=name, task='recall')
  config.model.context = context
  found = recall.load(config, SMALL)
  words = np.array(found.tokenizer.words)
  batch = recall.Asked(found.tokens[split], found.targets[split], context).take(np.arange(20))
  for tokens_L, targets_L in zip(batch['tokens'], batch['targets'], strict=True):
    asked = np.flatnonzero(targets_L >= 0)
    yield list(words[tokens_L]), dict(zip(asked.tolist(), words[targets_L[asked]], strict=True))


def test_selective_copying_asks_for_the_symbols_in_order():
  for words, asked in rows('recall/copying'):
    arrow = words.index('>')
    assert arrow == 32 - recall.DATA
    symbols = [word for word in words[:arrow] if word != '.']
    assert len(set(symbols)) == recall.DATA
    assert asked == {arrow + i: symbol for i, symbol in enumerate(symbols)}
    assert words[arrow + 1 :] == symbols[:-1]


def test_induction_asks_for_what_followed_the_symbol_before():
  rounds = set()
  for words, asked in rows('recall/induction'):
    size = words.index(words[0], 1)
    assert len(set(words)) == size
    for i, answer in asked.items():
      assert answer == words[words.index(words[i]) + 1 if words[i] != words[size - 1] else 0]
    assert list(asked) == list(range(size, 32))
    rounds.add(size)
  assert min(rounds) >= 8
  assert max(rounds) <= 16
  assert len(rounds) > 4


@pytest.mark.parametrize('context', [32, 47, 64, 128])
def test_associative_recall_asks_for_the_value_of_each_key(context):
  found = set()
  for words, asked in rows('recall/mqar', context):
    pairs = min(asked) // 2
    value = dict(zip(words[: 2 * pairs : 2], words[1 : 2 * pairs : 2], strict=True))
    assert len(value) == pairs
    assert list(asked) == list(range(2 * pairs, context, 2))
    for i, answer in asked.items():
      assert answer == value[words[i]]
      assert words[i + 1 : i + 2] in ([answer], [])
    found.add(pairs)
  assert found <= set(range(2, context // 16 + 1))
  assert len(found) >= min(context // 16 - 1, 5)


def test_examples_are_the_same_ones_always_and_others_in_each_split():
  for name in recall.SETS:
    first, again, other = (list(rows(name, split=s)) for s in ('train', 'train', 'validation'))
    assert first == again
    assert not {' '.join(w) for w, _ in first} & {' '.join(w) for w, _ in other}


def test_batches_score_what_is_asked_alone(monkeypatch):
  monkeypatch.setattr(recall, 'SIZES', SMALL)
  config = base.get_config().unlock()
  config.data.update(name='recall/copying', task='recall')
  config.model.context = 32
  config.train.batch, config.eval.batch = 8, 16
  corpus = pipeline.load(config)
  assert corpus.tokenizer.vocab_size == 2 + 2 + recall.SYMBOLS
  assert abs(corpus.unigram_nats['validation'] - np.log(recall.SYMBOLS)) < 0.5
  batches = list(itertools.islice(pipeline.train_iterator(config, corpus), 5))
  assert all((b['targets'] >= 0).sum() == 8 * recall.DATA for b in batches)
  seen = {row.tobytes() for b in batches for row in b['tokens']}
  assert len(seen) == 40  # an epoch
  scored = [(b['targets'] >= 0).sum() for b in pipeline.eval_windows(config, corpus, 'validation')]
  assert sum(scored) == 20 * recall.DATA


@pytest.mark.parametrize(
  ('changes', 'said'),
  [
    ({'task': 'lm'}, 'data.task=recall'),
    ({'name': 'embedded'}, 'recall/mqar'),
    ({'path': 'x'}, 'data.path'),
    ({'packing': True}, 'rows of one length'),
    ({'name': 'recall/mqra'}, "did you mean 'recall/mqar'"),
  ],
)
def test_what_is_refused(changes, said):
  config = base.get_config().unlock()
  config.data.update(name='recall/mqar', task='recall')
  config.data.update(changes)
  with pytest.raises(UserError) as error:
    pipeline.load(config)
  assert said in str(error.value)


def test_a_row_that_is_too_short():
  config = base.get_config().unlock()
  config.data.update(name='recall/copying', task='recall')
  config.model.context = 16
  with pytest.raises(UserError, match='17 or more'):
    pipeline.load(config)


def test_the_page_of_a_sweep(tmp_path):
  rows = [
    {'state': 'finished' if seed < 2 else 'to come', 'accuracy': accuracy - seed / 100,
     'leaky': mixer == 'published',
     'labels': {'task': task, 'mixer': mixer, 'length': str(n), 'seed': str(seed)}}
    for task in ('mqar', 'copying')
    for mixer, accuracy in (('softmax', 1.0), ('uniform', 0.1), ('published', 1.0))
    for n in (32, 64)
    for seed in range(3)
  ]  # fmt: skip
  rows[-2]['state'] = 'to come'  # of published copying at 64 tokens
  (tmp_path / 'sweep.json').write_text(json.dumps(rows))
  (tmp_path / 'a-run').mkdir()
  for step in (0, 7):
    note_start(tmp_path / 'a-run', step)
  (tmp_path / 'docs' / 'results').mkdir(parents=True)
  path = tmp_path / 'docs' / 'results' / 'recall.md'
  recall_page.main([str(tmp_path), str(path)])
  text = path.read_text()
  assert '| softmax | **99.5% (99.0% to 100.0%)** | **99.5%' in text
  assert '| uniform | 9.5% (9.0% to 10.0%) |' in text
  assert '| published | 99.5% LEAKY (99.0% LEAKY to 100.0% LEAKY) |' in text
  assert '| 100.0% LEAKY, of 1 only |' in text
  assert 'Solved: softmax at 32, 64 tokens. Not solved: uniform, published.\n' in text
  assert '| *a guess among the answers of the row* | 34.0% | 34.0% |' in text
  assert 'Not run here: `induction` (a random order' in text
  (begun, resumed) = read_records(tmp_path / 'a-run', 'starts.jsonl')
  assert (begun['step'], resumed['step']) == (0, 7)
  assert text.count(f'{origin(begun)}.') == 1
  assert (tmp_path / 'docs' / 'pictures' / 'recall.png').is_file()


def test_what_a_guess_among_the_answers_of_a_row_reaches():
  assert recall_page.guess('copying', 64) == pytest.approx(np.mean(1 / np.arange(1, 9)))
  two, more = (recall_page.guess('mqar', n) for n in (32, 128))
  # Two pairs of 16 values: one of two is right, or both where the values are the same.
  assert two == pytest.approx(0.5 + 0.5 / 16, abs=0.01)
  assert 1 / 5 < more < two
  assert recall_page.guess('induction', 64) is None


def test_what_is_no_sweep_of_recall_is_said(tmp_path):
  with pytest.raises(SystemExit, match='workdir of --job=sweep'):
    recall_page.main([str(tmp_path), 'page.md'])
  rows = [{'state': 'finished', 'labels': {'mixer': 'sgn', 'context': '64'}}]
  (tmp_path / 'sweep.json').write_text(json.dumps(rows))
  with pytest.raises(SystemExit, match='axes mixer, context'):
    recall_page.main([str(tmp_path), 'page.md'])
