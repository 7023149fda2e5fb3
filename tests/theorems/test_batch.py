"""A mixer's output for an example does not depend on the others of its batch, in any form.

What does, by name, is the published MetaRouter around a layer: `tests/train/test_step.py`.
"""

import numpy as np

from tests.theorems.instances import N, every_variant, inputs, instance


@every_variant
def test_examples_are_independent(name, record_property):
  mixer, x_BLD = instance(name), inputs(2, N)
  other_BLD = x_BLD.copy()
  other_BLD[1] = 3 * inputs(2, N, seed=9)[1]
  y_BLD, z_BLD = (np.asarray(mixer.gradients(a)[1]) for a in (x_BLD, other_BLD))
  assert np.max(np.abs(y_BLD[1] - z_BLD[1])) > 1e-3, 'the output does not depend on the input'
  assert np.max(np.abs(y_BLD[0] - z_BLD[0])) <= 1e-9 * np.max(np.abs(y_BLD))
  record_property('cell', 'independent')
