"""A checkpoint moves between meshes: from 8 devices to 2, to 1 and back to 8."""

import jax
import numpy as np
import pytest

from sgnjax.data import tokenizers
from sgnjax.models import build
from sgnjax.parallel.mesh import batch_sharding, make_mesh
from sgnjax.train import state as state_lib
from sgnjax.train.checkpoint import Checkpoints
from sgnjax.train.optim import make_optimiser
from sgnjax.train.step import make_train_step
from tests.parallel.runs import sized

LEGS = ((2, 2, 2, 1), (1, 1, 1, 2), (1, 1, 1, 1), (1, 8, 1, 1))
STEPS = 5


def config_of(mesh):
  config = sized(mesh)
  config.model.mixer = 'sgn'
  return config.lock()


def batch_of(step, config):
  shape = (config.train.batch, config.model.context + 1)
  window_BL = np.random.default_rng(step).integers(0, 61, shape).astype(np.int32)
  return {'tokens': window_BL[:, :-1], 'targets': window_BL[:, 1:]}


def leg(mesh, first, state):
  """Five steps from `first` on; `state(abstract)` gives where they begin."""
  config = config_of(mesh)
  devices, model, optimiser = make_mesh(config), build(config), make_optimiser(config)
  here = state(state_lib.abstract(config, model, optimiser, devices))
  if here is None:
    here = state_lib.create(config, model, optimiser, devices)
  step, losses = make_train_step(model, optimiser, config, devices), []
  for number in range(first, first + STEPS):
    batch = jax.device_put(batch_of(number, config), batch_sharding(devices))
    here, metrics = step(here, batch)
    losses.append(float(metrics['loss']))
  return here, losses


@pytest.mark.slow
@pytest.mark.usefixtures('float64')
def test_eight_two_one_and_eight_devices_go_on_as_one_run(tmp_path):
  tokenizer = tokenizers.make('char', 'abc')
  moving = []
  for number, mesh in enumerate(LEGS):
    with_these = Checkpoints(tmp_path, config_of(mesh), tokenizer)
    resumes = (lambda abstract, c=with_these: c.restore(abstract).state) if number else None
    state, losses = leg(mesh, number * STEPS, resumes or (lambda _: None))
    with_these.save(state, {'leg': number})
    with_these.close()
    moving += losses
  straight, kept = [], None
  for number in range(len(LEGS)):
    kept, losses = leg(LEGS[0], number * STEPS, lambda _, kept=kept: kept)
    straight += losses
  # Adam makes much of the rounding in gradients near 0, and twenty steps add it up.
  np.testing.assert_allclose(moving, straight, rtol=0, atol=1e-8)
