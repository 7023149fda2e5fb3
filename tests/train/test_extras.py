"""Averaged weights, profiles of steps, and boards that may fail."""

import json
import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sgnjax.errors import UserError
from sgnjax.train import boards
from sgnjax.train.checkpoint import load_params
from sgnjax.train.loop import train
from sgnjax.train.state import averaged
from tests.train.tiny import tiny


def test_the_average_is_that_of_its_definition():
  average, rng = np.zeros(3), np.random.default_rng(0)
  ours = {'a': jnp.zeros(3)}
  for step in range(50):
    params = rng.standard_normal(3)
    rate = min(0.8, (1 + step) / (10 + step))
    average = rate * average + (1 - rate) * params
    ours = averaged(ours, {'a': jnp.asarray(params, jnp.float32)}, jnp.asarray(step), 0.8)
  np.testing.assert_allclose(ours['a'], average, atol=1e-5)
  assert averaged(None, params, 3, 0.8) is None


@pytest.mark.slow
def test_averaged_weights_are_saved_resumed_evaluated_and_used(tmp_path):
  changes = {'train__ema': 0.9, 'train__steps': 8, 'train__eval_every': 4}
  config = tiny(tmp_path, **changes)
  whole = train(config, tmp_path / 'whole')
  stopped = tiny(tmp_path, **changes, train__wall_minutes=1e-9)
  assert train(stopped, tmp_path / 'parts')['status'] == 'wall time'
  assert train(config, tmp_path / 'parts')['final']['loss'] == whole['final']['loss']
  _, used, _, step = load_params(tmp_path / 'whole', 'latest')
  folder = tmp_path / 'whole' / 'checkpoints' / str(step)
  assert {'params', 'average'} <= {p.name for p in folder.iterdir()}
  (folder / 'average').rename(tmp_path / 'average')  # what is read where there is none
  _, params, _, _ = load_params(tmp_path / 'whole', 'latest')
  steps = jax.tree.leaves(jax.tree.map(lambda a, b: jnp.abs(a - b).max(), used, params))
  assert 1e-6 < max(steps) < 0.1


@pytest.mark.parametrize('ema', [-0.1, 1.0])
def test_a_decay_that_is_none(tmp_path, ema):
  with pytest.raises(UserError, match=r'train\.ema='):
    train(tiny(tmp_path, train__ema=ema), tmp_path / 'run')


def test_chosen_steps_are_traced(tmp_path):
  if 'libtpu' in sys.modules:
    pytest.skip('JAX cannot trace in a process that has compiled for TPUs: it would crash')
  train(tiny(tmp_path, train__steps=4, profile_steps=(2, 3)), tmp_path / 'run')
  assert list((tmp_path / 'run' / 'profile').rglob('*.xplane.pb'))


@pytest.mark.parametrize('given', [(3,), (0, 2), (3, 2), (2, 21), (1.0, 2.0)])
def test_steps_that_cannot_be_traced(tmp_path, given):
  with pytest.raises(UserError, match='profile_steps='):
    train(tiny(tmp_path, profile_steps=given), tmp_path / 'run')


class Wandb(types.ModuleType):
  """A stand-in that keeps what it is told; `fails` names the call that raises."""

  def __init__(self, fails=None):
    super().__init__('wandb')
    self.fails, self.told, self.options, self.ended = fails, [], None, False

  Settings = staticmethod(dict)

  def init(self, **options):
    self.options = options
    self._may_fail('init')
    return self

  def log(self, values, step):
    self._may_fail('log')
    self.told.append((step, json.loads(json.dumps(values))))

  def finish(self):
    self._may_fail('finish')
    self.ended = True

  def _may_fail(self, call):
    if call == self.fails:
      raise ConnectionError(f'no network for {call}')


def board(monkeypatch, tmp_path, module, *, leaky=False):
  monkeypatch.setitem(sys.modules, 'wandb', module)
  monkeypatch.setenv('NETRC', str(tmp_path / 'none'))
  monkeypatch.delenv('WANDB_API_KEY', raising=False)
  monkeypatch.delenv('WANDB_MODE', raising=False)
  config = tiny(tmp_path, train__wandb='project')
  found = boards.WeightsAndBiases(config, tmp_path, leaky=leaky)
  for step in (1, 2):
    found.write(step, 'train', {'loss': 0.5})
  found.close()
  return found


def test_numbers_reach_weights_and_biases(capsys, monkeypatch, tmp_path):
  module = Wandb()
  board(monkeypatch, tmp_path, module, leaky=True)
  assert module.told == [(1, {'train/loss LEAKY': 0.5}), (2, {'train/loss LEAKY': 0.5})]
  assert module.ended
  assert module.options['mode'] == 'offline'
  assert module.options['project'] == 'project'
  assert module.options['config']['model.width'] == 16
  assert capsys.readouterr().out == ''


@pytest.mark.parametrize('fails', ['init', 'log', 'finish', 'import'])
def test_a_board_that_fails_is_left_out_with_one_line(capsys, monkeypatch, tmp_path, fails):
  board(monkeypatch, tmp_path, None if fails == 'import' else Wandb(fails))
  said = capsys.readouterr().out.strip()
  assert said.startswith('Weights & Biases could not')
  assert len(said.splitlines()) == 1
