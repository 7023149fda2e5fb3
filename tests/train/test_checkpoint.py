import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sgnjax.data import tokenizers
from sgnjax.errors import UserError
from sgnjax.models import build
from sgnjax.parallel.mesh import make_mesh
from sgnjax.train import state as state_lib
from sgnjax.train.checkpoint import Checkpoints, committed, folder, load_params
from sgnjax.train.optim import make_optimiser

from .tiny import TEXT, tiny

TOKENIZER = tokenizers.make('char', TEXT)


class Setting:
  """A config with its state at step 0, on some devices."""

  def __init__(self, folder, devices=1, **changes):
    self.config = tiny(folder, **changes)
    self.mesh = make_mesh(self.config, jax.devices()[:devices])
    model = build(self.config, vocab=TOKENIZER.vocab_size)
    optimiser = make_optimiser(self.config)
    self.state = state_lib.create(self.config, model, optimiser, self.mesh)
    self.abstract = state_lib.abstract(self.config, model, optimiser, self.mesh)

  def open(self, workdir):
    return Checkpoints(workdir, self.config, TOKENIZER)

  def at(self, step):
    """A state of that step, no two alike."""
    moved = jax.tree.map(lambda a: a + jnp.asarray(step, a.dtype), self.state)
    return moved.replace(step=jnp.asarray(step, jnp.int32))


@pytest.fixture(scope='module')
def one(tmp_path_factory):
  return Setting(tmp_path_factory.mktemp('text'))


def assert_equal(a, b):
  jax.tree.map(np.testing.assert_array_equal, jax.device_get(a), jax.device_get(b))


def test_all_comes_back_bit_for_bit(one, tmp_path):
  data = {'iterator': {'next_index': 7}, 'pending': [{'loss': 0.1 + 0.2, 'tokens': 3}]}
  checkpoints = one.open(tmp_path)
  checkpoints.save(one.at(3), data)
  checkpoints.close()
  checkpoints = one.open(tmp_path)
  restored = checkpoints.restore(one.abstract)
  checkpoints.close()
  assert_equal(restored.state, one.at(3))
  assert restored.data == data
  assert jax.tree.structure(restored.state) == jax.tree.structure(one.state)


def test_the_newest_and_the_best_are_kept(one, tmp_path):
  checkpoints = one.open(tmp_path)  # train.keep is 2
  for step, loss in ((1, 3.0), (2, 1.0), (3, 2.0), (4, None), (5, 2.5), (6, None)):
    checkpoints.save(one.at(step), {}, loss)
  checkpoints.wait()
  assert committed(tmp_path) == [2, 5, 6]
  assert (checkpoints.best, checkpoints.latest) == (2, 6)
  checkpoints.close()
  _, params, tokenizer, step = load_params(tmp_path)
  assert step == 2
  assert_equal(params, one.at(2).params)
  assert tokenizer.to_json() == TOKENIZER.to_json()
  assert load_params(tmp_path, 'latest')[3] == 6
  assert load_params(tmp_path, 5)[3] == 5


@pytest.mark.parametrize('damage', ['empty', 'no metadata', 'not committed', 'no state'])
def test_a_half_written_step_is_none(one, tmp_path, damage):
  checkpoints = one.open(tmp_path)
  for step in (1, 2):
    checkpoints.save(one.at(step), {})
  checkpoints.close()
  half = folder(tmp_path) / '2'
  if damage == 'empty':
    shutil.rmtree(half)
    half.mkdir()
  elif damage == 'no metadata':
    (half / '_CHECKPOINT_METADATA').unlink()
  elif damage == 'not committed':
    metadata = json.loads((half / '_CHECKPOINT_METADATA').read_text())
    metadata['commit_timestamp_nsecs'] = None
    (half / '_CHECKPOINT_METADATA').write_text(json.dumps(metadata))
  else:
    shutil.rmtree(half / 'state')
  assert committed(tmp_path) == [1]
  assert load_params(tmp_path, 'latest')[3] == 1
  checkpoints = one.open(tmp_path)
  assert checkpoints.latest == 1
  assert_equal(checkpoints.restore(one.abstract).state, one.at(1))
  checkpoints.save(one.at(2), {})  # and the place is free again
  checkpoints.close()
  assert committed(tmp_path) == [1, 2]


def test_weights_without_the_optimiser(one, tmp_path):
  checkpoints = one.open(tmp_path)
  checkpoints.save(one.at(1), {})
  checkpoints.close()
  for path in (folder(tmp_path) / '1' / 'state').iterdir():
    shutil.rmtree(path) if path.is_dir() else path.unlink()
  config, params, _, _ = load_params(tmp_path)
  assert_equal(params, one.at(1).params)
  assert config.to_dict() == one.config.to_dict()


@pytest.mark.slow
def test_saved_on_eight_devices_restored_on_two_and_one(tmp_path):
  eight = Setting(tmp_path, devices=8)
  checkpoints = eight.open(tmp_path)
  checkpoints.save(eight.at(4), {})
  checkpoints.close()
  for devices in (2, 1):
    fewer = Setting(tmp_path, devices=devices)
    checkpoints = fewer.open(tmp_path)
    state = checkpoints.restore(fewer.abstract).state
    checkpoints.close()
    assert_equal(state, eight.at(4))
    assert state.params['embedding'].sharding.device_set == set(jax.devices()[:devices])
  assert load_params(tmp_path)[1]['embedding'].devices() == {jax.devices()[0]}


def test_no_checkpoint(tmp_path):
  with pytest.raises(UserError, match='holds no checkpoint; train first'):
    load_params(tmp_path / 'nowhere')


def test_no_such_checkpoint(one, tmp_path):
  checkpoints = one.open(tmp_path)
  checkpoints.save(one.at(1), {})
  checkpoints.close()
  with pytest.raises(UserError, match=r'no checkpoint 5; choose best, latest or \[1\]'):
    load_params(tmp_path, 5)


def test_keeping_none_is_refused(tmp_path):
  with pytest.raises(UserError, match=r'train\.keep=0: expected at least 1'):
    Checkpoints(tmp_path, tiny(tmp_path, train__keep=0), TOKENIZER)
