"""Arrangements of a layer."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs import base
from sgnjax.analysis.flops import costs, xla_flops
from sgnjax.audit import randomise
from sgnjax.models import build

BARE = {'mixer': 'sgn', 'sgn.gated': False, 'block': 'sgn_bare', 'layers': 2, 'scan_unroll': 2}


def config_of(**changes):
  c = base.get_config().unlock()
  c.model.update_from_flattened_dict(
    BARE | {'width': 16, 'heads': 2, 'context': 24, 'vocab': 13, 'vocab_multiple': 1} | changes
  )
  return c.lock()


@pytest.mark.parametrize('form', ['published', 'causal'])
def test_the_residual_of_a_bare_block_is_a_gate_that_is_one_larger(form):
  """`C^T G C x + x = C^T (G + 1) C x`; in the causal form too a gate of ones is the identity."""
  tokens_BL = jnp.asarray(np.random.default_rng(0).integers(0, 13, (2, 24)), jnp.int32)
  with jax.enable_x64(True):
    bare, whole = (
      build(config_of(form=form, dtype='float64', block=block)) for block in ('sgn_bare', 'sgn')
    )
    params = randomise(bare.init(jax.random.key(0), tokens_BL)['params'])
    less = jax.tree_util.tree_map_with_path(
      lambda path, p: p - 1 if path[-1].key == 'gate' else p, params
    )
    given, same, other = (
      np.asarray(model.apply({'params': p}, tokens_BL)[0])
      for model, p in ((bare, params), (whole, less), (whole, params))
    )
  np.testing.assert_allclose(same, given, rtol=0, atol=1e-11 * np.abs(given).max())
  assert np.abs(other - given).max() > 1e-2 * np.abs(given).max()


def test_a_bare_block_is_counted():
  config = config_of(width=128, context=128, form='published')
  counted = xla_flops(config, batch=2, length=128)
  found = sum(cost.forward for cost in costs(build(config), batch=2, length=128).values())
  assert found == pytest.approx(counted, rel=0.01)
