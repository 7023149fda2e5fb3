"""Several data sets in one training: whose loss counts how much, and that a run goes on exactly."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from sgnjax.errors import UserError
from sgnjax.jobs import eval as eval_job
from sgnjax.models import build
from sgnjax.parallel.mesh import make_mesh
from sgnjax.train import loop, objectives, tasks
from sgnjax.train import state as state_lib
from sgnjax.train.evaluation import place
from sgnjax.train.log import read_records
from sgnjax.train.step import make_train_step

from .tiny import tiny


def config_of(folder, **changes):
  rng = np.random.default_rng(0)
  for name in ('i', 'p'):
    (folder / name).mkdir(exist_ok=True)
  for split, count in (('train', 90), ('test', 11)):
    with (folder / 'i' / f'imdb.{split}.jsonl').open('w') as file:
      for _ in range(count):
        label = int(rng.random() < 0.4)
        text = 'the fox' if label else 'a lazy dog\n' * rng.integers(1, 3)
        file.write(json.dumps({'text': text, 'label': label}) + '\n')
  for part in ('train', 'valid'):
    (folder / 'p' / f'ptb.{part}.txt').write_text('five boxing wizards jump quickly ' * 9)
  keys = {
    'data__mixture': (('imdb_reviews', 2.0, str(folder / 'i')),),
    'data__mixture_rate': 0.7,
    'data__tokenizer': 'byte',
    'data__cache_dir': str(folder / 'cache'),
    'train__steps': 12,
    'train__log_every': 1,
    'train__eval_every': 12,
    'train__checkpoint_every': 12,
  }
  return tiny(folder, **keys | changes)


@pytest.fixture(scope='module')
def run(tmp_path_factory):
  """A straight run: its folder, config, and workdir."""
  folder = tmp_path_factory.mktemp('mixture')
  config = config_of(folder)
  loop.train(config, folder / 'w')
  return folder, config, folder / 'w'


@pytest.mark.slow
def test_each_set_has_its_records_and_the_main_one_counts(run, capsys):
  _, config, workdir = run
  records = read_records(workdir)
  train = [r for r in records if r['kind'] == 'train']
  seen = [r['imdb_reviews/loss'] for r in train if 'imdb_reviews/loss' in r]
  assert 0 < len(seen) < len(train)
  assert all(0 < loss < 2 for loss in seen)
  assert {(r['kind'], r.get('set')) for r in records if 'split' in r} == {
    ('evaluation', None),
    ('mixture', 'imdb_reviews'),
  }
  assert loop.train(config, workdir)['final']['kind'] == 'evaluation'
  assert eval_job.run(config, workdir) == 0  # of the main set
  assert 'perplexity' in capsys.readouterr().out


@pytest.mark.slow
def test_a_run_that_stops_in_the_middle_of_a_mixture_goes_on_exactly(run):
  folder, _, straight = run
  stopped = folder / 'stopped'
  for minutes in (1e-6, None):
    loop.train(config_of(folder, train__wall_minutes=minutes), stopped)
  timed = ('tokens_per_second', 'step_seconds')

  def numbers(workdir):
    return [{k: v for k, v in r.items() if k not in timed} for r in read_records(workdir)]

  assert numbers(stopped) == numbers(straight)


@pytest.mark.slow
@pytest.mark.parametrize(('other', 'accumulation'), [('imdb_reviews', 2), ('ptb', 1)])
def test_the_mean_losses_of_the_sets_are_added(run, other, accumulation):
  folder, _, _ = run
  mixture = tuple((name, 1.0, str(folder / name[0])) for name in ('imdb_reviews', 'ptb'))
  config = config_of(folder, train__accumulation=accumulation, data__mixture=mixture)
  sets = tasks.load(config)
  batches = next(b for b in tasks.batches(config, sets, slice(0, 8)) if other in b)
  model = build(config, vocab=256, heads=(('imdb_reviews', 2),))
  mesh, optimiser = make_mesh(config, jax.devices()[:1]), optax.sgd(1.0)
  state = state_lib.create(config, model, optimiser, mesh)
  params = jax.device_get(state.params)
  assert params['classifier_imdb_reviews']['kernel'].shape == (16, 2)

  def nats(params, text):
    logits = model.apply({'params': params}, text['tokens'])[0]
    total, count = objectives.cross_entropy(logits, jnp.asarray(text['targets']))
    return total / count

  def loss(params):
    own = batches[other]
    if other == 'ptb':
      return nats(params, batches['text']) + nats(params, own)
    call = {'mask_BL': own['mask'], 'head': other}
    answers = model.apply({'params': params}, own['tokens'], **call)[0]
    sums = objectives.label_sums(answers, {'label': jnp.asarray(own['label'])})
    return nats(params, batches['text']) + sums['loss_sum'] / sums['tokens']

  grads = jax.grad(loss)(params)
  step = make_train_step(model, optimiser, config, mesh, sets)
  state, metrics = step(state, {name: place(b, mesh) for name, b in batches.items()})
  jax.tree.map(
    lambda p, g, q: np.testing.assert_allclose(p - g, q, rtol=1e-5, atol=1e-6),
    params, grads, jax.device_get(state.params),
  )  # fmt: skip
  total = metrics['loss'] + metrics[f'{other}/loss']
  np.testing.assert_allclose(total, loss(params), rtol=1e-5)


def test_a_mixture_is_around_a_language_model(tmp_path):
  config = config_of(tmp_path, data__task='mlm', model__form='bidirectional')
  with pytest.raises(UserError, match=r'data\.mixture is of data\.task=lm'):
    loop.train(config, tmp_path / 'w')
  config = config_of(tmp_path, data__mixture=(('digits', 1.0),))
  with pytest.raises(UserError, match='digits holds images'):
    loop.train(config, tmp_path / 'w')
