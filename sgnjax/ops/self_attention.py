"""Attention of a whole sequence over itself: one call, and the path that serves it best.

plain: `attention`, the reference, with (L, S) weights in memory. blocked: by tiles. fused: cuDNN's
kernel, through `jax.nn.dot_product_attention`.
"""

import jax
import jax.numpy as jnp

from sgnjax.errors import check_choice
from sgnjax.ops.attention import append_gate, attention, visible
from sgnjax.ops.backend import backend, tiles
from sgnjax.ops.biases import Bias, by_key, sum_of, whole_bias
from sgnjax.ops.blocked_attention import Tiles, blocked_attention

PATHS = ('plain', 'blocked', 'fused')
# From which length tiles are taken. On a CPU (L, S) arrays leave its caches early: of 4,096 tokens,
# causal, with 8 heads of 32, forward and gradient, tiles took 3.2 times the plain path's time at 64
# tokens a row, 0.75 at 128, 0.42 at 256 (two busy processors). On others fused elementwise code
# serves until the arrays fill the memory; where that is, and the tiles there, is reckoned.
BLOCKED_FROM = {'cpu': 128, 'gpu': 2048, 'tpu': 2048}
TILE = {'cpu': 128, 'gpu': 1024, 'tpu': 1024}
# Scores of a tile on a CPU: with what is made of them, within a core's cache. Of 16 rows of 256
# tokens, 8 heads, 128 x 128 scores of 2 rows took 70 ms with the gradient, of 1 row 84, of all 324.
CACHE = 1 << 18
FUSED_WIDTH = 128  # the widest head of cuDNN's kernels on every GPU that has them; multiples of 8


def self_attention(
  q_BLHE: jax.Array,
  k_BHSE: jax.Array,
  v_BHSE: jax.Array,
  *,
  scale: float,
  causal: bool,
  mask_BL: jax.Array | None = None,
  segments_BL: jax.Array | None = None,
  biases: tuple[Bias, ...] = (),
  dropout: tuple[jax.Array, float] | None = None,
  path: str | None = None,
) -> jax.Array:
  """`softmax(scale q k^T + biases) v` of a sequence with itself: (B, L, H, E).

  Shapes, dtypes and dropout as in `attention`, with S = L; mask and segments as in `visible`.
  Biases are given by what a tile adds, so that one which depends on query and key need not be
  whole; one of keys alone (`of_keys`) becomes features where a path has no tiles. path: None
  (chosen by backend, length and what is asked), or one of `PATHS`; paths agree to rounding. Dropout
  on the weights takes the plain one. Raises UserError for another path.
  """
  if path is None:
    path = chosen(q_BLHE, v_BHSE, segments_BL=segments_BL, biases=biases, dropout=dropout)
  check_choice('path', path, PATHS)
  what = {'mask_BL': mask_BL, 'segments_BL': segments_BL}
  if path == 'blocked':
    how = {'scale': scale, 'causal': causal, 'tiles': tiles_of(q_BLHE), **what}
    return blocked_attention(q_BLHE, k_BHSE, v_BHSE, bias=sum_of(biases), **how)
  of_key = sum_of(tuple(bias for bias in biases if bias.of is by_key))
  log_gate_BHS = None
  if of_key is not None:
    log_gate_BHS = whole_bias((of_key,))[:, :, 0]
  if path == 'fused':
    return _fused(q_BLHE, k_BHSE, v_BHSE, scale, causal, mask_BL, log_gate_BHS)
  return attention(
    q_BLHE,
    k_BHSE,
    v_BHSE,
    scale=scale,
    visible_BLS=visible(q_BLHE.shape[1], causal=causal, **what),
    log_gate_BHS=log_gate_BHS,
    bias_BHLS=whole_bias(tuple(bias for bias in biases if bias.of is not by_key)),
    dropout=dropout,
  )


def chosen(q_BLHE, v_BHSE, *, segments_BL=None, biases=(), dropout=None) -> str:
  """The path for these inputs."""
  if dropout is not None or not tiles():
    return 'plain'
  narrow = q_BLHE.dtype in (jnp.bfloat16, jnp.float16)
  width = max(q_BLHE.shape[-1] + 2, v_BHSE.shape[-1])  # with a gate as two features
  features = all(bias.of is by_key for bias in biases)
  if backend() == 'gpu' and narrow and width <= FUSED_WIDTH and features and segments_BL is None:
    return 'fused'
  return 'blocked' if q_BLHE.shape[1] >= BLOCKED_FROM[backend()] else 'plain'


def tiles_of(q_BLHE: jax.Array) -> Tiles:
  """Tiles that the caches of a CPU hold, or that fill other devices."""
  batch, _, heads, _ = q_BLHE.shape
  if backend() != 'cpu':
    return Tiles(TILE[backend()], TILE[backend()], batch)
  side = TILE['cpu']
  while side > 32 and heads * side * side > CACHE:
    side //= 2
  return Tiles(side, side, max(1, CACHE // (heads * side * side)))


def _fused(q_BLHE, k_BHSE, v_BHSE, scale, causal, mask_BL, log_gate_BHS, implementation='cudnn'):
  """Through cuDNN: the gate as features, all widths padded to one multiple of 8."""
  width = v_BHSE.shape[-1]
  if log_gate_BHS is not None:
    q_BLHE, k_BHSE = append_gate(q_BLHE, k_BHSE, log_gate_BHS, scale)
  common = -(-max(q_BLHE.shape[-1], width) // 8) * 8
  count_B = None if mask_BL is None else jnp.sum(mask_BL, axis=1, dtype=jnp.int32)
  inputs = (q_BLHE, k_BHSE.swapaxes(1, 2), v_BHSE.swapaxes(1, 2).astype(q_BLHE.dtype))
  y_BLHE = jax.nn.dot_product_attention(
    *(jnp.pad(a, ((0, 0), (0, 0), (0, 0), (0, common - a.shape[-1]))) for a in inputs),
    scale=scale,
    is_causal=causal,
    query_seq_lengths=count_B,
    key_value_seq_lengths=count_B,
    implementation=implementation,
  )[..., :width]
  if mask_BL is not None:
    y_BLHE = jnp.where(mask_BL[:, :, None, None], y_BLHE, jnp.zeros((), y_BLHE.dtype))
  return y_BLHE.astype(v_BHSE.dtype)
