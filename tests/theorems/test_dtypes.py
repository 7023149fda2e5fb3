"""bfloat16, float32 and float64 stay what they are, and agree as far as they reach."""

import jax
import numpy as np
import pytest

from tests.theorems.instances import N, every_variant, inputs, instance

# Of the output's deviation. Rounding may turn a route, so the typical error is what is bounded.
REACH = {'bfloat16': 0.05, 'float32': 1e-5, 'float64': 0.0}


@every_variant
@pytest.mark.parametrize('dtype', ['float64', 'float32', 'bfloat16'])
def test_dtypes_stay_and_gradients_are_finite(name, dtype):
  mixer, x_BLD = instance(name, dtype), inputs(2, N)
  _, y_BLD, gradients = mixer.gradients(x_BLD)
  assert y_BLD.dtype == dtype
  truth_BLD = np.asarray(instance(name).gradients(x_BLD)[1])
  error = np.median(np.abs(np.asarray(y_BLD, np.float64) - truth_BLD)) / np.std(truth_BLD)
  assert error <= REACH[dtype]
  given = [leaf.dtype for leaf in jax.tree.leaves(mixer.params)]
  for gradient, its in zip(jax.tree.leaves(gradients), [*given, dtype], strict=True):
    assert gradient.dtype == its
    assert np.all(np.isfinite(np.asarray(gradient, np.float64)))
