"""Choices of the next token, by what many draws give."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sgnjax.decode.sampling import Sampling, pick


def drawn(logits_V, count=500, seen_V=None, seed=0, **sampling) -> np.ndarray:
  """Tokens that so many draws give."""
  sampling = Sampling(**{'temperature': 1.0, **sampling})
  rows_BV = jnp.tile(jnp.asarray(logits_V, jnp.float32), (count, 1))
  keys = jax.random.split(jax.random.key(seed), count)
  seen_BV = None if seen_V is None else jnp.tile(jnp.asarray(seen_V), (count, 1))
  return np.asarray(pick(rows_BV, keys, sampling.values(), sampling.rules(len(logits_V)), seen_BV))


def draws(logits_V, **options) -> set[int]:
  return set(drawn(logits_V, **options).tolist())


def test_top_k_keeps_exactly_k_under_ties():
  assert draws([1.0] * 6, top_k=3) == {0, 1, 2}
  assert draws([0.0, 2.0, 1.0, 1.0, 1.0], top_k=2) == {1, 2}
  assert draws([1.0] * 6) == draws([1.0] * 6, top_k=99) == set(range(6))
  assert draws([1.0] * 6, temperature=0.0) == {0}


def test_top_p_keeps_the_likeliest_that_first_reach_it():
  logits_V = np.log([0.1, 0.5, 0.15, 0.25])
  assert draws(logits_V, top_p=0.49) == {1}
  assert draws(logits_V, top_p=0.51) == {1, 3}
  assert draws(logits_V, top_p=0.76) == {1, 2, 3}
  assert draws(logits_V, top_p=1.0) == {0, 1, 2, 3}
  assert draws(logits_V, top_p=1e-9) == {1}
  assert draws(logits_V, top_k=2, top_p=0.9) == {1, 3}  # of those that top-k left: 2/3 and 1/3
  assert draws(logits_V, temperature=0.1, top_p=0.99) == {1}  # the temperature comes first


def test_the_penalty_moves_logits_of_either_sign_down():
  logits_V, seen_V = [2.0, 1.5, -1.0, -1.5], [True, False, True, False]
  assert draws(logits_V, temperature=0.0, seen_V=seen_V) == {0}
  assert draws(logits_V, temperature=0.0, seen_V=seen_V, repetition_penalty=2.0) == {1}
  assert draws(logits_V[2:], temperature=0.0, seen_V=[True, False], repetition_penalty=2.0) == {1}
  share = np.mean(drawn(logits_V[:2], 20_000, seen_V=[True, False], repetition_penalty=2.0))
  assert share == pytest.approx(1 / (1 + np.exp(1.0 - 1.5)), abs=0.015)


def test_a_temperature_near_0_is_greedy_and_never_nan():
  logits_V = [0.5, -3e38, 0.75, 0.5]
  for options in ({}, {'top_p': 0.99}, {'top_k': 3}):
    assert draws(logits_V, temperature=1e-30, **options) == {2}
    assert 1 not in draws(logits_V, **options)
  assert draws(logits_V, top_k=1) == {2}


@pytest.mark.parametrize('options', [{}, {'top_k': 3}, {'top_k': 3, 'top_p': 0.999_999}])
def test_draws_follow_the_softmax(options):
  tokens = drawn(np.log([0.6, 0.3, 0.1]) / 2, 20_000, seed=3, temperature=0.5, **options)
  np.testing.assert_allclose(np.bincount(tokens, minlength=3) / 20_000, [0.6, 0.3, 0.1], atol=0.015)
