"""Where parameters lie: every one has a rule, and what cannot be is said."""

import jax
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh
from jax.sharding import PartitionSpec as P

from configs import base
from sgnjax.errors import UserError
from sgnjax.models import build
from sgnjax.models.variants import VARIANTS, variant
from sgnjax.parallel import rules
from sgnjax.parallel.mesh import AXES, make_mesh
from sgnjax.train.optim import make_optimiser
from sgnjax.train.state import abstract

EIGHT = (1, 2, 2, 2)


def config_of(name='softmax', mesh=EIGHT, **changes):
  config = base.get_config().unlock()
  config.model.layers, config.model.width, config.model.context = 3, 32, 16
  config.model.vocab = 61
  config = variant(config, name).unlock()
  config.update_from_flattened_dict(dict(zip([f'mesh.{a}' for a in AXES], mesh, strict=True)))
  config.update_from_flattened_dict(changes)
  return config.lock()


def mesh_of(shape=EIGHT):
  return Mesh(np.asarray(jax.devices()).reshape(shape), AXES, axis_types=(AxisType.Auto,) * 4)


def shapes_of(config):
  tokens_BL = jax.ShapeDtypeStruct((1, config.model.context), 'int32')
  return jax.eval_shape(build(config).init, jax.random.key(0), tokens_BL)['params']


@pytest.mark.parametrize('name', VARIANTS)
def test_every_parameter_has_a_place(name):
  found = rules.shardings(shapes_of(config_of(name)), mesh_of())
  for path, where in jax.tree_util.tree_leaves_with_path(found):
    if path[-1].key == 'kernel' and path[-2].key in ('q', 'k', 'v', 'up'):
      assert where.spec == P(None, 'fsdp', 'tensor'), path
  assert found['embedding'].spec == P(('tensor', 'fsdp'), None)


def test_gates_lie_where_the_length_is_worked_on():
  assert rules.spec('stack/group_0/0_sgn/mixer/gate', (3, 17, 32), mesh_of()) == P(
    None, None, ('tensor', 'sequence', 'fsdp')
  )


def test_moments_lie_beside_their_parameters():
  config = config_of()
  state = abstract(config, build(config), make_optimiser(config), make_mesh(config))
  params = jax.tree.leaves(state.params)
  moments = [a for a in jax.tree.leaves(state.opt_state) if a.ndim]
  assert len(moments) == 2 * len(params)
  assert [a.sharding for a in moments] == [a.sharding for a in params] * 2


@pytest.mark.parametrize(
  ('call', 'said'),
  [
    (
      lambda: rules.spec('stack/group_0/0_own/mixer/secret', (3, 4), mesh_of()),
      "parameter 'stack/group_0/0_own/mixer/secret' has no rule",
    ),
    (
      lambda: rules.spec('embedding', (63, 32), mesh_of()),
      r"\(63, 32\): its axis 'vocab' of 63 does not divide over mesh.tensor=2 x "
      'mesh.fsdp=2; 3 parts would do, or a size of 64',
    ),
    (
      lambda: rules.spec('a', (8, 8), mesh_of(), rules=(('a', ('heads', 'vocab')),)),
      "axes 'heads' and 'vocab' both go to mesh axis 'tensor'",
    ),
    (
      lambda: rules.spec('a', (8,), mesh_of(), rules=(('a', ('hats',)),)),
      "axis 'hats' has no mesh axes",
    ),
    (
      lambda: rules.spec('embedding', (64,), mesh_of()),
      'has 1 axes, but its rule',
    ),
  ],
)
def test_what_cannot_be_is_said(call, said):
  with pytest.raises(UserError, match=said):
    call()


@pytest.mark.parametrize(
  ('mesh', 'changes', 'said'),
  [
    ((3, 1, 1, 1), {}, None),
    ((-1, 1, 1, 1), {}, None),
    ((-1, 1, 2, 2), {}, None),
    ((16, 1, 1, 1), {}, 'data 16 x fsdp 1 x tensor 1 x sequence 1 does not fit 8 devices'),
    ((-1, 3, 1, 1), {}, 'does not fit 8 devices'),
    ((-1, -1, 1, 1), {}, 'at most one -1'),
    ((0, 1, 1, 1), {}, 'expected sizes from 1'),
    ((1, 1, 8, 1), {}, 'model.heads=4 does not divide over mesh.tensor=8; model.heads=8'),
    ((1, 1, 1, 8), {'model.context': 20}, 'model.context=16 or 24 would do'),
    ((1, 1, 4, 1), {'model.vocab_multiple': 6}, 'model.vocab_multiple=4 or 8 would do'),
  ],
)
def test_meshes(mesh, changes, said):
  config = config_of(mesh=mesh, **changes)
  if said is None:
    assert make_mesh(config).size in (3, 8)
    return
  with pytest.raises(UserError, match=said):
    make_mesh(config)


def test_channels_that_do_not_divide_are_refused():
  config = config_of('sgn', (1, 1, 1, 8), **{'model.width': 36})
  with pytest.raises(UserError, match=r'of 36 does not divide over mesh\.sequence=8'):
    rules.shardings(shapes_of(config), mesh_of((1, 1, 1, 8)))
