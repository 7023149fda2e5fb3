"""Softmax attention: the baseline, and the path that gated and filtered attention share."""

from typing import Any, ClassVar, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from sgnjax.mixers.base import Aux, Mixed, Mixer, blank
from sgnjax.ops.attention import attention, rope
from sgnjax.ops.backend import backend
from sgnjax.ops.biases import Bias, alibi, whole_bias
from sgnjax.ops.chunks import in_place
from sgnjax.ops.dtypes import wide
from sgnjax.ops.self_attention import self_attention
from sgnjax.parallel.sequence import CHANNELS, HEAD_KEYS, alone, constrain, shards


class Gate(NamedTuple):
  """A gate on the keys, in two parts, so that a cache can keep the first.

  key_BHSX: X numbers of each key and head. query: arrays of each query that the gate depends on
  too, or None.
  """

  key_BHSX: jax.Array
  query: Any


class KeyValueCache(NamedTuple):
  """Features, values and gates of the tokens so far, and how many each example has.

  Heads come first: a step then reads each head's slots as they lie. filter, gate: what the mixer's
  filter and gate carry from chunk to chunk, or None.
  """

  k_BHSF: jax.Array
  v_BHSE: jax.Array
  gate_BHSX: jax.Array | None
  segments_BS: jax.Array
  length_B: jax.Array
  filter: Any
  gate: Any


def append(cache: KeyValueCache, new: dict[str, jax.Array | None], mask_BL, segments_BL):
  """Writes a chunk behind each example's own tokens; padding is not written.

  new: what the fields with slots get, (B, H, L, any). Returns the cache after the chunk, which
  slots each query sees (`visible_BLS`), and the queries' own slots (`slot_BL`).
  """
  batch, _, length, _ = new['k_BHSF'].shape
  slots = cache.k_BHSF.shape[2]
  real_BL = jnp.ones((batch, length), bool) if mask_BL is None else mask_BL
  segments_BL = (
    jnp.zeros((batch, length), jnp.int32) if segments_BL is None else segments_BL.astype(jnp.int32)
  )
  slot_BL = cache.length_B[:, None] + jnp.arange(length, dtype=jnp.int32)[None, :]
  target_BL = jnp.where(real_BL, slot_BL, jnp.int32(slots))  # one past the end: dropped
  row_B1 = jnp.arange(batch, dtype=jnp.int32)[:, None]

  def write(old, chunk):
    chunk = chunk.swapaxes(1, 2).astype(old.dtype)

    def put(a):
      return a.at[row_B1, :, target_BL].set(chunk, mode='drop')

    return in_place(put, old, length, cache.length_B[0])

  written = {
    name: None if chunk is None else write(getattr(cache, name), chunk)
    for name, chunk in new.items()
  }
  segments_BS = cache.segments_BS.at[row_B1, target_BL].set(segments_BL, mode='drop')
  length_B = cache.length_B + jnp.sum(real_BL, axis=1, dtype=jnp.int32)
  after = cache._replace(**written, segments_BS=segments_BS, length_B=length_B)
  seen_BLS = jnp.arange(slots, dtype=jnp.int32)[None, None, :] <= slot_BL[:, :, None]
  same_BLS = after.segments_BS[:, None, :] == segments_BL[:, :, None]
  return after, seen_BLS & same_BLS & real_BL[:, :, None], slot_BL


class Attention(Mixer):
  """What the attending mixers share: projections into heads, positions, cache, and the way back.

  A subclass may filter queries and keys (`qk_features`) and gate the keys (`gate`, `log_gate`),
  both at once too. Columns h*E:(h+1)*E of each kernel belong to head h; E = width / heads.
  """

  @property
  def copies(self) -> int:
    """Filtered copies of queries and keys, side by side as features; scores are their mean."""
    return 1

  @property
  def feature_width(self) -> int:
    """Features of a head's queries and keys."""
    return self.width // self.heads

  @property
  def gate_width(self) -> int:
    """Numbers of each key and head that the gate keeps; 0 without a gate."""
    return 0

  def init_filter(self, batch: int, dtype) -> Any:
    """What `qk_features` carries from chunk to chunk, before the first token."""
    return None

  def init_gate(self, batch: int, dtype) -> Any:
    """What `gate` carries from chunk to chunk, before the first token."""
    return None

  def honours(self, mask_BL, segments_BL) -> None:
    """Raises UserError for what this mixer was given and does not honour."""

  def qk_features(self, q_BLHE, k_BLHE, *, positions_BL, mask_BL, segments_BL, state, train):
    """Features whose product gives the scores, those of keys to be kept; state; debug arrays."""
    return self.rotate(q_BLHE, positions_BL), self.rotate(k_BLHE, positions_BL), state, {}

  def gate(self, x_BLD, *, mask_BL, segments_BL, state) -> tuple[Gate | None, Any]:
    """The gate on the keys, of the mixer's own input; and its state after the chunk."""
    return None, state

  def log_gate(self, gate: Gate) -> Bias:
    """log g, as tiles of queries and keys are given it."""
    raise NotImplementedError

  def attend(self, q_BLHF, k_BHSF, v_BHSE, gate: Bias | None, biases, **how) -> jax.Array:
    """Values under the weights `softmax(scale q k^T + biases + log g)`.

    how: `scale` and `dropout`, and of a chunk with a cache `visible_BLS`, of a whole sequence
    `causal`, `mask_BL` and `segments_BL`.
    """
    biases = biases if gate is None else (*biases, gate)
    if 'visible_BLS' in how:  # the gate of a key too: as a feature it would copy all keys at a step
      bias_BHLS = whole_bias(biases)
      return attention(q_BLHF, k_BHSF, v_BHSE, bias_BHLS=bias_BHLS, **how)
    # Tiles of some examples, as a CPU has them, and of a split length would gather what is apart.
    path = None if alone() or (backend() != 'cpu' and shards()[1] == 1) else 'plain'
    return self_attention(q_BLHF, k_BHSF, v_BHSE, biases=biases, path=path, **how)

  @nn.compact
  def __call__(
    self, x_BLD, *, positions_BL=None, mask_BL=None, segments_BL=None, cache=None, train=False
  ) -> Mixed:
    self.honours(mask_BL, segments_BL)
    self.refuse(cache=cache)
    length = x_BLD.shape[1]
    if cache is not None and positions_BL is None:
      positions_BL = cache.length_B[:, None] + jnp.arange(length, dtype=jnp.int32)[None, :]
    what = {'mask_BL': mask_BL, 'segments_BL': segments_BL}
    gate, gate_state = self.gate(x_BLD, **what, state=None if cache is None else cache.gate)
    q_BLHE, k_BLHE, v_BLHE = (self.split(x_BLD, name) for name in 'qkv')
    q_BLHF, k_BLHF, filter_state, debug = self.qk_features(
      q_BLHE,
      k_BLHE,
      positions_BL=positions_BL,
      **what,
      state=None if cache is None else cache.filter,
      train=train,
    )
    q_BLHF = constrain(q_BLHF, CHANNELS)
    k_BHSF, v_BHSE = (constrain(a.swapaxes(1, 2), HEAD_KEYS) for a in (k_BLHF, v_BLHE))
    if cache is None:
      how = {'causal': self.form != 'bidirectional', **what}
      query_slot_BL = jnp.arange(length, dtype=jnp.int32)[None, :]
    else:
      new = {'k_BHSF': k_BHSF, 'v_BHSE': v_BHSE, 'gate_BHSX': gate and gate.key_BHSX}
      cache, visible_BLS, query_slot_BL = append(cache, new, mask_BL, segments_BL)
      how = {'visible_BLS': visible_BLS}
      cache = cache._replace(filter=filter_state, gate=gate_state)
      k_BHSF, v_BHSE = (a.astype(q_BLHF.dtype) for a in (cache.k_BHSF, cache.v_BHSE))
      gate = gate and gate._replace(key_BHSX=cache.gate_BHSX)
    log_gate = None if gate is None else self.log_gate(gate)
    biases = ()
    if self.positions == 'alibi':  # distances inside a segment are those between slots
      key_slot_BS = jnp.arange(k_BHSF.shape[2], dtype=jnp.int32)[None, :]
      biases = (alibi(query_slot_BL, key_slot_BS, self.heads, dtype=wide(self.dtype)),)
    y_BLHE = self.attend(
      q_BLHF,
      k_BHSF,
      v_BHSE,
      log_gate,
      biases,
      scale=(self.width // self.heads) ** -0.5 / self.copies,
      dropout=self.weight_dropout(train),
      **how,
    )
    if self.capture and log_gate is not None:  # of each key, as the last query sees it
      last = log_gate._replace(rows=jax.tree.map(lambda a: a[:, :, -1:], log_gate.rows))
      debug['gate'] = jnp.exp(whole_bias((last,))[:, :, 0])
    return Mixed(self.join(y_BLHE, mask_BL, train), Aux({}, {}, debug), cache)

  def split(self, x_BLD: jax.Array, name: str) -> jax.Array:
    """Projection `name` of x, split into heads."""
    batch, length, _ = x_BLD.shape
    y_BLD = self.dense(self.width, name, self.qkv_bias)(x_BLD)
    return y_BLD.reshape(batch, length, self.heads, self.width // self.heads)

  def rotate(self, x_BLHE: jax.Array, positions_BL: jax.Array | None) -> jax.Array:
    """RoPE, where the model has it."""
    if self.positions != 'rope':
      return x_BLHE
    if positions_BL is None:
      positions_BL = jnp.arange(x_BLHE.shape[1], dtype=jnp.int32)[None, :]
    return rope(x_BLHE, positions_BL, self.rope_base)

  def weight_dropout(self, train: bool):
    """The dropout on attention weights, as `attention` takes it."""
    return (self.make_rng('dropout'), self.dropout) if train and self.dropout else None

  def join(self, y_BLHE: jax.Array, mask_BL: jax.Array | None, train: bool) -> jax.Array:
    """Heads side by side, projected; zero at padding."""
    y_BLD = y_BLHE.reshape(*y_BLHE.shape[:2], self.width)
    y_BLD = self.dense(self.width, 'o', self.out_bias)(y_BLD)
    return blank(nn.Dropout(self.dropout)(y_BLD, deterministic=not train), mask_BL)

  def empty_cache(self, batch: int, max_len: int, dtype) -> KeyValueCache:
    """An empty cache of max_len slots an example; a subclass states its memory."""

    def slots(width, dtype=dtype):
      return jnp.zeros((batch, self.heads, max_len, width), dtype)

    gate_width = self.gate_width
    return KeyValueCache(
      k_BHSF=slots(self.feature_width),
      v_BHSE=slots(self.width // self.heads),
      gate_BHSX=slots(gate_width, wide(dtype)) if gate_width else None,
      segments_BS=jnp.zeros((batch, max_len), jnp.int32),
      length_B=jnp.zeros((batch,), jnp.int32),
      filter=self.init_filter(batch, dtype),
      gate=self.init_gate(batch, wide(dtype)),
    )


class Softmax(Attention):
  """Multi-head softmax attention; causal in every form but `bidirectional`.

  4 width^2 parameters, and 3 width (qkv_bias) and width (out_bias). Cache of an example and layer:
  in each of max_len slots 2 width numbers of `dtype` and an int32, and one int32 more.
  """

  group: ClassVar[str] = 'softmax'
  published_leaks: ClassVar[bool] = False
