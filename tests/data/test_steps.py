"""Steps: the same batches with threads and with processes, resumed anywhere, changed by row."""

import json

import numpy as np
import pytest

from configs import base
from sgnjax.data import pipeline, steps
from sgnjax.errors import UserError
from tests.data.batches import assert_same, take

TEXT = ''.join(f'{i} words in document {i}\n' for i in range(302))


def config(tmp_path, **keys):
  tmp_path.mkdir(exist_ok=True)
  (tmp_path / 'a.txt').write_text(TEXT)
  c = base.get_config()
  c.model.context, c.train.batch = 8, 5
  c.data.name, c.data.path, c.data.tokenizer = 'text', str(tmp_path / 'a.txt'), 'word'
  c.data.cache_dir = str(tmp_path / 'cache')
  c.data.stride = 30
  for key, value in keys.items():
    c.data[key] = value
  return c


@pytest.mark.slow
def test_workers_read_what_threads_read_and_resume(tmp_path):
  """From inside an epoch, over its exact end, and from processes to a thread."""
  c = config(tmp_path)
  corpus = pipeline.load(c)
  epoch = len(pipeline.shuffled(c, corpus).rows)
  assert epoch % 5 == 0  # an epoch ends exactly with a step
  end = epoch // 5
  straight = take(pipeline.train_iterator(c, corpus), 2 * end)
  c.data.workers = 2
  iterator = pipeline.train_iterator(c, corpus)
  iterator.set_state({'next_index': 3})
  assert_same(take(iterator, end - 3), straight[3:end])
  state = json.loads(json.dumps(iterator.get_state()))
  assert state == {'next_index': end}
  assert_same(take(iterator, 2), straight[end : end + 2])
  iterator.close()
  c.data.workers = 0
  resumed = pipeline.train_iterator(c, corpus)
  resumed.set_state(state)
  assert_same(take(resumed, end), straight[end:])


@pytest.mark.parametrize('threads', [0, 2])
@pytest.mark.parametrize('packing', [False, True])
def test_resume_at_every_place_of_an_epoch(tmp_path, threads, packing):
  c = config(tmp_path, threads=threads, packing=packing, stride=8)
  corpus = pipeline.load(c)
  c.train.batch = 7
  end = len(pipeline.shuffled(c, corpus).rows) // 7
  straight = take(pipeline.train_iterator(c, corpus), 2 * end + 8)
  for at in (0, 1, end - 1, end, end + 1, 2 * end):
    resumed = pipeline.train_iterator(c, pipeline.load(c))
    resumed.set_state({'next_index': at})
    assert_same(take(resumed, 8), straight[at : at + 8])


def test_an_example_is_changed_by_seed_step_and_row_alone(tmp_path):
  c = config(tmp_path)
  corpus = pipeline.load(c)

  def add_noise(example, generator):
    return {'tokens': example['tokens'], 'noise': generator.random(3, np.float32)}

  whole = take(pipeline.train_iterator(c, corpus, augment=add_noise), 6)
  assert whole[0]['noise'].shape == (5, 3)
  noise = np.concatenate([batch['noise'] for batch in whole])
  assert len(np.unique(noise)) == noise.size
  part = take(pipeline.train_iterator(c, corpus, slice(2, 4), augment=add_noise), 6)
  assert_same(part, [{k: v[2:4] for k, v in batch.items()} for batch in whole])
  c.data.threads = 0
  assert_same(take(pipeline.train_iterator(c, corpus, augment=add_noise), 6), whole)
  c.seed = 1
  other = take(pipeline.train_iterator(c, corpus, augment=add_noise), 1)
  assert not np.isin(other[0]['noise'], noise).any()


def test_packed_training_has_what_models_take(tmp_path):
  for name in ('b', 'c', 'd'):
    tmp_path.mkdir(exist_ok=True)
    (tmp_path / f'{name}.txt').write_text(f'{name} ' * 9 + '\n')
  c = config(tmp_path, packing=True, validation=0.3)
  c.data.path = str(tmp_path)
  corpus = pipeline.load(c)
  assert len(corpus.ends['train']) > 0
  (batch,) = take(pipeline.train_iterator(c, corpus), 1)
  assert set(batch) == {'tokens', 'targets', 'mask', 'segments', 'positions'}
  scored = sum((b['targets'] != -1).sum() for b in pipeline.eval_windows(c, corpus, 'validation'))
  ends = corpus.ends['validation']
  assert scored == len(corpus.splits['validation']) - len(ends)
  drawn = list(pipeline.random_batches(c, corpus, 'validation', 2, 0))
  assert drawn[0]['segments'].shape == (5, 8)


@pytest.mark.parametrize(('keys', 'said'), [
  ({'workers': -1}, r'data\.workers=-1'),
  ({'prefetch': 0}, r'data\.prefetch=0'),
  ({'task': 'lmm'}, "did you mean 'lm'"),
  ({'task': 'classify'}, 'needs labels'),
  ({'task': 'classify', 'packing': True}, r'data\.packing is of data\.task=lm'),
])  # fmt: skip
def test_wrong_keys(tmp_path, keys, said):
  with pytest.raises(UserError, match=said):
    pipeline.train_iterator(config(tmp_path, **keys), pipeline.load(config(tmp_path, **keys)))


def test_rows_of_a_slice():
  assert list(steps.part(None, 4)) == [0, 1, 2, 3]
  assert list(steps.part(slice(2, 4), 4)) == [2, 3]
