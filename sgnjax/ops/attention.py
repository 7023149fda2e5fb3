"""Softmax attention with a gate on its keys, rotary positions, and who may see whom."""

import jax
import jax.numpy as jnp
import numpy as np

from sgnjax.errors import UserError
from sgnjax.ops.backend import backend
from sgnjax.ops.dtypes import wide


def rope(x_BLHE: jax.Array, positions_BL: jax.Array, base: float) -> jax.Array:
  """Rotary positions on the pairs (i, i + E/2), by the angle `t * base^(-2i/E)`.

  x: (B, L, H, E) with even E; positions: integers, (B or 1, L). Angles in float32 or wider; the
  result has x's shape and dtype. Raises UserError for an odd E. Source: RoFormer, eq. 34, on
  half-split pairs.
  """
  features = x_BLHE.shape[-1]
  if features % 2:
    raise UserError(f'rotary positions need an even head width, but it is {features}')
  dtype = wide(x_BLHE.dtype)
  frequency_P = jnp.asarray(float(base) ** (-2 * np.arange(features // 2) / features), dtype)
  angle_BL1P = (positions_BL.astype(dtype)[:, :, None] * frequency_P[None, None, :])[:, :, None, :]
  cos, sin = jnp.cos(angle_BL1P), jnp.sin(angle_BL1P)
  first, second = jnp.split(x_BLHE.astype(dtype), 2, axis=-1)
  rotated = jnp.concatenate([first * cos - second * sin, second * cos + first * sin], -1)
  return rotated.astype(x_BLHE.dtype)


def visible(
  length: int,
  *,
  causal: bool,
  mask_BL: jax.Array | None = None,
  segments_BL: jax.Array | None = None,
) -> jax.Array:
  """Which keys (last axis) each query sees: bool, (B or 1, L, L).

  causal: none after the query. mask: True for real tokens; padding neither sees nor is seen.
  segments: integers; only tokens of one segment see each other.
  """
  seen_BLS = jnp.ones((1, length, length), bool)
  if causal:
    seen_BLS = jnp.tril(seen_BLS)
  if mask_BL is not None:
    seen_BLS = seen_BLS & mask_BL[:, :, None] & mask_BL[:, None, :]
  if segments_BL is not None:
    seen_BLS = seen_BLS & (segments_BL[:, :, None] == segments_BL[:, None, :])
  return seen_BLS


def attention(
  q_BLHE: jax.Array,
  k_BHSE: jax.Array,
  v_BHSE: jax.Array,
  *,
  scale: float,
  visible_BLS: jax.Array,
  log_gate_BHS: jax.Array | None = None,
  bias_BHLS: jax.Array | None = None,
  dropout: tuple[jax.Array, float] | None = None,
) -> jax.Array:
  """`softmax(scale q k^T + log g + bias) v` over the visible keys: (B, L, H, width of v).

  q: (B, L, H, E), L queries; k: (B, H, S, E), S keys, heads first as products and caches read them;
  v: (B, H, S, any width); visible: bool, (B or 1, L, S). log_gate: finite, one a key and head.
  bias: (B or 1, H or 1, L or 1, S), for gates that depend on the query too. dropout: (rng, rate) on
  the weights. Scores and softmax in float32 or wider; the result has v's dtype. A hidden key has
  weight exactly 0; a query that sees no key gets zeros.
  Source: EGA, renormalised gated attention, `A g / sum A g = softmax(S + log g)`.
  """
  weights_BHLS = attention_weights(
    q_BLHE,
    k_BHSE,
    scale=scale,
    visible_BLS=visible_BLS,
    log_gate_BHS=log_gate_BHS,
    bias_BHLS=bias_BHLS,
    dropout=dropout,
  )
  narrow_BHLS = weights_BHLS.astype(v_BHSE.dtype)
  y_BLHE = _product('bhls,bhse->blhe', narrow_BHLS, v_BHSE, weights_BHLS.dtype)
  return y_BLHE.astype(v_BHSE.dtype)


def attention_weights(
  q_BLHE: jax.Array,
  k_BHSE: jax.Array,
  *,
  scale: float,
  visible_BLS: jax.Array,
  log_gate_BHS: jax.Array | None = None,
  bias_BHLS: jax.Array | None = None,
  dropout: tuple[jax.Array, float] | None = None,
) -> jax.Array:
  """The weights of `attention`, (B, H, L, S), in float32 or wider; same arguments, without v."""
  dtype = wide(q_BLHE.dtype)
  if log_gate_BHS is not None:
    q_BLHE, k_BHSE = append_gate(q_BLHE, k_BHSE, log_gate_BHS, scale)
  scores_BHLS = _product('blhe,bhse->bhls', q_BLHE, k_BHSE, dtype)
  scores_BHLS = scores_BHLS * jnp.asarray(scale, dtype)
  if bias_BHLS is not None:
    scores_BHLS = scores_BHLS + bias_BHLS.astype(dtype)
  weights_BHLS = _masked_softmax(scores_BHLS, visible_BLS[:, None])
  if dropout is not None:
    rng, rate = dropout
    keep_BHLS = jax.random.bernoulli(rng, 1 - rate, weights_BHLS.shape)
    weights_BHLS = jnp.where(keep_BHLS, weights_BHLS / (1 - rate), jnp.zeros((), dtype))
  return weights_BHLS


def _product(axes, a, b, dtype):
  """A product summed in a wider dtype.

  XLA's CPU backend lacks some bfloat16 products with float32 sums; widening first gives the same
  numbers there, products of two bfloat16 numbers being exact in float32. One query (axis l, of a)
  is a product with a vector: as one with a matrix, XLA would transpose all keys for it.
  """
  if backend() == 'cpu':
    a, b = a.astype(dtype), b.astype(dtype)
  at = axes.index('l')
  if a.shape[at] > 1:
    return jnp.einsum(axes, a, b, preferred_element_type=dtype)
  y = jnp.einsum(axes.replace('l', ''), a.squeeze(at), b, preferred_element_type=dtype)
  return jnp.expand_dims(y, axes.partition('->')[2].index('l'))


def append_gate(q_BLHE, k_BHSE, log_gate_BHS, scale):
  """log g as further features of the keys, so that the product of queries and keys adds it.

  The features hold log g / scale and the queries 1, which every dtype holds exactly. Narrow dtypes
  take a second feature for what the rounding of the first leaves: weights are exp(log g), so a
  bfloat16 log g alone would be off by per cents.
  """
  dtype = wide(k_BHSE.dtype)
  feature_BHS1 = (log_gate_BHS.astype(dtype) / jnp.asarray(scale, dtype))[..., None]
  features = [feature_BHS1.astype(k_BHSE.dtype)]
  if k_BHSE.dtype != dtype:
    # reduce_precision, since compilers may drop the rounding of a cast there and back.
    kind = jnp.finfo(k_BHSE.dtype)
    high_BHS1 = jax.lax.reduce_precision(feature_BHS1, kind.nexp, kind.nmant)
    features = [high_BHS1, feature_BHS1 - high_BHS1]
    features = [feature.astype(k_BHSE.dtype) for feature in features]
  ones_BLHX = jnp.ones((*q_BLHE.shape[:3], len(features)), q_BLHE.dtype)
  return jnp.concatenate([q_BLHE, ones_BLHX], -1), jnp.concatenate([k_BHSE, *features], -1)


def _masked_softmax(scores_BHLS, seen_BHLS):
  """Softmax over the seen keys: others get exactly 0, a row without any gets all zeros."""
  zero = jnp.zeros((), scores_BHLS.dtype)
  lowest = jnp.asarray(jnp.finfo(scores_BHLS.dtype).min, scores_BHLS.dtype)
  scores_BHLS = jnp.where(seen_BHLS, scores_BHLS, lowest)
  top_BHL1 = jax.lax.stop_gradient(jnp.max(scores_BHLS, -1, keepdims=True))
  mass_BHLS = jnp.where(seen_BHLS, jnp.exp(scores_BHLS - top_BHL1), zero)
  total_BHL1 = jnp.sum(mass_BHLS, -1, keepdims=True)
  # The largest seen key has mass 1, so a total of 0 is a row that sees nothing.
  return mass_BHLS / jnp.where(total_BHL1 > zero, total_BHL1, jnp.ones_like(total_BHL1))
