"""What a device holds by formula, against arrays that are there and programs that are compiled."""

import jax
import pytest
from jax.sharding import AbstractMesh

from configs import base
from sgnjax.analysis import layout, targets
from sgnjax.errors import UserError
from sgnjax.models import build
from sgnjax.parallel.mesh import make_mesh
from sgnjax.train import state as state_lib
from sgnjax.train.optim import make_optimiser


def tiny(batch=8, **mesh):
  c = base.get_config().unlock()
  c.model.mixer, c.model.layers, c.model.width = 'sgn', 2, 32
  c.model.context, c.model.vocab = 16, 61
  c.train.batch = batch
  for axis, n in mesh.items():
    c.mesh[axis] = n
  return c.lock()


def bytes_on_a_device(tree):
  return sum(a.addressable_shards[0].data.nbytes for a in jax.tree.leaves(tree))


MIXED = {'data': 1, 'fsdp': 2, 'tensor': 2, 'sequence': 2}


@pytest.fixture(scope='module')
def laid():
  config = tiny(**MIXED)
  return layout.Layout(config, build(config), per_example=1000)


@pytest.mark.parametrize('ema', [0.0, 0.9])
def test_the_formula_holds_of_real_arrays(laid, ema):
  config = laid.config.copy_and_resolve_references()
  config.train.ema = ema
  laid = layout.Layout(config, build(config), per_example=1000)
  mesh = make_mesh(config)
  state = state_lib.create(config, build(config), make_optimiser(config), mesh)
  found = laid.memory(layout.mesh_of(config, 8))
  assert found.parameters == bytes_on_a_device(state.params)
  assert found.optimiser == bytes_on_a_device(state.opt_state)
  assert found.activations == 8 // 2 * 1000 // 2
  assert found.average == bytes_on_a_device(state.average)
  assert found.total == sum(
    (found.parameters, found.gradients, found.optimiser, found.activations, found.average)
  )
  parameters = {p.path: p for p in laid.parameters(layout.mesh_of(config, 8))}
  assert parameters['embedding'].axes == (('tensor', 'fsdp'), ())
  whole = sum(a.nbytes for a in jax.tree.leaves(state.params))
  assert found.parameters < found.gathered < whole


def test_a_compiled_program_holds_as_much(laid):
  found = layout.program(laid.config, targets.find('h100-8'))
  memory = laid.memory(layout.mesh_of(laid.config, 8))
  batch = 2 * 8 * 16 * 4 // 4  # tokens and targets, over rows and the length
  counters = 4
  assert found.arguments == pytest.approx(
    memory.parameters + memory.optimiser + batch + counters, rel=0.02
  )
  assert {c.kind for c in found.collectives} >= {'all-gather', 'all-to-all'}
  assert all(c.turns_known for c in found.collectives)
  assert found.refused is None


@pytest.mark.slow
def test_a_new_process_has_the_devices_that_this_one_lacks():
  found = layout.program(tiny(16, data=2, fsdp=8), targets.find('h100-16'))
  groups = {c.axes: c.group for c in found.collectives}
  assert groups['fsdp',] == 8
  assert groups['data',] == 2
  with pytest.raises(UserError, match=r'train\.batch=8 does not divide'):
    layout.program(tiny(data=16), targets.find('h100-16'))


def test_the_nearest_machines_that_hold_a_run():
  config = tiny(data=1, fsdp=2)
  laid = layout.Layout(config, build(config), per_example=10**6)
  target = targets.find('h100-2')
  of_four = laid.memory(layout.mesh_of(tiny(data=1, fsdp=4), 4)).total
  found = laid.nearest(target, of_four)
  assert set(found) == {'more'}
  other, mesh, memory = found['more']
  assert (other.name, dict(mesh.shape)['fsdp'], memory.total) == ('h100-4', 4, of_four)
  assert set(laid.nearest(target, 10**9)) == {'fewer', 'more'}
  assert laid.nearest(target, 1) == {}


def test_idle_devices_are_said():
  with pytest.raises(UserError, match='leaves 6 of the 8 devices'):
    layout.whole_mesh(tiny(data=2), targets.find('h100-8'))
  whole = layout.whole_mesh(tiny(), targets.find('h100-8'))
  assert isinstance(whole, AbstractMesh)
  assert dict(whole.shape)['data'] == 8
