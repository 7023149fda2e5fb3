"""Turns and their medians, and what a compiled program is said to take."""

import math
import time

import jax.numpy as jnp
import numpy as np
import pytest

from sgnjax.analysis.benchmark import timing


@pytest.fixture
def clock(monkeypatch):
  """`clock(durations)`: functions that take so long by a clock that only they move."""
  now, order = [0.0], []
  monkeypatch.setattr(time, 'perf_counter', lambda: now[0])

  def make(durations):
    def function(name, own):
      def run():
        order.append(name)
        now[0] += next(own)
        return 0

      return run

    return {name: function(name, iter(own)) for name, own in durations.items()}, order

  return make


def test_functions_take_turns_and_medians_leave_the_warm_up_out(clock):
  timed, order = clock({'a': [9, 9, 1, 3, 2], 'b': [9, 9, 5, 5, 50]})
  took = timing.interleaved(timed, 3)
  assert (took['a'], took['b'], took.count) == (2, 5, 3)
  assert took.ratio('b', 'a') == 5  # of the rounds: 5, 5/3, 25
  assert order == ['a', 'b'] * 5


@pytest.mark.parametrize(
  ('each', 'limit', 'rounds', 'calls'),
  [
    (1, math.inf, 10, 12),
    (1, 8, 7, 9),  # no further round once the limit is passed, warm-up counted
    (3, 8, 3, 4),  # three are taken; one warm-up where a round is long
    (9, 8, 1, 2),  # one alone where a single round takes all
  ],
)
def test_a_limit_bounds_the_rounds(clock, each, limit, rounds, calls):
  timed, order = clock({'a': [each] * 99})
  assert timing.interleaved(timed, 10, limit).count == rounds
  assert len(order) == calls


def test_a_program_knows_its_product_and_its_gradient():
  a, b = jnp.ones((8, 16)), jnp.full((16, 4), 2.0)
  program = timing.program(timing.gradient(jnp.matmul), a, b)
  value, (by_a, by_b) = program()
  y = np.asarray(a @ b)
  assert value == pytest.approx(np.sum(y**2) / 2)
  np.testing.assert_allclose(by_a, y @ np.asarray(b).T)
  np.testing.assert_allclose(by_b, np.asarray(a).T @ y)
  assert program.flops >= 3 * 2 * 8 * 16 * 4
  assert program.peak >= 2 * (a.nbytes + b.nbytes) > 0
  assert timing.room() > 0
