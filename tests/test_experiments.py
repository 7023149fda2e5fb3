"""Every config at its full size, and two training steps of its twin on text of its own kind."""

import itertools
import json
import math
from pathlib import Path

import jax
import numpy as np
import pytest

from configs import base
from sgnjax import config as config_lib
from sgnjax.analysis import flops
from sgnjax.data import pipeline, prepared
from sgnjax.jobs import plan
from sgnjax.models import build, count, example
from sgnjax.models.shrink import shrink
from sgnjax.parallel.mesh import make_mesh
from sgnjax.train import state as state_lib
from sgnjax.train import tasks
from sgnjax.train.evaluation import check_eval, place
from sgnjax.train.model import model_of
from sgnjax.train.optim import make_optimiser
from sgnjax.train.step import make_train_step

from .experiments import MockedBuilder, Places

CONFIGS = sorted(
  path for path in (Path(__file__).parent.parent / 'configs').glob('*.py') if path.stem != 'base'
)


@pytest.fixture(scope='module')
def places(tmp_path_factory):
  """Where the small set of each data set lies, and the corpora that were read from there."""
  return Places(tmp_path_factory.mktemp('sets'))


@pytest.fixture(scope='module')
def programs():
  """Initial state and compiled step of the twins so far: several experiments have the same."""
  return {}


@pytest.mark.parametrize('path', CONFIGS, ids=lambda path: path.stem)
def test_the_plan_of_a_config_at_its_full_size(path):
  config = config_lib.load(path)
  check_eval(config)
  model = build(config, vocab=config.model.vocab or plan.ASSUMED[config.data.tokenizer], classes=2)
  params = jax.eval_shape(model.init, jax.random.key(0), example(config))['params']
  parts = plan.components(model, params)
  assert sum(parts.values()) == count(model, params)
  tokens = config.train.batch * config.model.context
  costs = flops.costs(model, batch=config.train.batch, length=config.model.context)
  # Each weight of an FFN is in one product forward and in two backward.
  assert sum(cost.training for cost in costs.values()) > 6 * parts['ffn'] * tokens


def alike(twin):
  """Takes numbers out of a twin that make no other kind of program, so that many share one.

  What is left out is tested elsewhere: bfloat16, microbatches, what is computed again.
  """
  twin.model.dtype, twin.model.remat, twin.train.accumulation = 'float32', 'none', 1
  twin.model.scan_unroll = 1
  for key, value in base.get_config().optim.items():
    twin.optim[key] = 1 if key == 'warmup' else value
  chiar = twin.model.chiar
  chiar.tau, chiar.calibrated = round(chiar.tau, 2), None
  chiar.tau_low = chiar.tau_low if chiar.rbf else 0.0


def program(twin, programs):
  """The initial state of a twin, kept apart from what a step consumes, and its step."""
  t = twin.train
  sizes = t.steps, t.batch, t.accumulation, t.label_smoothing, twin.seed
  key = json.dumps([twin.data.task, twin.model.to_dict(), sizes], sort_keys=True)
  if key not in programs:
    mesh = make_mesh(twin, jax.devices()[:1])
    model, optimiser = build(twin), make_optimiser(twin)
    state = state_lib.create(twin, model, optimiser, mesh)
    where = jax.tree.map(lambda a: a.sharding, state)
    step = make_train_step(model, optimiser, twin, mesh)
    programs[key] = mesh, jax.device_get(state), where, step
  mesh, state, where, step = programs[key]
  return mesh, jax.device_put(state, where), step


@pytest.mark.slow
@pytest.mark.parametrize(
  'path',
  [
    pytest.param(p, id=p.stem, marks=pytest.mark.xdist_group(p.stem.split('_')[0])) for p in CONFIGS
  ],
)
def test_two_steps_of_the_twin(path, places, programs, monkeypatch):
  monkeypatch.setattr(prepared, 'ready', MockedBuilder)
  config, corpus = places.twin(config_lib.load(path))
  twin = shrink(config, vocab=50257, width=16, context=config.model.context)
  twin = twin.copy_and_resolve_references().unlock()
  outputs = twin.model.vocab
  if config.data.task == 'classify':
    outputs = twin.model.classes = next(n for n in (2, 100, 1000) if n >= corpus.classes)
  alike(twin)
  mesh, state, step = program(twin, programs)
  losses = []
  for batch in itertools.islice(pipeline.train_iterator(twin, corpus), 2):
    state, metrics = step(state, place(batch, mesh))
    losses.append(float(metrics['loss']))
    assert metrics['grad_norm'] > 0
  assert int(state.step) == 2
  np.testing.assert_allclose(losses[0], math.log(outputs), atol=0.5)
  assert np.isfinite(losses[1])


def test_a_step_of_the_mixture(places):
  """Each of its sets beside the main one, traced; training is tested elsewhere."""
  config = places.mixture(config_lib.load('configs/chiar_mixed.py'))
  twin = shrink(config, vocab=50257, width=16, context=32).copy_and_resolve_references().unlock()
  alike(twin)
  twin.model.chiar.calibrated = None
  sets = tasks.load(twin)
  assert list(sets) == ['wikitext103', 'wikitext2', 'imdb_reviews', 'list_ops']
  mesh = make_mesh(twin, jax.devices()[:1])
  model, optimiser = model_of(sets), make_optimiser(twin)
  state = state_lib.abstract(twin, model, optimiser, mesh)
  step = make_train_step(model, optimiser, twin, mesh, sets)
  drawn = {}
  for batch in itertools.islice(tasks.batches(twin, sets, slice(0, 2)), 30):
    drawn |= batch
  assert drawn.keys() == sets.keys()
  metrics = jax.eval_shape(step, state, drawn)[1]
  assert {f'{name}/accuracy' for name in ('imdb_reviews', 'list_ops')} < metrics.keys()
  assert {'loss', 'wikitext2/loss'} < metrics.keys()
