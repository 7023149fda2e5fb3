"""Causal convolutions and dense causal operators over a sequence that arrives in chunks.

A stream is a state and `stream(state, x, make, mask)`; the state is empty of kernels (None) until
the first chunk, when `make()` is called once for what depends on parameters alone. From then on its
structure stays, so that the steps of a generation are one scan. Examples share a clock, which
starts anew, at each example's own end, after every chunk of more than one token or with a mask.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from sgnjax.ops.chunks import in_place
from sgnjax.ops.dtypes import wide
from sgnjax.ops.kernels import causal_conv, fast_length

FORMS = ('auto', 'ring', 'blocked')
STRIP = 64  # inputs that the ring form takes at once
# Where auto turns from ring to blocked. Microseconds a step, ring | blocked, one example, float32,
# best of five on two CPU cores with other work on them. Width 64: 4 | 19 at 256 lags, 9 | 28 at
# 512, 32 | 29 at 1,024, 100 | 31 at 4,096; width 512: 86 | 107, 301 | 121, 278 | 64, 1,239 | 170.
RING_LAGS = 512
DIRECT = 3  # blocks of fewer than 2^DIRECT inputs are summed directly, without an FFT


class Ring(NamedTuple):
  """The last S = lags + 1 inputs: every step is one pass over them, O(S).

  inputs_BSC: the oldest in slot `clock`. kernel_XSC: lags S-1..0, twice, of X filters.
  """

  inputs_BSC: jax.Array
  kernel_XSC: jax.Array | None
  clock: jax.Array


class Blocked(NamedTuple):
  """Relaxed online convolution: O(log^2 P) a step on average, P the power of two from lags on.

  slots_BXCP: before slot `clock` inputs (in filter 0 alone), from it on sums that the outputs of
  those slots have collected so far: an output needs its slot no longer when its input comes.
  kernel_XCT: lags 0..lags, padded to 2^DIRECT at least. response_XCF: of each block size 2^k
  from 2^DIRECT to P the rFFT of lags 0..2^(k+1)-1. next_BXC: the sums in slot `clock`.
  Source: van der Hoeven 2002, relaxed multiplication; Oncescu et al. 2024, the tiling.
  """

  slots_BXCP: jax.Array
  kernel_XCT: jax.Array | None
  response_XCF: tuple[jax.Array, ...] | None
  next_BXC: jax.Array
  clock: jax.Array


class Rows(NamedTuple):
  """All T inputs so far and the rows of a dense causal operator: O(T) a step."""

  inputs_BTD: jax.Array
  operator_TTD: jax.Array | None
  length_B: jax.Array


def begin(form: str, batch: int, lags: int, filters: int, channels: tuple[int, ...], dtype):
  """An empty stream in a form of FORMS, for kernels of `filters` filters with these lags."""
  if form == 'blocked' or (form == 'auto' and lags > RING_LAGS):
    return blocked(batch, lags, filters, channels, dtype)
  return ring(batch, lags, channels, dtype)


def ring(batch: int, lags: int, channels: tuple[int, ...], dtype) -> Ring:
  """An empty stream. In the end, C' the kernel's channels: S B C + 2 S X C' numbers, and 1."""
  inputs_BSC = jnp.zeros((batch, lags + 1, *channels), dtype)
  return Ring(inputs_BSC, None, jnp.zeros((), jnp.int32))


def blocked(batch: int, lags: int, filters: int, channels: tuple[int, ...], dtype) -> Blocked:
  """An empty stream. In the end: (P + 1) X B C numbers, X C' (lags + 1 + about 4 P), and 1."""
  block = 1 << max(lags - 1, 0).bit_length()
  slots_BXCP = jnp.zeros((batch, filters, *channels, block), wide(dtype))
  return Blocked(slots_BXCP, None, None, slots_BXCP[..., 0], jnp.zeros((), jnp.int32))


def rows(batch: int, length: int, width: int, dtype) -> Rows:
  """An empty stream of at most `length` tokens. In the end: T B D + T^2 D and B numbers."""
  inputs_BTD = jnp.zeros((batch, length, width), dtype)
  return Rows(inputs_BTD, None, jnp.zeros((batch,), jnp.int32))


def fresh(state: Ring | Blocked | Rows) -> bool:
  """Whether no chunk has come yet: known while tracing."""
  return state[1] is None


def stream(state: Ring | Blocked, x_BLC: jax.Array, make, mask_BL: jax.Array | None = None):
  """`y_t = sum_tau h[tau] x[t - tau]` over all chunks so far; (y_BLXC in x's dtype, state after).

  x_BLC: (B, L, *C), zero where the mask is false, which is on the right alone. make: called at the
  first chunk, gives h of X filters, (lags 0.., X, *C') with C' broadcastable to C; lags beyond the
  stream's own are cut.
  """
  kind = _ring if isinstance(state, Ring) else _blocked
  return kind(state, x_BLC, make, mask_BL)


def stream_rows(state: Rows, x_BLD: jax.Array, make, mask_BL: jax.Array | None = None):
  """`y_t = sum_{s <= t} M[t, s] x_s` over all chunks so far, as `stream`; make: M (T', T', D)."""
  batch, length, _ = x_BLD.shape
  slots = state.inputs_BTD.shape[1]
  operator_TTD = state.operator_TTD
  if operator_TTD is None:
    operator_TTD = make()[:slots, :slots].astype(x_BLD.dtype)
  at_BL = state.length_B[:, None] + jnp.arange(length, dtype=jnp.int32)[None, :]
  real_BL = jnp.ones((batch, length), bool) if mask_BL is None else mask_BL
  target_BL = jnp.where(real_BL, at_BL, jnp.int32(slots))  # one past the end: dropped
  row_B1 = jnp.arange(batch, dtype=jnp.int32)[:, None]
  chunk_BLD = x_BLD.astype(state.inputs_BTD.dtype)
  inputs_BTD = state.inputs_BTD.at[row_B1, target_BL].set(chunk_BLD, mode='drop')
  x_BTD = inputs_BTD.astype(x_BLD.dtype)
  if length == 1:
    y_BLD = jnp.einsum('bsd,bsd->bd', jnp.take(operator_TTD, at_BL[:, 0], axis=0), x_BTD)[:, None]
  else:
    y_BTD = jnp.einsum('tsd,bsd->btd', operator_TTD, x_BTD)
    y_BLD = jnp.take_along_axis(y_BTD, jnp.minimum(at_BL, slots - 1)[:, :, None], axis=1)
  count_B = jnp.sum(real_BL, axis=1, dtype=jnp.int32)
  return y_BLD, Rows(inputs_BTD, operator_TTD, state.length_B + count_B)


def _ring(state, x_BLC, make, mask_BL):
  slots, length = state.inputs_BSC.shape[1], x_BLC.shape[1]
  first = fresh(state)
  if first:
    state = state._replace(
      kernel_XSC=jnp.concatenate([jnp.moveaxis(_cut(make(), slots)[::-1], 0, 1)] * 2, axis=1)
    )
  elif length == 1 and mask_BL is None:
    return _ring_step(state, x_BLC)
  kernel_SXC = jnp.moveaxis(state.kernel_XSC[:, :slots][:, ::-1], 1, 0)
  order_S = (state.clock + jnp.arange(slots, dtype=jnp.int32)) % slots
  past_BSC = jnp.take(state.inputs_BSC, order_S, axis=1).astype(x_BLC.dtype)
  joined_BJC = jnp.concatenate([past_BSC, x_BLC], axis=1)
  seen_BJC = x_BLC if first else joined_BJC
  y_BJXC = causal_conv(seen_BJC[:, :, None], kernel_SXC)
  inputs_BSC = _window(joined_BJC, mask_BL, slots).astype(state.inputs_BSC.dtype)
  return y_BJXC[:, -length:], Ring(inputs_BSC, state.kernel_XSC, jnp.zeros((), jnp.int32))


def _ring_step(state, x_B1C):
  inputs_BSC, kernel_XSC, clock = state
  slots = inputs_BSC.shape[1]
  stored_B1C = x_B1C.astype(inputs_BSC.dtype)

  def write(inputs_BSC):
    return jax.lax.dynamic_update_slice_in_dim(inputs_BSC, stored_B1C, clock, axis=1)

  inputs_BSC = in_place(write, inputs_BSC, 1, clock)
  compute = wide(x_B1C.dtype, kernel_XSC.dtype)
  size = min(STRIP, slots)

  def product(at, size):
    """Of the inputs in `size` slots from `at` on with their lags."""
    inputs_BWC = jax.lax.dynamic_slice_in_dim(inputs_BSC, at, size, axis=1)[:, None]
    lags_XWC = jax.lax.dynamic_slice_in_dim(kernel_XSC, slots - 1 - clock + at, size, axis=1)
    return inputs_BWC.astype(compute) * lags_XWC[None].astype(compute)

  # XLA's CPU sums over an axis that is not the last by single numbers; strips it adds as vectors.
  strips_BXWC = jax.lax.fori_loop(
    1, slots // size, lambda i, sums: sums + product(i * size, size), product(0, size)
  )
  y_BXC = jnp.sum(strips_BXWC, axis=2)
  if slots % size:
    rest_BXWC = product(slots - slots % size, slots % size)
    y_BXC = y_BXC + jnp.sum(rest_BXWC, axis=2)
  y_B1XC = y_BXC[:, None].astype(x_B1C.dtype)
  return y_B1XC, Ring(inputs_BSC, kernel_XSC, (clock + 1) % slots)


def _blocked(state, x_BLC, make, mask_BL):
  block = state.slots_BXCP.shape[-1]
  levels = block.bit_length()  # block sizes 2^0 .. 2^(levels - 1) = block
  if fresh(state):
    # Blocks of P inputs reach lags up to P: those beyond the stream's own do no harm.
    kernel_TXC = make()[: block + 1].astype(state.slots_BXCP.dtype)
    kernel_TXC = _cut(kernel_TXC, max(kernel_TXC.shape[0], 1 << DIRECT))
    kernel_XCT = jnp.moveaxis(kernel_TXC, 0, -1)
    response_XCF = tuple(
      jnp.fft.rfft(kernel_XCT[..., : 2 << k], 2 << k) for k in range(DIRECT, levels)
    )
    state = state._replace(kernel_XCT=kernel_XCT, response_XCF=response_XCF)
    pending_BXCP = None
  elif x_BLC.shape[1] == 1 and mask_BL is None:
    return _blocked_step(state, x_BLC)
  else:
    pending_BXCP = _pending(state)
  return _blocked_chunk(state, x_BLC, pending_BXCP, mask_BL)


def _blocked_chunk(state, x_BLC, pending_BXCP, mask_BL):
  """One FFT for the outputs of the chunk and for what it adds to the next P outputs."""
  length, block = x_BLC.shape[1], state.slots_BXCP.shape[-1]
  compute = state.slots_BXCP.dtype
  kernel_TXC = jnp.moveaxis(state.kernel_XCT, -1, 0)
  n = fast_length(length + max(block, kernel_TXC.shape[0]))
  spectrum_BF1C = jnp.fft.rfft(x_BLC[:, :, None].astype(compute), n, axis=1)
  response_FXC = jnp.fft.rfft(kernel_TXC, n, axis=0)
  total_BJXC = jnp.fft.irfft(spectrum_BF1C * response_FXC[None], n, axis=1)[:, : length + block]
  if pending_BXCP is not None:
    total_BJXC = total_BJXC.at[:, :block].add(jnp.moveaxis(pending_BXCP, -1, 1))
  slots_BXCP = jnp.moveaxis(_window(total_BJXC, mask_BL, block), 1, -1)
  after = state._replace(
    slots_BXCP=slots_BXCP, next_BXC=slots_BXCP[..., 0], clock=jnp.zeros((), jnp.int32)
  )
  return total_BJXC[:, :length].astype(x_BLC.dtype), after


def _blocked_step(state, x_B1C):
  slots_BXCP, kernel_XCT, _, next_BXC, clock = state
  block = slots_BXCP.shape[-1]
  x_BC = x_B1C[:, 0].astype(slots_BXCP.dtype)
  y_BXC = next_BXC + kernel_XCT[None, ..., 0] * x_BC[:, None]
  at = (jnp.int32(0),) * (slots_BXCP.ndim - 1)
  slots_BXCP = jax.lax.dynamic_update_slice(slots_BXCP, x_BC[:, None, ..., None], (*at, clock))
  end = clock + 1
  level = jax.lax.population_count((end & -end) - 1)

  def add(k, slots_BXCP):
    part_BXCP = _tile(state, slots_BXCP, end - (1 << k), k)
    if 1 << k == block:
      return part_BXCP  # all slots are inputs by now, and the next block's sums begin
    old_BXCP = jax.lax.dynamic_slice_in_dim(slots_BXCP, end, 1 << k, axis=-1)
    return jax.lax.dynamic_update_slice(slots_BXCP, old_BXCP + part_BXCP, (*at, end))

  # Loops of one turn or none: XLA updates their carry in place; a conditional copies all slots.
  for k in range(block.bit_length()):
    turns = (level == k).astype(jnp.int32)
    slots_BXCP = jax.lax.fori_loop(0, turns, lambda _, slots, k=k: add(k, slots), slots_BXCP)
  # Read here, after the last write, and not at the next step before one: XLA would copy them too.
  next_BXC = jax.lax.dynamic_index_in_dim(slots_BXCP, end % block, axis=-1, keepdims=False)
  after = state._replace(slots_BXCP=slots_BXCP, next_BXC=next_BXC, clock=end % block)
  return y_BXC[:, None].astype(x_B1C.dtype), after


def _tile(state, slots_BXCP, start, k):
  """What the 2^k inputs from slot `start` on add to the next 2^k outputs after them."""
  size = 1 << k
  sizes = (slots_BXCP.shape[0], 1, *slots_BXCP.shape[2:-1], size)
  at = (jnp.int32(0),) * (slots_BXCP.ndim - 1)
  x_B1CP = jax.lax.dynamic_slice(slots_BXCP, (*at, start), sizes)
  if k < DIRECT:
    kernel_XCT = state.kernel_XCT[None]
    return sum(
      x_B1CP[..., i : i + 1] * kernel_XCT[..., size - i : 2 * size - i] for i in range(size)
    )
  # Outputs at n from size on meet lags n - i from 1 to 2 size - 1: nothing wraps around.
  spectrum_BXCF = jnp.fft.rfft(x_B1CP, 2 * size) * state.response_XCF[k - DIRECT][None]
  return jnp.fft.irfft(spectrum_BXCF, 2 * size)[..., size:]


def _pending(state):
  """What all inputs so far add to the next P outputs, as if zeros came for ever.

  The clock jumps over the zeros: from block end to block end of growing size.
  """
  slots_BXCP, clock = state.slots_BXCP, state.clock
  block = slots_BXCP.shape[-1]
  past_P = jnp.arange(block, dtype=jnp.int32) < clock
  past_P = past_P.reshape((1,) * (slots_BXCP.ndim - 1) + (block,))
  zero = jnp.zeros((), slots_BXCP.dtype)
  inputs_BXCP = jnp.where(past_P, slots_BXCP, zero)
  sums_BXCQ = jnp.where(past_P, zero, slots_BXCP)
  sums_BXCQ = jnp.pad(sums_BXCQ, [*[(0, 0)] * (slots_BXCP.ndim - 1), (0, block)])
  levels = block.bit_length()
  for k in range(levels):
    end = -(-clock // (1 << k)) * (1 << k)
    # At a multiple of 2^(k + 1), a later and larger block does it; at the clock, it is done.
    due = (end > clock) & ((end >> k) % 2 == 1)
    part_BXCP = _tile(state, inputs_BXCP, jnp.maximum(end - (1 << k), 0), k)
    part_BXCP = jnp.where(due, part_BXCP, zero)
    old_BXCP = jax.lax.dynamic_slice_in_dim(sums_BXCQ, end, 1 << k, axis=-1)
    sums_BXCQ = jax.lax.dynamic_update_slice_in_dim(sums_BXCQ, old_BXCP + part_BXCP, end, axis=-1)
  return jax.lax.dynamic_slice_in_dim(sums_BXCQ, clock, block, axis=-1)


def _window(a_BJC, mask_BL, size):
  """The `size` entries of each row from its own count of real tokens on; without a mask, the last.

  a_BJC: of the chunk's length and `size` entries more.
  """
  if mask_BL is None:
    return a_BJC[:, a_BJC.shape[1] - size :]
  count_B = jnp.sum(mask_BL, axis=1, dtype=jnp.int32)
  return jax.vmap(lambda a, start: jax.lax.dynamic_slice_in_dim(a, start, size))(a_BJC, count_B)


def _cut(kernel_TXC, lags):
  """The first `lags` lags, zeros where the kernel has fewer."""
  kernel_TXC = kernel_TXC[:lags]
  more = lags - kernel_TXC.shape[0]
  return jnp.pad(kernel_TXC, [(0, more), *[(0, 0)] * (kernel_TXC.ndim - 1)])
