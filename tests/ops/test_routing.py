"""Routes and gates: thresholds, draws, straight-through, collapse."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from sgnjax.ops import routing


def test_thresholds_count_the_edges_below():
  value = jnp.asarray([[0.1, 0.4, 0.41, 0.6, 0.9]])
  np.testing.assert_array_equal(routing.by_thresholds(value, (0.4, 0.6)), [[0, 0, 1, 1, 2]])
  np.testing.assert_array_equal(routing.by_thresholds(value, (0.6,)), [[0, 0, 0, 0, 1]])


def test_draws_are_uniform_and_independent_of_neighbours_and_keys():
  keys = np.random.default_rng(0).random(200).astype(np.float32)
  positions = jnp.arange(256, dtype=jnp.int32)[None, :]
  drawn = np.stack([np.asarray(routing.draw(positions, jnp.asarray(k)))[0] for k in keys])
  assert drawn.min() > 0
  assert drawn.max() <= 1
  assert scipy.stats.kstest(drawn.ravel(), 'uniform').pvalue > 1e-3
  attends = (drawn > 0.5) - 0.5
  bound = 5 * 0.25 / np.sqrt(attends.size)  # five standard errors of a product's mean
  for lag in (1, 2, 3, 16, 128):
    assert abs(np.mean(attends[:, lag:] * attends[:, :-lag])) < bound * 1.5
  assert abs(np.mean(attends[1:] * attends[:-1])) < bound
  shares = np.mean(drawn > 0.5, axis=1)  # each key's own rate: binomial, not forced
  assert np.std(shares) == pytest.approx(0.5 / 16, rel=0.25)


@pytest.mark.parametrize('key', [0.0, 0.3, -1.7, 5.2])
def test_a_draw_depends_on_position_and_key_alone(key):
  whole = routing.draw(jnp.arange(64, dtype=jnp.int32)[None, :], jnp.float32(key))
  part = routing.draw(jnp.full((3, 1), 40, jnp.int32), jnp.float32(key))
  np.testing.assert_array_equal(part, np.broadcast_to(whole[:, 40:41], (3, 1)))
  with jax.enable_x64(True):
    wide = routing.draw(jnp.arange(64, dtype=jnp.int32)[None, :], jnp.float64(np.float32(key)))
  np.testing.assert_array_equal(whole, wide)


def test_straight_through_is_one_hot_with_the_gradient_of_p():
  logits = jnp.asarray(np.random.default_rng(0).normal(size=(2, 5, 3)), jnp.float32)
  weights = jnp.asarray(np.random.default_rng(1).normal(size=(2, 5, 3)), jnp.float32)
  gates = routing.straight_through(jax.nn.softmax(logits))
  np.testing.assert_array_equal(gates, np.eye(3)[np.argmax(logits, -1)])

  def through(gate):
    return jax.grad(lambda a: jnp.sum(weights * gate(jax.nn.softmax(a))))(logits)

  np.testing.assert_array_equal(through(routing.straight_through), through(lambda p: p))


def test_blend_and_choose_agree_on_one_hot_gates():
  rng = np.random.default_rng(0)
  outputs = [jnp.asarray(rng.normal(size=(2, 4, 6)), jnp.bfloat16) for _ in range(3)]
  route = jnp.asarray(rng.integers(0, 3, (2, 4)), jnp.int32)
  chosen = routing.choose(route, outputs)
  blended = routing.blend(jax.nn.one_hot(route, 3, dtype=jnp.float32), outputs)
  assert chosen.dtype == blended.dtype == jnp.bfloat16
  np.testing.assert_array_equal(np.asarray(chosen, np.float32), np.asarray(blended, np.float32))


def test_shares_count_real_tokens_alone():
  gates = jnp.asarray(np.random.default_rng(0).random((2, 5, 3)), jnp.float32)
  mask = jnp.asarray([[True, True, False, False, False], [True] * 5])
  real = np.asarray(gates)[np.asarray(mask)]
  np.testing.assert_allclose(routing.shares(gates, mask), real.mean(0), rtol=1e-6)
  np.testing.assert_array_equal(routing.shares(gates, jnp.zeros((2, 5), bool)), np.zeros(3))


def test_entropy_of_gates_is_that_of_scipy_with_a_finite_gradient_at_collapse():
  share = np.asarray([0.2, 0.5, 0.3])
  with jax.enable_x64(True):
    found = float(routing.gate_entropy(jnp.asarray(share)))
  assert found == pytest.approx(scipy.stats.entropy(share), abs=1e-7)
  gradient = jax.grad(routing.gate_entropy)(jnp.asarray([0.0, 1.0], jnp.float32))
  assert np.all(np.isfinite(gradient))
  assert gradient[0] > gradient[1]  # raising it pulls the unused operator in
