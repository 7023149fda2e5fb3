"""What mechanisms learn, beside each evaluation."""

import jax.numpy as jnp

from sgnjax.train import learned


def test_mean_lowest_and_highest_over_all_layers():
  params = {
    'a': {'tau': jnp.asarray([[0.0, 1.0]]), 'kernel': jnp.ones(3)},
    'b': {'tau': jnp.asarray([[2.0, 5.0]])},
  }
  assert learned.reader(params)(params) == {'tau': [2.0, 0.0, 5.0]}


def test_a_model_without_any():
  assert learned.reader({'kernel': jnp.ones(3)})({}) == {}
