"""Bytes of the caches of attention, against what their docstrings say."""

import jax
import jax.numpy as jnp
import pytest

from sgnjax.mixers import MIXERS

BATCH, SLOTS, WIDTH, HEADS = 3, 40, 16, 2
KEYS_VALUES = SLOTS * (2 * WIDTH * 2 + 4) + 4  # bfloat16, and int32 of each slot and each example
MOMENTS = 3 * HEADS * 4  # of each energy, float32
CASES = {
  'softmax': ('softmax', {}, KEYS_VALUES),
  'query': ('ega', {'scales': 2}, KEYS_VALUES + SLOTS * HEADS * 2 * 4 + 2 * MOMENTS + 4),
  'prefix': ('ega', {'znorm': 'prefix'}, KEYS_VALUES + SLOTS * HEADS * 4 + MOMENTS + 4),
  'wavelet': (  # 9 samples of each head's signal, and their segments
    'ega',
    {'znorm': 'none', 'energy': 'learned_wavelet', 'wavelet': 'db2', 'levels': 2},
    KEYS_VALUES + SLOTS * HEADS * 4 + 4 + 9 * (HEADS * 4 + 4),
  ),
  'rbf': ('chiar_rbf', {'rbf_features': 5}, SLOTS * (2 * 5 * 4 + 4) + 4),
  'dct': ('chiar_dct', {}, 0),
}


@pytest.mark.parametrize('case', CASES)
def test_a_cache_takes_what_its_docstring_says(case):
  mixer, options, expected = CASES[case]
  module = MIXERS[mixer](width=WIDTH, heads=HEADS, context=32, dtype=jnp.bfloat16, **options)
  cache = module.init_cache(BATCH, SLOTS, jnp.bfloat16)
  assert sum(leaf.nbytes for leaf in jax.tree.leaves(cache)) == BATCH * expected
