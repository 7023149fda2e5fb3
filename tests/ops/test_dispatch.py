"""Slots by arrival against loops over tokens; gathers, and gathers alone, both ways."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sgnjax.ops import dispatch

WINDOW, SLOTS = 8, 3


def looped(routed_BL, mask_BL, segments_BL, window=WINDOW, slots=SLOTS):
  """Which tokens are accepted, one after another."""
  accepted_BL = np.zeros(routed_BL.shape, bool)
  for b, row in enumerate(routed_BL):
    place = taken = 0
    for t in range(len(row)):
      if not mask_BL[b, t]:
        break
      if t and segments_BL[b, t] != segments_BL[b, t - 1]:
        place = 0
      taken = 0 if place % window == 0 else taken
      accepted_BL[b, t] = row[t] and taken < slots
      taken += bool(accepted_BL[b, t])
      place += 1
  return accepted_BL


def rows(batch=3, length=27, rate=0.6, seed=0):
  rng = np.random.default_rng(seed)
  routed_BL = rng.random((batch, length)) < rate
  mask_BL = np.arange(length)[None, :] < np.asarray([length, 13, 0])[:batch, None]
  segments_BL = np.cumsum(rng.random((batch, length)) < 0.15, axis=1).astype(np.int32)
  return routed_BL & mask_BL, mask_BL, segments_BL


@functools.partial(jax.jit, static_argnames=('window', 'slots'))
def accept(routed_BL, segments_BL=None, window=WINDOW, slots=SLOTS):
  where = dispatch.places(routed_BL.shape[1], segments_BL)
  return dispatch.arrivals(routed_BL, *where, window=window, slots=slots)


@pytest.mark.parametrize('packed', [False, True])
def test_arrivals_follow_the_loop(packed):
  routed_BL, mask_BL, segments_BL = rows()
  segments_BL = segments_BL if packed else np.zeros_like(segments_BL)
  accepted_BL, _ = accept(routed_BL, segments_BL if packed else None)
  np.testing.assert_array_equal(accepted_BL, looped(routed_BL, mask_BL, segments_BL))


@pytest.mark.parametrize('packed', [False, True])
def test_a_stream_in_chunks_takes_the_same_routes(packed):
  routed_BL, mask_BL, segments_BL = rows(seed=1)
  segments_BL = segments_BL if packed else np.zeros_like(segments_BL)
  whole_BL = looped(routed_BL, mask_BL, segments_BL)

  @jax.jit
  def chunk(before, routed_BL, mask_BL, segments_BL):
    place_BL, start_BL = dispatch.places(routed_BL.shape[1], segments_BL, before)
    accepted_BL, rank_BL = dispatch.arrivals(
      routed_BL, place_BL, start_BL, window=WINDOW, slots=SLOTS, count_B=before.count_B
    )
    after = dispatch.advance(before, routed_BL, rank_BL, start_BL, mask_BL, segments_BL)
    return accepted_BL, after

  stream, at, pieces = dispatch.empty_stream(3), 0, []
  for size in (5, 1, 1, 9, 9, 1, 1):
    here = np.s_[:, at : at + size]
    given = segments_BL[here] if packed else None
    accepted_BL, stream = chunk(stream, routed_BL[here], mask_BL[here], given)
    pieces.append(accepted_BL)
    at += size
  assert at == routed_BL.shape[1]
  np.testing.assert_array_equal(np.concatenate(pieces, axis=1), whole_BL)
  np.testing.assert_array_equal(stream.tokens_B, mask_BL.sum(axis=1))


def test_packed_documents_take_the_routes_of_each_alone():
  rng = np.random.default_rng(4)
  pieces = [rng.random((1, n)) < 0.7 for n in (11, 3, 18)]
  segments_BL = np.concatenate([np.full((1, p.shape[1]), i) for i, p in enumerate(pieces)], 1)
  packed_BL, _ = accept(np.concatenate(pieces, 1), segments_BL)
  np.testing.assert_array_equal(packed_BL, np.concatenate([accept(p)[0] for p in pieces], 1))


def test_shards_of_whole_windows_need_no_other():
  routed_BL = np.random.default_rng(2).random((2, 8 * WINDOW)) < 0.5
  whole_BL, _ = accept(routed_BL)
  shards = [accept(shard)[0] for shard in np.split(routed_BL, 4, axis=1)]
  np.testing.assert_array_equal(np.concatenate(shards, axis=1), whole_BL)


@pytest.mark.parametrize('length', [3, 8, 20, 24])
@pytest.mark.parametrize('rate', [0.0, 0.4, 1.0])
def test_slots_hold_the_accepted_tokens_in_order_and_give_them_back(length, rate):
  routed_BL = np.random.default_rng(3).random((2, length)) < rate
  x_BLD = jnp.asarray(np.random.default_rng(5).normal(size=(2, length, 4)))
  accepted_BL, rank_BL = accept(routed_BL)
  slots = dispatch.assign(accepted_BL, rank_BL, window=WINDOW, slots=SLOTS)
  x_BSD = np.asarray(dispatch.gather(x_BLD, slots))
  assert x_BSD.shape[1] == -(-length // WINDOW) * min(SLOTS, length)
  filled_BS = np.asarray(slots.filled_BS)
  for b in range(2):
    places = np.flatnonzero(accepted_BL[b])
    np.testing.assert_array_equal(x_BSD[b][filled_BS[b]], np.asarray(x_BLD)[b, places])
    np.testing.assert_array_equal(np.asarray(slots.place_BS)[b][filled_BS[b]], places)
  assert np.all(x_BSD[~filled_BS] == 0)
  back_BLD = np.asarray(dispatch.combine(jnp.asarray(x_BSD), slots))
  np.testing.assert_array_equal(back_BLD, np.where(accepted_BL[:, :, None], x_BLD, 0))


def test_gradients_are_gathers_and_the_transposes():
  accepted_BL, rank_BL = accept(rows(2, 20)[0])
  slots = dispatch.assign(accepted_BL, rank_BL, window=WINDOW, slots=SLOTS)
  rng = np.random.default_rng(6)
  x_BLD = jnp.asarray(rng.normal(size=(2, 20, 4)))
  y_BSD = jnp.asarray(rng.normal(size=(2, 3 * SLOTS, 4)))

  def product(x_BLD, y_BSD):
    return jnp.sum(dispatch.gather(x_BLD, slots) * y_BSD) + jnp.sum(
      dispatch.combine(y_BSD, slots) * x_BLD
    )

  by_x, by_y = jax.grad(product, (0, 1))(x_BLD, y_BSD)
  np.testing.assert_allclose(by_x, 2 * dispatch.combine(y_BSD, slots), atol=1e-6)
  np.testing.assert_allclose(by_y, 2 * dispatch.gather(x_BLD, slots), atol=1e-6)
  program = str(jax.make_jaxpr(jax.grad(product, (0, 1)))(x_BLD, y_BSD))
  assert 'gather' in program
  assert 'scatter' not in program
  assert 'dot_general' not in program


@pytest.mark.parametrize(
  ('window', 'rate', 'capacity', 'slots'),
  [
    (128, 0.5, None, 80),
    (128, 0.25, None, 40),
    (128, 0.0, None, 8),
    (128, 0.9, None, 128),
    (6, 0.1, None, 6),
    (128, 0.5, 0.25, 32),
    (20, 0.5, 0.55, 11),
    (8, 0.5, 0.01, 1),
    (8, 0.5, 1.0, 8),
  ],
)
def test_slots_of_a_window(window, rate, capacity, slots):
  assert dispatch.slots_per_window(window, rate, capacity) == slots
