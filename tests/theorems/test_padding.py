"""Padding on the right changes no real position, or is refused by name."""

import jax
import numpy as np

from tests.theorems.instances import N, asked, every_variant, inputs, instance

REAL = (11, 11, 0)  # real tokens of each example


@every_variant
def test_padding_changes_nothing_or_is_refused_by_name(name, record_property):
  mixer, x_BLD = instance(name), inputs(3, N)
  x_BLD[:2, 11:] *= 5
  mask_BL = np.arange(N)[None, :] < np.asarray(REAL)[:, None]
  found, said = asked(mixer.gradients, x_BLD, mask_BL=mask_BL)
  if said:
    assert f"mixer '{mixer.module.label}'" in said
    assert 'padding mask' in said
    record_property('cell', 'refused')
    return
  _, z_BLD, gradients = found
  z_BLD = np.asarray(z_BLD)
  assert np.all(z_BLD[~mask_BL] == 0), 'padding, and an example of padding alone, give zeros'
  assert all(np.all(np.isfinite(g)) for g in jax.tree.leaves(gradients))
  y_BLD, said = asked(mixer, x_BLD[:2, :11])
  if said:
    assert 'grid' in said, 'only a 2-D grid asks for its own length'
    y_BLD = np.asarray(mixer.gradients(np.where(mask_BL[:, :, None], x_BLD, 0)[:2])[1])[:, :11]
  assert np.max(np.abs(y_BLD - z_BLD[:2, :11])) <= 1e-12 * max(1, np.max(np.abs(y_BLD)))


@every_variant
def test_lengths_one_and_prime_give_finite_numbers(name):
  mixer = instance(name)
  for length in (1, 11):
    y_BLD, said = asked(mixer, inputs(2, length))
    if said:
      assert 'grid' in said, 'only a 2-D grid asks for its own length'
      return
    assert y_BLD.shape == (2, length, mixer.module.width)
    assert np.all(np.isfinite(y_BLD))
