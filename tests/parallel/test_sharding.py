"""A mesh changes where numbers are computed, and nothing else."""

import jax
import numpy as np
import pytest

from sgnjax.models.variants import VARIANTS
from tests.parallel.runs import ONE, furthest, run

MESHES = ((8, 1, 1, 1), (1, 8, 1, 1), (2, 2, 2, 1), (2, 1, 2, 2), (1, 1, 1, 8))
QUICK = ('sgn', 'fourier_qk', 'chiar-capacity-routed', 'ega', 'softmax')
CLOSE = 1e-9


def cases():
  for name in VARIANTS:
    for mesh in MESHES:
      quick = name in QUICK and mesh in MESHES[2:4]
      marks = [pytest.mark.xdist_group(f'mesh {name}')] + ([] if quick else [pytest.mark.slow])
      yield pytest.param(name, mesh, id=f'{name}-{"x".join(map(str, mesh))}', marks=marks)


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
  assert max(off.values()) < CLOSE, off
  assert alone.losses[-1] < alone.losses[0]
