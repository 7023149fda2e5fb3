"""Softmax attention by tiles: no (L, S) array is ever whole, and hidden tiles are never computed.

The forward pass keeps a running maximum and total of each query (Milakov and Gimelshein 2018); the
backward pass makes each tile's weights again from the logarithm of that total (FlashAttention,
algorithms 1 and 4).
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from sgnjax.ops.backend import backend
from sgnjax.ops.biases import Bias
from sgnjax.ops.dtypes import wide

UNROLLED = 4  # tiles: a longer loop is one for the compiler too


class Tiles(NamedTuple):
  """How a product is cut: queries and keys of a tile, and examples taken at a time."""

  queries: int
  keys: int
  examples: int


def blocked_attention(
  q_BLHE: jax.Array,
  k_BHSE: jax.Array,
  v_BHSE: jax.Array,
  *,
  scale: float,
  causal: bool,
  tiles: Tiles,
  mask_BL: jax.Array | None = None,
  segments_BL: jax.Array | None = None,
  bias: Bias | None = None,
) -> jax.Array:
  """`softmax(scale q k^T + bias) v` of a sequence with itself, as `attention`: (B, L, H, E).

  Shapes and dtypes as there, with S = L; mask and segments as in `visible`. A hidden key has weight
  exactly 0, and tiles above the diagonal are not computed where `causal`; a query that sees nothing
  gets zeros. Memory beside inputs and outputs and their gradients: tiles, and two numbers a query
  and head.
  """
  batch, length = q_BLHE.shape[:2]
  of, rows, columns, shared = bias or Bias(None, (), (), ())
  more = -length % max(tiles.queries, tiles.keys)
  groups = _groups(batch, length, more, causal, mask_BL, segments_BL)

  def whole(a):
    a = jnp.broadcast_to(a, (batch, *a.shape[1:]))
    return jnp.pad(a, [(0, 0), (0, 0), (0, more), *((0, 0),) * (a.ndim - 3)]) if more else a

  arrays = jax.tree.map(whole, (q_BLHE.swapaxes(1, 2), k_BHSE, v_BHSE, rows, columns))
  y_BHLE = _attend(_How(float(scale), causal, tiles, of), arrays, shared, groups)
  return y_BHLE[:, :, :length].swapaxes(1, 2)


class _How(NamedTuple):
  scale: float
  causal: bool
  tiles: Tiles
  of: Callable | None


def _groups(batch, length, more, causal, mask_BL, segments_BL):
  """Numbers of queries and of keys, (B, L) each: equal where one sees the other. None: all do."""
  if mask_BL is None and segments_BL is None and (causal or not more):
    return None
  segments_BL = jnp.zeros((1, length), jnp.int32) if segments_BL is None else segments_BL
  lowest, groups = np.iinfo(segments_BL.dtype).min, []
  for none in (lowest, lowest + 1):  # no document's, and not the same: seen by none, seeing none
    none = jnp.asarray(none, segments_BL.dtype)
    group_BL = segments_BL if mask_BL is None else jnp.where(mask_BL, segments_BL, none)
    group_BL = jnp.broadcast_to(group_BL, (batch, length))
    groups.append(jnp.pad(group_BL, ((0, 0), (0, more)), constant_values=none))
  return tuple(groups)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attend(how, arrays, shared, groups):
  return _forward(how, arrays, shared, groups)[0]


def _forward(how, arrays, shared, groups):
  def some(inputs):
    return _forward_of_some(how, inputs[0], shared, inputs[1])

  return _by_examples(some, (arrays, groups), how.tiles.examples)


def _save(how, arrays, shared, groups):
  y_BHLE, total_BHL = _forward(how, arrays, shared, groups)
  return y_BHLE, (arrays, shared, groups, y_BHLE, total_BHL)


def _backward(how, saved, dy_BHLE):
  arrays, shared, groups, y_BHLE, total_BHL = saved

  def some(inputs):
    arrays, *rest = inputs
    d_arrays, d_shared = _backward_of_some(how, arrays, shared, *rest)
    return d_arrays, jax.tree.map(lambda a: a[None], d_shared)

  given = (arrays, groups, y_BHLE, total_BHL, dy_BHLE)
  d_arrays, d_shared = _by_examples(some, given, how.tiles.examples)
  return d_arrays, jax.tree.map(lambda a: jnp.sum(a, axis=0), d_shared), None


_attend.defvjp(_save, _backward)


def _by_examples(some, inputs, examples):
  """`some` of so many examples at a time, its results side by side on axis 0."""
  batch = jax.tree.leaves(inputs)[0].shape[0]
  examples = next(n for n in range(min(examples, batch), 0, -1) if batch % n == 0)
  if examples == batch:
    return some(inputs)
  split = jax.tree.map(lambda a: a.reshape(-1, examples, *a.shape[1:]), inputs)
  return jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), jax.lax.map(some, split))


def _forward_of_some(how, arrays, shared, groups):
  """Outputs, and the logarithm of the total mass of each query (0 where it sees nothing)."""
  q_BHLE, k_BHSE, v_BHSE, rows, columns = arrays
  dtype = wide(q_BHLE.dtype)
  lowest = jnp.asarray(jnp.finfo(dtype).min, dtype)
  queries = how.tiles.queries

  def of_queries(i, out):
    q_BHlE, rows_l, query_Bl = _cut((q_BHLE, rows, groups and groups[0]), i, queries)

    def of_keys(j, carry):
      top_BHl1, total_BHl1, sum_BHlE = carry
      part = _cut((k_BHSE, v_BHSE, columns, groups and groups[1]), j, how.tiles.keys)
      k_BHsE, v_BHsE, columns_s, key_Bs = part
      scores_BHls = _product('bhle,bhse->bhls', q_BHlE, k_BHsE) * jnp.asarray(how.scale, dtype)
      if how.of is not None:
        scores_BHls = scores_BHls + how.of(rows_l, columns_s, shared)
      seen_BHls = _seen(how, i, j, query_Bl, key_Bs)
      scores_BHls = jnp.where(seen_BHls, scores_BHls, lowest)
      new_BHl1 = jnp.maximum(top_BHl1, jnp.max(scores_BHls, -1, keepdims=True))
      mass_BHls = jnp.where(seen_BHls, jnp.exp(scores_BHls - new_BHl1), jnp.zeros((), dtype))
      old_BHl1 = jnp.exp(top_BHl1 - new_BHl1)
      total_BHl1 = total_BHl1 * old_BHl1 + jnp.sum(mass_BHls, -1, keepdims=True)
      here_BHlE = _product('bhls,bhse->bhle', mass_BHls.astype(v_BHsE.dtype), v_BHsE)
      return new_BHl1, total_BHl1, sum_BHlE * old_BHl1 + here_BHlE

    shape = q_BHlE.shape[:-1]
    zero_BHl1 = jnp.zeros((*shape, 1), dtype)
    start = (
      jnp.full_like(zero_BHl1, lowest),
      zero_BHl1,
      jnp.zeros((*shape, v_BHSE.shape[-1]), dtype),
    )
    top_BHl1, total_BHl1, sum_BHlE = _over_keys(how, i, k_BHSE.shape[2], of_keys, start)
    some_BHl1 = total_BHl1 > zero_BHl1
    total_BHl1 = jnp.where(some_BHl1, total_BHl1, jnp.ones_like(total_BHl1))
    log_BHl1 = jnp.where(some_BHl1, top_BHl1 + jnp.log(total_BHl1), zero_BHl1)
    return _put(out, (sum_BHlE / total_BHl1, log_BHl1[..., 0]), i, queries)

  shape = q_BHLE.shape[:-1]
  out = jnp.zeros((*shape, v_BHSE.shape[-1]), v_BHSE.dtype), jnp.zeros(shape, dtype)
  return _loop(0, shape[2] // queries, of_queries, out)


def _backward_of_some(how, arrays, shared, groups, y_BHLE, total_BHL, dy_BHLE):
  """Gradients of `arrays` and of `shared`."""
  q_BHLE, k_BHSE, v_BHSE, rows, columns = arrays
  dtype = wide(q_BHLE.dtype)
  scale = jnp.asarray(how.scale, dtype)
  mean_BHL = jnp.sum(y_BHLE.astype(dtype) * dy_BHLE.astype(dtype), -1)
  by_query = (q_BHLE, dy_BHLE, total_BHL, mean_BHL, rows, groups and groups[0])
  by_key = (k_BHSE, v_BHSE, columns, groups and groups[1])

  def full(rows_l, columns_s, shared):
    bias_BHls = how.of(rows_l, columns_s, shared)
    shape = (*q_BHLE.shape[:2], how.tiles.queries, how.tiles.keys)
    return jnp.broadcast_to(bias_BHls, shape).astype(dtype)

  def of_queries(i, carry):
    d_queries, d_keys, d_shared = carry
    part = _cut(by_query, i, how.tiles.queries)
    q_BHlE, dy_BHlE, total_BHl, mean_BHl, rows_l, query_Bl = part

    def of_keys(j, carry):
      (dq_BHlE, d_rows), d_keys, d_shared = carry
      k_BHsE, v_BHsE, columns_s, key_Bs = _cut(by_key, j, how.tiles.keys)
      scores_BHls = _product('bhle,bhse->bhls', q_BHlE, k_BHsE) * scale
      if how.of is not None:
        bias_BHls, pull = jax.vjp(full, rows_l, columns_s, shared)
        scores_BHls = scores_BHls + bias_BHls
      weights_BHls = jnp.exp(scores_BHls - total_BHl[..., None])
      seen_BHls = _seen(how, i, j, query_Bl, key_Bs)
      weights_BHls = jnp.where(seen_BHls, weights_BHls, jnp.zeros((), dtype))
      narrow_BHls = weights_BHls.astype(v_BHsE.dtype)
      dv_BHsE = _product('bhls,bhle->bhse', narrow_BHls, dy_BHlE)
      d_weights_BHls = _product('bhle,bhse->bhls', dy_BHlE, v_BHsE)
      d_scores_BHls = weights_BHls * (d_weights_BHls - mean_BHl[..., None])
      d_product_BHls = (d_scores_BHls * scale).astype(q_BHlE.dtype)
      dq_BHlE = dq_BHlE + _product('bhls,bhse->bhle', d_product_BHls, k_BHsE)
      dk_BHsE = _product('bhls,bhle->bhse', d_product_BHls, q_BHlE)
      d_columns = ()
      if how.of is not None:
        more, d_columns, of_shared = pull(d_scores_BHls)
        d_rows, d_shared = _added((d_rows, d_shared), (more, of_shared))
      old = _cut(d_keys, j, how.tiles.keys)
      d_keys = _put(d_keys, _added(old, (dk_BHsE, dv_BHsE, d_columns)), j, how.tiles.keys)
      return (dq_BHlE, d_rows), d_keys, d_shared

    start = (jnp.zeros(q_BHlE.shape, dtype), jax.tree.map(jnp.zeros_like, rows_l))
    here = _over_keys(how, i, k_BHSE.shape[2], of_keys, (start, d_keys, d_shared))
    d_tile, d_keys, d_shared = here
    return _put(d_queries, d_tile, i, how.tiles.queries), d_keys, d_shared

  zeros = partial(jax.tree.map, jnp.zeros_like)
  wide_zeros = [jnp.zeros(a.shape, dtype) for a in (k_BHSE, v_BHSE)]
  start = ((zeros(q_BHLE), zeros(rows)), (*wide_zeros, zeros(columns)), zeros(shared))
  carry = _loop(0, q_BHLE.shape[2] // how.tiles.queries, of_queries, start)
  (dq_BHLE, d_rows), (dk_BHSE, dv_BHSE, d_columns), d_shared = carry
  dk_BHSE, dv_BHSE = dk_BHSE.astype(k_BHSE.dtype), dv_BHSE.astype(v_BHSE.dtype)
  return (dq_BHLE, dk_BHSE, dv_BHSE, d_rows, d_columns), d_shared


def _product(axes, a, b):
  """A product summed in float32 or wider; XLA's CPU backend lacks some of narrow dtypes."""
  dtype = wide(a.dtype)
  if backend() == 'cpu':
    a, b = a.astype(dtype), b.astype(dtype)
  return jnp.einsum(axes, a, b, preferred_element_type=dtype)


def _seen(how, i, j, query_Bl, key_Bs):
  """Which keys of a tile its queries see: bool, (B or 1, 1, l, s)."""
  queries, keys, _ = how.tiles
  seen = jnp.ones((1, 1, queries, keys), bool)
  if how.causal:
    query_l = i * queries + jnp.arange(queries, dtype=jnp.int32)
    key_s = j * keys + jnp.arange(keys, dtype=jnp.int32)
    seen = (query_l[:, None] >= key_s[None, :])[None, None]
  if query_Bl is not None:
    seen = seen & (query_Bl[:, None, :, None] == key_Bs[:, None, None, :])
  return seen


def _over_keys(how, i, length, body, start):
  """The loop over the tiles of keys that queries of tile i may see."""
  count = length // how.tiles.keys
  if how.causal:
    reach = -(-((i + 1) * how.tiles.queries) // how.tiles.keys)
    count = reach if isinstance(i, int) else jnp.minimum(reach, count)
  return _loop(0, count, body, start)


def _loop(first, end, body, carry):
  """A loop; unrolled where it is short."""
  if isinstance(end, int) and end <= UNROLLED:
    for i in range(first, end):
      carry = body(i, carry)
    return carry
  return jax.lax.fori_loop(first, end, body, carry)


def _cut(tree, i, size):
  """Tile i of each array, along axis 2, or axis 1 of what has no heads."""
  return jax.tree.map(
    lambda a: jax.lax.dynamic_slice_in_dim(a, i * size, size, axis=min(2, a.ndim - 1)), tree
  )


def _put(tree, parts, i, size):
  """Tile i of each array, set."""
  return jax.tree.map(
    lambda a, part: jax.lax.dynamic_update_slice_in_dim(a, part.astype(a.dtype), i * size, axis=2),
    tree,
    parts,
  )


def _added(tree, more):
  return jax.tree.map(jnp.add, tree, more)
