"""Gradients equal central differences in float64, but where a route has none."""

import jax
import numpy as np

from tests.theorems.instances import N, every_variant, frozen, inputs, instance


@every_variant
def test_gradients_equal_finite_differences(name, record_property):
  mixer = instance(name)
  if getattr(mixer.module, 'router', '') == 'hard':
    record_property('cell', 'straight-through')  # by design not the gradient of its output
    return
  x_BLD, rng = inputs(2, N), np.random.default_rng(4)

  def direction(path, leaf):
    return rng.normal(size=leaf.shape) * (not frozen(path))

  way = jax.tree_util.tree_map_with_path(direction, mixer.params)
  way_BLD = rng.normal(size=x_BLD.shape)

  def moved(h):
    params = jax.tree.map(lambda p, d: np.asarray(p) + h * d, mixer.params, way)
    return mixer.gradients(x_BLD + h * way_BLD, inputs(2, N, seed=2), params)[0]

  h = 1e-5
  slope = (8 * (moved(h) - moved(-h)) - (moved(2 * h) - moved(-2 * h))) / (12 * h)
  _, _, gradients = mixer.gradients(x_BLD)
  pairs = zip(jax.tree.leaves(gradients), jax.tree.leaves((way, way_BLD)), strict=True)
  exact = sum(float(np.sum(np.asarray(g) * d)) for g, d in pairs)
  np.testing.assert_allclose(exact, slope, rtol=1e-6, atol=1e-7)
