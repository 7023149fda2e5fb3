"""Mixtures: what is drawn is a function of seed and step, each set's epochs are whole."""

import json
from collections import Counter

import numpy as np
import pytest

from configs import base
from sgnjax.data import mixtures, pipeline, sets
from sgnjax.data.sets import Set
from sgnjax.errors import UserError
from tests.data.batches import assert_same, take


def test_choices_are_of_seed_and_step():
  one = mixtures.Choices(3, (1.0, 1.0, 2.0), 0.25)
  steps = list(range(9000))
  found = [one.at(step) for step in steps]
  backwards = mixtures.Choices(3, (1.0, 1.0, 2.0), 0.25)
  for step in (8999, 4096, 4095, 0, 5000):
    assert backwards.at(step) == found[step]
  counts = Counter(choice[0] for choice in found if choice)
  assert sum(counts.values()) / 9000 == pytest.approx(0.25, abs=0.02)
  assert counts[2] / sum(counts.values()) == pytest.approx(0.5, abs=0.04)
  for which in range(3):  # how often each was drawn before counts up by one
    numbers = [choice[1] for choice in found if choice and choice[0] == which]
    assert numbers == list(range(len(numbers)))
  other = mixtures.Choices(4, (1.0, 1.0, 2.0), 0.25)
  assert [other.at(step) for step in steps[:500]] != found[:500]


@pytest.mark.parametrize(('rate', 'share'), [(0.0, 0.0), (1.0, 1.0)])
def test_rates_at_the_ends(rate, share):
  choices = mixtures.Choices(0, (1.0,), rate)
  assert np.mean([choices.at(step) is not None for step in range(500)]) == share


@pytest.fixture
def config(tmp_path, monkeypatch):
  """A main text, another text and a set with labels, all of words."""
  (tmp_path / 'main.txt').write_text('a b c d e f g \n' * 40)
  for split in ('train', 'valid', 'test'):
    (tmp_path / f'ptb.{split}.txt').write_text('b c d \n' * 40)
  for split in ('train', 'val', 'test'):
    lines = ''.join(f'( ( [MAX {i % 9} ) {i % 7} ] )\t{i % 10}\n' for i in range(30))
    (tmp_path / f'basic_{split}.tsv').write_text('Source\tTarget\n' + lines)
  c = base.get_config()
  c.model.context, c.train.batch = 8, 5
  c.data.name, c.data.path, c.data.tokenizer = 'text', str(tmp_path / 'main.txt'), 'word'
  c.data.mixture = (('ptb', 1.0, str(tmp_path)), ('list_ops', 1.0, str(tmp_path)))
  c.data.mixture_rate = 0.5
  return c


def test_each_step_has_the_main_set_and_perhaps_another(config):
  corpora = mixtures.load(config)
  assert list(corpora) == ['text', 'ptb', 'list_ops']
  tokenizer = corpora['text'][1].tokenizer
  assert all(corpus.tokenizer is tokenizer for _, corpus in corpora.values())
  assert [own.data.task for own, _ in corpora.values()] == ['lm', 'lm', 'classify']
  steps = take(mixtures.train_iterator(config, corpora), 60)
  kinds = Counter(tuple(step) for step in steps)
  assert set(kinds) == {('text',), ('text', 'ptb'), ('text', 'list_ops')}
  for step in steps:
    assert set(step['text']) == {'tokens', 'targets'}
    if 'list_ops' in step:
      assert set(step['list_ops']) == {'tokens', 'mask', 'label'}
      assert step['list_ops']['label'].shape == (5,)
  # 30 examples in batches of 5: six draws are an epoch, each example once.
  drawn = [step['list_ops'] for step in steps if 'list_ops' in step]
  for epoch in (drawn[:6], drawn[6:12]):
    assert len(epoch) == 6
    labels = np.concatenate([batch['label'] for batch in epoch])
    assert Counter(labels.tolist()) == dict.fromkeys(range(10), 3)


@pytest.mark.parametrize('threads', [0, 3])
@pytest.mark.parametrize('at', [0, 1, 7, 24])
@pytest.mark.parametrize('before', [None, slice(3, 5)], ids=['alone', 'second of two'])
def test_resume_inside_a_mixture(config, threads, at, before):
  config.data.threads = threads
  corpora = mixtures.load(config)
  straight = take(mixtures.train_iterator(config, corpora), at + 20)
  stopped = mixtures.train_iterator(config, corpora, before)
  take(stopped, at)
  state = json.loads(json.dumps(stopped.get_state()))
  resumed = mixtures.train_iterator(config, mixtures.load(config))
  resumed.set_state(state)
  assert_same(take(resumed, 20), straight[at:])


def test_rows_of_a_mixture(config):
  corpora = mixtures.load(config)
  whole = take(mixtures.train_iterator(config, corpora), 20)
  part = take(mixtures.train_iterator(config, corpora, slice(1, 3)), 20)
  cut = [{t: {k: v[1:3] for k, v in b.items()} for t, b in step.items()} for step in whole]
  assert_same(part, cut)


@pytest.mark.parametrize(('mixture', 'rate', 'said'), [
  (('ptb',), 0.5, r"'ptb' is not \(name, weight\)"),
  ((('ptb', 0.0),), 0.5, 'is not'),
  ((('ptb', -1.0),), 0.5, 'is not'),
  ((('pbt', 1.0),), 0.5, "did you mean 'ptb'"),
  ((('text', 1.0, 'x'),), 0.5, 'text is there twice'),
  ((), 1.5, r'data\.mixture_rate=1\.5: expected 0 to 1'),
])  # fmt: skip
def test_wrong_mixtures(config, mixture, rate, said):
  config.data.mixture, config.data.mixture_rate = mixture, rate
  with pytest.raises(UserError, match=said):
    mixtures.train_iterator(config, mixtures.load(config))


def test_a_training_of_one_set_refuses_a_mixture(config):
  with pytest.raises(UserError, match='this training reads one data set'):
    pipeline.train_iterator(config, pipeline.load(config))


def test_every_set_with_classes_says_how_many():
  for name, found in sets.SETS.items():
    assert isinstance(found, Set), name
    assert (found.classes is not None) == (found.kind == 'class')
    assert (found.label is None) == (found.kind is None)
    assert 'train' in found.splits
