"""A mesh changes where numbers are computed, and nothing else."""

import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sgnjax.models import build
from sgnjax.parallel.mesh import batch_sharding, make_mesh
from sgnjax.train import state as state_lib
from sgnjax.train.optim import make_optimiser
from sgnjax.train.step import make_train_step
from tests.parallel.runs import ONE, furthest, run, small, tokens

MESHES = ((8, 1, 1, 1), (1, 8, 1, 1), (2, 2, 2, 1), (2, 1, 2, 2), (1, 1, 1, 8))
QUICK = ('sgn', 'fourier_qk', 'chiar-capacity-routed', 'ega', 'softmax')
# Every mixer in each of its forms; `python -m tests.parallel` takes them all on all meshes.
EVERY = (
  *('sgn', 'sgn-plain', 'sgn-masked', 'sgn-adaptive', 'sgn-resolutions', 'sgn-published'),
  *('sgn-bidirectional', 'sgn-bidirectional-2d', 'fourier_qk', 'fourier_qk-analytic'),
  *('fourier_qk-taps-morlet', 'fourier_qk-published', 'fourier_qk-bidirectional'),
  *('chiar', 'chiar-v1-soft', 'chiar-random', 'chiar-capacity-all', 'chiar-capacity-routed'),
  *('chiar-published', 'ega', 'ega-prefix', 'ega-conv', 'ega-packet', 'ega-published'),
  *('ega_fourier_qk', 'softmax', 'softmax-rope', 'softmax-alibi', 'linear', 'performer-rope'),
  *('haar', 'fnet', 'uniform', 'identity'),
)
CLOSE = 1e-9


def cases():
  whole = os.environ.get('SGNJAX_MESHES') == 'all'
  for name in EVERY if whole else QUICK:
    for mesh in MESHES if whole else MESHES[2:4]:
      mark = pytest.mark.xdist_group(f'mesh {name}')
      yield pytest.param(name, mesh, id=f'{name}-{"x".join(map(str, mesh))}', marks=mark)


@pytest.mark.slow
@pytest.mark.parametrize(('name', 'mesh'), list(cases()))
def test_losses_and_gradients_are_those_of_one_device(name, mesh, record_property):
  alone, sharded = run(name, ONE), run(name, mesh)
  # The last bit may differ: vector and scalar code of a compiler round apart.
  for a, b in zip(jax.tree.leaves(alone.start), jax.tree.leaves(sharded.start), strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-15, atol=1e-16)
  off = {
    'losses': max(abs(a - b) for a, b in zip(alone.losses, sharded.losses, strict=True)),
    'gradients': furthest(alone.moments, sharded.moments),
    'parameters': furthest(alone.end, sharded.end),
  }
  record_property('cell', f'{max(off.values()):.0e}')
  # Adam divides rounding by rounding where a gradient is 0 (a bias under a z-norm): 1e-8 there.
  assert max(off['losses'], off['gradients'], off['parameters'] / 10) < CLOSE, off
  assert alone.losses[-1] < alone.losses[0]


@pytest.mark.slow
@pytest.mark.parametrize('changes', [{'model.remat': 'dots'}, {'model.remat': 'all'}])
@pytest.mark.xdist_group('mesh sgn')
def test_what_is_computed_again_is_the_same(changes):
  again, kept = run('sgn', MESHES[2], tuple(changes.items())), run('sgn', MESHES[2])
  assert furthest(again.moments, kept.moments) < CLOSE
  assert furthest(again.end, kept.end) < CLOSE


@pytest.mark.slow
@pytest.mark.xdist_group('mesh sgn')
def test_microbatches_on_a_mesh_add_up_to_the_batch():
  still = (('model.dropout', 0.0),)
  whole = run('sgn', MESHES[2], still)
  parts = run('sgn', MESHES[2], (*still, ('train.accumulation', 2)))
  assert furthest(whole.moments, parts.moments) < CLOSE
  assert furthest(whole.end, parts.end) < CLOSE


@pytest.mark.slow
def test_bfloat16_computes_and_float32_is_kept():
  """And the state given is given away: a step holds one copy of it."""
  losses = []
  for mesh in (ONE, MESHES[2]):
    config = small('chiar', mesh, {'train.accumulation': 2}, dtype='bfloat16')
    devices, model, optimiser = make_mesh(config), build(config), make_optimiser(config)
    state = given = state_lib.create(config, model, optimiser, devices)
    step = make_train_step(model, optimiser, config, devices)
    batch = jax.device_put(tokens(config), batch_sharding(devices))
    for _ in range(3):
      state, metrics = step(state, batch)
    losses.append(float(metrics['loss']))
    assert {a.dtype for a in jax.tree.leaves(state.params)} == {jnp.dtype('float32')}
    assert all(a.is_deleted() for a in jax.tree.leaves(given.params))
  assert abs(losses[0] - losses[1]) < 0.01
