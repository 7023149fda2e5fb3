"""Attention by feature maps in O(L): causal by blocks, both ways by plain sums, and in chunks."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from sgnjax.ops.averages import runs
from sgnjax.ops.chunks import carried, whole
from sgnjax.ops.dtypes import wide

BLOCK = 64  # tokens of a block of the causal form: L * BLOCK scores a head
FLOOR = 1e-18  # under the normaliser: float32 holds gradients times its inverse


class LinearState(NamedTuple):
  """Sums over the keys so far, relative to `exp(top)`; their segment; tokens read.

  The last column of the sums is the normaliser z, the others are S.
  """

  sums_BHFX: jax.Array
  top_BH: jax.Array
  segment_B: jax.Array
  length_B: jax.Array


def empty_state(batch: int, heads: int, features: int, width: int, dtype) -> LinearState:
  """Before the first token: heads * features * (width + 1) numbers an example, whatever length.

  They are sums, so they are kept in float32 or wider.
  """
  return LinearState(
    jnp.zeros((batch, heads, features, width + 1), wide(dtype)),
    jnp.full((batch, heads), _nothing(wide(dtype))),
    jnp.zeros((batch,), jnp.int32),
    jnp.zeros((batch,), jnp.int32),
  )


def elu_features(x: jax.Array) -> jax.Array:
  """`elu(x) + 1`, positive, in float32 or wider (Linear Transformers, eq. 7)."""
  x = x.astype(wide(x.dtype))
  # elu(x) + 1 as written rounds to 0 where exp(x) is below the dtype's eps.
  zero, one = jnp.zeros((), x.dtype), jnp.ones((), x.dtype)
  return jnp.where(x > zero, x + one, jnp.exp(jnp.where(x > zero, zero, x)))


def orthogonal_directions(heads: int, count: int, width: int, seed: int = 0) -> np.ndarray:
  """Random directions with the norms of Gaussian vectors, orthogonal in blocks: float64 (H, F, E).

  Each alone is N(0, I), which keeps the kernel's estimate unbiased; those of a block of `width` are
  orthogonal to each other, which makes it less noisy (Performers, section 2.4). NumPy promises the
  numbers of RandomState for all time: weights trained with these directions meet them again.
  """
  rng = np.random.RandomState(seed)
  shape = (heads, -(-count // width), width, width)
  q_HNEE, r_HNEE = np.linalg.qr(rng.standard_normal(shape))
  # QR fixes signs by its own convention; those of R's diagonal make q uniform.
  q_HNEE = q_HNEE * np.sign(np.einsum('hnee->hne', r_HNEE))[:, :, None, :]
  norm_HNE = np.linalg.norm(rng.standard_normal(shape), axis=-1)
  rows_HNEE = np.swapaxes(q_HNEE, -1, -2) * norm_HNE[..., None]
  return rows_HNEE.reshape(heads, -1, width)[:, :count]


def positive_features(x_BLHE: jax.Array, w_HFE: jax.Array) -> tuple[jax.Array, jax.Array]:
  """FAVOR+ features `exp(w x - |x|^2 / 2)` as `features * exp(scale)` (Performers, lemma 1).

  Over w ~ N(0, I) the product of two tokens' features has the mean exp(x y). The scale, (B, L, H),
  is the token's own largest exponent, without gradient: features (B, L, H, F) are at most 1 and
  depend on no other token. (The paper's code takes the maximum over all keys, which looks ahead.)
  In float32 or wider.
  """
  x_BLHE = x_BLHE.astype(wide(x_BLHE.dtype))
  exponent_BLHF = jnp.einsum('blhe,hfe->blhf', x_BLHE, w_HFE.astype(x_BLHE.dtype))
  half_square_BLH1 = jnp.sum(x_BLHE**2, axis=-1, keepdims=True) / jnp.asarray(2, x_BLHE.dtype)
  exponent_BLHF = exponent_BLHF - half_square_BLH1
  scale_BLH = jax.lax.stop_gradient(jnp.max(exponent_BLHF, axis=-1))
  return jnp.exp(exponent_BLHF - scale_BLH[..., None]), scale_BLH


def linear_attention(
  q_BLHF: jax.Array,
  k_BLHF: jax.Array,
  v_BLHE: jax.Array,
  *,
  causal: bool,
  scale_BLH: jax.Array | None = None,
  mask_BL: jax.Array | None = None,
  segments_BL: jax.Array | None = None,
  state: LinearState | None = None,
) -> tuple[jax.Array, LinearState | None]:
  """`sum_s (q k_s) e^scale_s v_s / sum_s (q k_s) e^scale_s`, and the state after these tokens.

  q, k: features, none negative, (B, L, H, F); v: (B, L, H, E); scale: a logarithm a key. The sums
  run over the real tokens s of each query's run, up to it (causal) or all. mask: True on real
  tokens, which come first in a row; segments: as in `runs`. state: causal only, what went before;
  padding leaves it as it is. What sees nothing gets zeros, padding too. Computed in float32 or
  wider, returned in v's dtype.

  Causal, blocks of `BLOCK` tokens follow each other in a scan: inside a block by scores, before it
  by the state. Memory is O(L), L x F x E never exists, and a later token has weight exactly 0.
  Scales count relative to the largest that the query sees, as in online softmax: no exponential
  overflows, none looks ahead. Source: Linear Transformers, eqs. 4, 5, 9 and 18-20.
  """
  compute = wide(v_BLHE.dtype)
  batch, length, heads, width = v_BLHE.shape
  segmented = segments_BL is not None
  real_BL, segments_BL = whole(batch, length, mask_BL, segments_BL)
  run_BL = segments_BL  # of one run there is nothing to number
  if segmented or state is not None:
    run_BL = runs(segments_BL, real_BL, None if state is None else state.segment_B)
  one_BLH1 = jnp.ones((batch, length, heads, 1), compute)
  if scale_BLH is None:
    scale_BLH = jnp.zeros((batch, length, heads), compute)
  tokens = {
    'q': q_BLHF.astype(compute),
    'k': k_BLHF.astype(compute),
    'v': jnp.concatenate([v_BLHE.astype(compute), one_BLH1], axis=-1),
    'scale': scale_BLH.astype(compute),
    'real': real_BL,
    'run': run_BL,
  }
  after = None
  if causal:
    start = empty_state(batch, heads, q_BLHF.shape[-1], width, compute) if state is None else state
    start = (start.sums_BHFX.astype(compute), start.top_BH.astype(compute))
    sums_BLHX, _, (past_BHFX, past_top_BH) = _prefix_sums(tokens, start)
    if state is not None:
      after = LinearState(
        past_BHFX.astype(state.sums_BHFX.dtype),
        past_top_BH.astype(state.top_BH.dtype),
        carried(state.segment_B, segments_BL, real_BL),
        state.length_B + jnp.sum(real_BL, axis=1, dtype=jnp.int32),
      )
  else:
    sums_BLHX = _sums_both_ways(tokens, segmented=segmented)
  total_BLH1 = jnp.maximum(sums_BLHX[..., -1:], jnp.asarray(FLOOR, compute))
  # Both over their size first: the gradient of a quotient squares the inverse of what is below.
  size_BLH1 = jax.lax.stop_gradient(total_BLH1)
  y_BLHE = (sums_BLHX[..., :-1] / size_BLH1) / (total_BLH1 / size_BLH1)
  y_BLHE = jnp.where(real_BL[:, :, None, None], y_BLHE, jnp.zeros((), compute))
  return y_BLHE.astype(v_BLHE.dtype), after


def _nothing(dtype) -> jax.Array:
  """The logarithm of no weight: finite, so that differences are, and its exponential is 0."""
  return jnp.asarray(jnp.finfo(dtype).min / 4, dtype)


def _weight(seen, scale, top):
  """`exp(scale - top)` of what is seen, 0 of the rest."""
  return jnp.exp(jnp.where(seen, scale - top, _nothing(scale.dtype)))


def _largest(seen, scale, axis=None):
  """Largest scale of what is seen, over the axis where one is given; without gradient."""
  scale = jax.lax.stop_gradient(jnp.where(seen, scale, _nothing(scale.dtype)))
  return scale if axis is None else jnp.max(scale, axis=axis)


def _sums_both_ways(tokens, *, segmented: bool):
  """Sums over all of each query's run, (B, L, H, X), relative to an own scale each."""
  if not segmented:
    scale_BLH, real_BL1 = tokens['scale'], tokens['real'][:, :, None]
    top_B1H = _largest(real_BL1, scale_BLH, 1)[:, None]
    k_BLHF = tokens['k'] * _weight(real_BL1, scale_BLH, top_B1H)[..., None]
    sums_BHFX = jnp.einsum('blhf,blhx->bhfx', k_BLHF, tokens['v'])
    return jnp.einsum('blhf,bhfx->blhx', tokens['q'], sums_BHFX)
  batch, _, heads, features = tokens['k'].shape
  width = tokens['v'].shape[-1] - 1
  nothing = empty_state(batch, heads, features, width, tokens['v'].dtype)[:2]
  past_BLHX, past_top_BLH, _ = _prefix_sums(tokens, nothing)
  backwards = {name: jnp.flip(x, 1) for name, x in tokens.items()}
  future = _prefix_sums(backwards, nothing, itself=False)
  future_BLHX, future_top_BLH = (jnp.flip(x, 1) for x in future[:2])
  top_BLH = jnp.maximum(past_top_BLH, future_top_BLH)
  past_BLHX = past_BLHX * jnp.exp(past_top_BLH - top_BLH)[..., None]
  return past_BLHX + future_BLHX * jnp.exp(future_top_BLH - top_BLH)[..., None]


def _prefix_sums(tokens, start, *, itself: bool = True):
  """Sums over each query's past in its run, relative to a scale each; sums and scale at the end.

  start: sums and scale of run 0 before the first token. itself: whether a token sees itself.
  Result: (B, L, H, X), (B, L, H), and ((B, H, F, X), (B, H)).
  """
  batch, length = tokens['real'].shape
  size = min(BLOCK, length)
  count = -(-length // size)
  before_CC = jnp.tril(jnp.ones((size, size), bool), 0 if itself else -1)

  def blocked(name, x):
    """(blocks, B, C, ...); what fills the last block is no token, and of the last run."""
    fill = [(0, 0), (0, count * size - length)] + [(0, 0)] * (x.ndim - 2)
    x = jnp.pad(x, fill, mode='edge' if name == 'run' else 'constant')
    return x.reshape(batch, count, size, *x.shape[2:]).swapaxes(0, 1)

  def step(carry, block):
    sums_BHFX, top_BH, past_run_B = carry
    q_BCHF, k_BCHF, v_BCHX, run_BC = (block[name] for name in ('q', 'k', 'v', 'run'))
    scale_BHS = block['scale'].swapaxes(1, 2)
    same_BCS = run_BC[:, :, None] == run_BC[:, None, :]
    sees_B1CS = (before_CC[None] & same_BCS & block['real'][:, None, :])[:, None]
    past_B1C = (run_BC == past_run_B[:, None])[:, None]
    top_BHC = jnp.maximum(
      _largest(sees_B1CS, scale_BHS[:, :, None, :], -1), _largest(past_B1C, top_BH[:, :, None])
    )
    scores_BHCS = jnp.einsum('bchf,bshf->bhcs', q_BCHF, k_BCHF)
    scores_BHCS = scores_BHCS * _weight(sees_B1CS, scale_BHS[:, :, None, :], top_BHC[..., None])
    past_BHC = _weight(past_B1C, top_BH[:, :, None], top_BHC)
    y_BHCX = jnp.einsum('bhcs,bshx->bhcx', scores_BHCS, v_BCHX)
    y_BHCX = y_BHCX + past_BHC[..., None] * jnp.einsum('bchf,bhfx->bhcx', q_BCHF, sums_BHFX)
    # The last run alone goes on into the next block.
    last_run_B = run_BC[:, -1]
    keeps_B1 = (past_run_B == last_run_B)[:, None]
    adds_B1S = (block['real'] & (run_BC == last_run_B[:, None]))[:, None]
    next_BH = jnp.maximum(_largest(adds_B1S, scale_BHS, -1), _largest(keeps_B1, top_BH))
    added_BHS = _weight(adds_B1S, scale_BHS, next_BH[:, :, None])
    sums_BHFX = sums_BHFX * _weight(keeps_B1, top_BH, next_BH)[:, :, None, None]
    sums_BHFX = sums_BHFX + jnp.einsum('bshf,bhs,bshx->bhfx', k_BCHF, added_BHS, v_BCHX)
    return (sums_BHFX, next_BH, last_run_B), (y_BHCX.swapaxes(1, 2), top_BHC.swapaxes(1, 2))

  blocks = {name: blocked(name, x) for name, x in tokens.items()}
  first = (*start, jnp.zeros((batch,), jnp.int32))
  (*end, _), outputs = jax.lax.scan(step, first, blocks)
  sums_BLHX, top_BLH = (
    x.swapaxes(0, 1).reshape(batch, count * size, *x.shape[3:])[:, :length] for x in outputs
  )
  return sums_BLHX, top_BLH, tuple(end)
