"""The comparison itself, on toys: each leak there is, and what must not be taken for one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sgnjax.audit.causality import compare, compare_padding, perturbed_positions, replaced
from sgnjax.errors import UserError

VOCAB, LENGTH = 7, 32
TABLE_VD = np.random.default_rng(0).standard_normal((VOCAB, VOCAB)).astype(np.float32)
TOKENS_BL = np.random.default_rng(1).integers(0, VOCAB, (3, LENGTH)).astype(np.int32)


def embed(tokens_BL):
  return jnp.asarray(TABLE_VD)[tokens_BL]


def prefix_sum(tokens_BL):
  return jnp.cumsum(embed(tokens_BL), axis=1)


def one_token_ahead(tokens_BL):
  x_BLV = prefix_sum(tokens_BL)
  return x_BLV + 1e-6 * jnp.roll(embed(tokens_BL), -1, axis=1)


def last_token_to_the_first(tokens_BL):
  return prefix_sum(tokens_BL).at[:, 0].add(embed(tokens_BL)[:, -1])


def batch_mean(tokens_BL):
  x_BLV = prefix_sum(tokens_BL)
  return x_BLV + jnp.mean(x_BLV, axis=0, keepdims=True)


def earlier_examples(tokens_BL):
  """Couples an example to those before it in the batch, as a queue of slots does."""
  return prefix_sum(tokens_BL) + jnp.cumsum(prefix_sum(tokens_BL), axis=0)


def top_half(tokens_BL):
  """Hard routing: half of the tokens of a sequence, those of the largest score, are doubled."""
  x_BLV = embed(tokens_BL)
  score_BL = x_BLV[:, :, 0]
  chosen_BL = score_BL >= jnp.median(score_BL, axis=1, keepdims=True)
  return jnp.where(chosen_BL[:, :, None], 2 * x_BLV, x_BLV)


def seen(apply, **options):
  rows = compare(jax.jit(apply), TOKENS_BL, vocab=VOCAB, **options)
  return {row.check for row in rows if row.fails}


def test_positions_are_start_middle_near_the_end_and_last():
  assert perturbed_positions(32) == [1, 4, 16, 30, 31]
  assert perturbed_positions(2) == [1]
  assert perturbed_positions(1) == []


def test_every_replaced_token_is_another_and_no_other_changes():
  where_BL = np.arange(LENGTH)[None, :] >= 5
  other_BL = replaced(TOKENS_BL, where_BL, VOCAB, np.random.default_rng(0))
  assert np.all(other_BL[:, 5:] != TOKENS_BL[:, 5:])
  assert np.all(other_BL[:, :5] == TOKENS_BL[:, :5])
  assert other_BL.min() >= 0
  assert other_BL.max() < VOCAB


def test_a_blind_function_shows_exact_zeros():
  rows = compare(jax.jit(prefix_sum), TOKENS_BL, vocab=VOCAB)
  assert len(rows) == 5 + 2
  assert all(row.difference == 0 for row in rows)
  assert not any(row.fails for row in rows)


@pytest.mark.parametrize('apply', [one_token_ahead, last_token_to_the_first, top_half])
def test_later_tokens_are_seen(apply):
  assert seen(apply) == {'later tokens'}


@pytest.mark.parametrize('apply', [batch_mean, earlier_examples])
def test_other_examples_are_seen(apply):
  assert 'other examples' in seen(apply)


def test_coupling_in_one_direction_is_found_by_keeping_the_other_end():
  rows = [r for r in compare(jax.jit(earlier_examples), TOKENS_BL, vocab=VOCAB) if r.fails]
  assert len([r for r in rows if r.check == 'other examples']) == 1


def test_the_hard_route_has_no_gradient_for_a_derivative_to_find():
  x_BLV = embed(TOKENS_BL)

  def first_output(score_BL):
    chosen_BL = score_BL >= jnp.median(score_BL, axis=1, keepdims=True)
    return jnp.sum(jnp.where(chosen_BL[:, :, None], 2 * x_BLV, x_BLV)[:, 0])

  assert not np.any(jax.grad(first_output)(x_BLV[:, :, 0]))
  assert seen(top_half) == {'later tokens'}


def test_rounding_below_the_limit_is_no_leak_and_a_leak_above_it_is():
  def rounding(tokens_BL):
    x_BLV = prefix_sum(tokens_BL)
    return x_BLV + 1e-5 * jnp.sum(embed(tokens_BL), axis=1, keepdims=True)

  assert seen(rounding) == {'later tokens'}
  assert seen(rounding, limit=1e-3) == set()
  assert seen(last_token_to_the_first, limit=1e-3) == {'later tokens'}


def test_the_first_layer_that_leaks_is_named():
  def layers(tokens_BL):
    zeroth = embed(tokens_BL)
    first = jnp.cumsum(zeroth, axis=1)
    second = first + jnp.mean(first, axis=1, keepdims=True)
    return jnp.tanh(second), {'embedding': zeroth, 'layer 0': first, 'layer 1': second}

  def head(tokens_BL):
    x_BLV = prefix_sum(tokens_BL)
    return x_BLV + jnp.mean(x_BLV, axis=1, keepdims=True), {'layer 0': x_BLV}

  for apply, name in ((layers, 'layer 1'), (head, 'head')):
    rows = compare(jax.jit(apply), TOKENS_BL, vocab=VOCAB)
    assert {row.layer for row in rows if row.check == 'later tokens'} == {name}
    assert {row.layer for row in rows if row.check == 'other examples'} == {''}


def test_padding():
  def honest(tokens_BL, mask_BL):
    return jnp.cumsum(embed(tokens_BL) * mask_BL[:, :, None].astype(jnp.float32), axis=1)

  def with_mean(tokens_BL, mask_BL):
    return honest(tokens_BL, mask_BL) + jnp.mean(embed(tokens_BL), axis=1, keepdims=True)

  assert compare_padding(jax.jit(honest), TOKENS_BL, vocab=VOCAB).difference == 0
  assert compare_padding(jax.jit(with_mean), TOKENS_BL, vocab=VOCAB).fails


def test_columns_that_pad_the_vocabulary_do_not_set_the_scale():
  def padded(tokens_BL):
    x_BLV = last_token_to_the_first(tokens_BL)
    lowest = jnp.full((*x_BLV.shape[:2], 1), jnp.finfo(jnp.float32).min)
    return jnp.concatenate([x_BLV, lowest], -1)

  rows = compare(jax.jit(padded), TOKENS_BL, vocab=VOCAB)
  assert max(row.relative for row in rows) > 1e-3


def test_what_proves_nothing_is_refused():
  with pytest.raises(UserError, match='do not depend on the tokens'):
    compare(lambda tokens_BL: jnp.zeros((*tokens_BL.shape, VOCAB)), TOKENS_BL, vocab=VOCAB)
  with pytest.raises(UserError, match='not finite'):
    compare(lambda tokens_BL: embed(tokens_BL) * jnp.inf, TOKENS_BL, vocab=VOCAB)
  with pytest.raises(UserError, match='vocabulary has 1'):
    compare(prefix_sum, TOKENS_BL, vocab=1)
