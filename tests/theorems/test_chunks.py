"""Any split into chunks gives the output of the whole, and ragged prompts that of each alone."""

import numpy as np
import pytest

from tests.theorems.instances import (
  CORE,
  N,
  asked,
  core_variants,
  every_variant,
  inputs,
  instance,
)

FEW = ([7, 1, 16], [7] + [1] * (N - 7))
MANY = ([N], [2] * (N // 2), *FEW)  # each size is a program to compile


def in_chunks(mixer, x_BLD, sizes):
  """The outputs of consecutive chunks, side by side."""
  cache, pieces, start = mixer.empty_cache(x_BLD.shape[0]), [], 0
  for size in sizes:
    y_BLD, _, cache = mixer.mixed(x_BLD[:, start : start + size], cache)
    pieces.append(np.asarray(y_BLD))
    start += size
  return np.concatenate(pieces, axis=1)


def check_splits(mixer, splits, reach):
  x_BLD = inputs(2, N)
  whole_BLD = np.asarray(mixer.gradients(x_BLD)[1])
  for sizes in splits:
    difference_BLD = np.abs(in_chunks(mixer, x_BLD, sizes) - whole_BLD)
    assert np.max(difference_BLD) <= reach * np.max(np.abs(whole_BLD)), sizes


@every_variant
def test_any_split_into_chunks_gives_the_whole(name, record_property):
  mixer = instance(name)
  cache, said = asked(mixer.empty_cache, 1)
  if not mixer.module.causal:
    assert f"mixer '{mixer.module.label}' keeps no cache" in said
    record_property('cell', 'not causal')
    return
  assert cache is not None, said
  check_splits(mixer, MANY if name in CORE else FEW, 1e-9)


@pytest.mark.slow
@core_variants
def test_so_it_does_in_float32(name):
  mixer = instance(name, 'float32')
  if mixer.module.causal:  # the test above reads what others say
    check_splits(mixer, FEW, 1e-5)


@every_variant
def test_ragged_prompts_in_one_cache_equal_each_alone(name):
  lengths = (1, 7, 16)
  mixer = instance(name)
  if not mixer.module.causal:
    return  # the test above reads what it says
  x_BLD, later_BLD = inputs(3, 16), inputs(3, 3, seed=8)
  mask_BL = np.arange(16)[None, :] < np.asarray(lengths)[:, None]
  prompt_BLD, _, cache = mixer.mixed(x_BLD, mixer.empty_cache(3), mask_BL=mask_BL)
  pieces = []
  for t in range(3):
    y_BLD, _, cache = mixer.mixed(later_BLD[:, t : t + 1], cache)
    pieces.append(np.asarray(y_BLD))
  together_BLD = np.concatenate(pieces, axis=1)
  for i, length in enumerate(lengths):
    row_BLD = np.concatenate([x_BLD[i, :length], later_BLD[i], np.ones((N, x_BLD.shape[2]))])[:N]
    alone_LD = np.asarray(mixer.gradients(np.stack([row_BLD] * 2))[1])[0]  # blind to what is behind
    np.testing.assert_allclose(prompt_BLD[i, :length], alone_LD[:length], atol=1e-9)
    np.testing.assert_allclose(together_BLD[i], alone_LD[length : length + 3], atol=1e-9)
