"""A causal form is blind to the future and to other examples; every other form sees them."""

import numpy as np

from tests.theorems.instances import N, every_variant, inputs, instance


def replaced(x_BLD, t):
  """x with other tokens from t on, and another second example."""
  other_BLD = np.concatenate([x_BLD[:, :t], 3 * inputs(2, N, seed=9)[:, t:]], axis=1)
  other_BLD[1] = 7.0
  return other_BLD


@every_variant
def test_causality_both_ways(name, record_property):
  mixer, x_BLD = instance(name), inputs(2, N)
  y_BLD = np.asarray(mixer.gradients(x_BLD)[1])
  scale, before, after = np.max(np.abs(y_BLD)), [], []
  for t in (1, N // 2, N - 1):
    z_BLD = np.asarray(mixer.gradients(replaced(x_BLD, t))[1])
    before.append(np.max(np.abs(y_BLD[0, :t] - z_BLD[0, :t])) / scale)
    after.append(np.max(np.abs(y_BLD[0, t:] - z_BLD[0, t:])) / scale)
  assert min(after) > 1e-3, 'the output does not depend on the input'
  if mixer.module.causal:
    assert max(before) <= (1e-9 if mixer.module.uses_fft else 0)
    record_property('cell', 'blind, 1e-9' if mixer.module.uses_fft else 'blind, bit for bit')
  else:
    assert max(before) > 1e-9
    record_property('cell', f'sees the future ({max(before):.0e})')


@every_variant
def test_without_an_fft_float32_is_blind_bit_for_bit(name):
  mixer = instance(name, 'float32')
  if not mixer.module.causal or mixer.module.uses_fft:
    return  # the test above says all there is to say
  x_BLD = inputs(2, N)
  y_BLD, z_BLD = (np.asarray(mixer.gradients(a)[1]) for a in (x_BLD, replaced(x_BLD, 9)))
  np.testing.assert_array_equal(y_BLD[0, :9], z_BLD[0, :9])
