"""CHIAR-Former: each token goes to DCT mixing over the width or to attention, by its entropy."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from sgnjax.errors import UserError, check_choice
from sgnjax.mixers.base import Aux, LayerNorm, Mixed, blank
from sgnjax.mixers.chiar_operators import AttentionOperator
from sgnjax.mixers.dispatch import (
  DISPATCHES,
  KEYS,
  RoutedCache,
  SlotAttention,
  Tokens,
  check_dispatch,
)
from sgnjax.ops.dispatch import (
  Slots,
  advance,
  arrivals,
  assign,
  combine,
  empty_stream,
  places,
  slots_per_window,
)
from sgnjax.ops.dtypes import wide
from sgnjax.ops.entropy import coefficient_entropy
from sgnjax.ops.routing import (
  blend,
  by_thresholds,
  choose,
  draw,
  gate_entropy,
  shares,
  straight_through,
)

ROUTERS = ('threshold', 'soft', 'hard', 'random')


class Routed(AttentionOperator):
  """A router sends each token to one operator: DCT, attention and, with `rbf`, RBF between them.

  threshold: by its spectral entropy H: DCT up to tau (rbf: up to tau_low), attention above tau. No
  parameters, no gradient. soft: all operators, mixed by softmax(Linear([x, H])). hard: the
  likeliest alone, with the gradient of soft. random, the control of equal rate: attention with
  probability `rate` (rbf: the two others share the rest), by a hash of the token's position under
  a key that each layer draws once. So the route knows nothing of any token, is the same in
  training and inference, and depends on no padding, chunk or other example; a hash of activations
  would send equal tokens one way, which is information, and would flip with their rounding.

  The route depends on the token (random: on its position) alone. The published form leaks with
  `rbf`, which has no mask there. Parameters: those of the operators (DCT 3 width), (width + 2) K
  for soft and hard with K operators, 1 that does not train for random.

  dispatch: 'dense' runs all operators on every token. 'capacity' attends at no more tokens than
  each window of `route_window` has slots, in order of arrival; a routed token that comes too late
  takes the DCT path, so a route also depends on earlier tokens of its window. Windows count from
  the first token of an example and of each segment. `capacity` is the share of a window that has
  slots; None: 1.25 times the expected share, `rate`, up to a multiple of 8. kv: 'all', every token
  gives a key and a value; 'routed', those alone that attend. Products are left out in whole rows,
  not in chunks nor under segments, whose windows begin anywhere: there the tokens without a slot
  are computed and thrown away. Router hard: only a token that attends gives its gates a gradient.

  Cache: `SlotAttention`'s of max_len slots, kv 'routed' of `slots` a window, 16 bytes an example.

  Metrics: share of real tokens (soft: mean gate) of each operator, `attention_share` alone where
  there are two; it counts after the capacity, as `overflow_share`, of routed tokens those without a
  slot, says. Loss: `collapse`, minus `collapse` times the entropy of the mean gates.
  """

  @property
  def causal(self) -> bool:
    return self.form == 'causal' or (self.form == 'published' and not self.rbf)

  @property
  def operators(self) -> tuple[str, ...]:
    """Names in the order of the gates."""
    return ('dct', 'rbf', 'attention') if self.rbf else ('dct', 'attention')

  def check(self) -> None:
    super().check()
    check_choice('model.chiar.router', self.router, ROUTERS)
    scaling = 'released' if self.released else self.basis
    if self.router == 'threshold' and self.calibrated not in (None, scaling):
      raise UserError(
        f"model.chiar.tau={self.tau} was calibrated under '{self.calibrated}' coefficients, but "
        f"this model routes by '{scaling}' ones; calibrate again (--job=calibrate)"
      )
    if self.rbf and self.router == 'threshold' and not self.tau_low < self.tau:
      raise UserError(
        f'model.chiar.tau_low={self.tau_low}: expected less than model.chiar.tau={self.tau}'
      )
    check_choice('model.chiar.dispatch', self.dispatch, DISPATCHES)
    check_choice('model.chiar.kv', self.kv, KEYS)
    check_dispatch(self)
    if not 0 <= self.rate <= 1:
      raise UserError(f'model.chiar.rate={self.rate}: expected 0 to 1')
    if not self.collapse >= 0:
      raise UserError(f'model.chiar.collapse={self.collapse}: expected 0 or more')
    if self.collapse and self.router not in ('soft', 'hard'):
      raise UserError(
        f'model.chiar.collapse={self.collapse} regularises the gates of router soft or hard, but '
        f"model.chiar.router='{self.router}' learns none"
      )

  def gates(self, x_BLD, entropy_BL) -> jax.Array:
    """Gates of a learned router, (B, L, operators)."""
    compute = entropy_BL.dtype
    logits_BLK = nn.Dense(
      len(self.operators),
      dtype=compute,
      param_dtype=self.param_dtype,
      kernel_init=nn.initializers.normal(self.init_std),
      name='router',
    )(jnp.concatenate([x_BLD.astype(compute), entropy_BL[:, :, None]], -1))
    gates_BLK = jax.nn.softmax(logits_BLK)
    return straight_through(gates_BLK) if self.router == 'hard' else gates_BLK

  def route(self, entropy_BL, positions_BL) -> jax.Array:
    """The number of each token's operator, where nothing is learned."""
    if self.router == 'threshold':
      return by_thresholds(entropy_BL, (self.tau_low, self.tau) if self.rbf else (self.tau,))
    key = self.param('frozen_key', nn.initializers.uniform(1.0), (), self.param_dtype)
    rest = 1 - self.rate
    drawn_BL = draw(positions_BL, jax.lax.stop_gradient(key))
    route_BL = by_thresholds(drawn_BL, (rest / 2, rest) if self.rbf else (rest,))
    return jnp.broadcast_to(route_BL, entropy_BL.shape)

  @property
  def slots(self) -> int:
    """Slots of a window of `route_window` tokens: all of them, where nothing limits them."""
    if self.dispatch == 'dense':
      return self.route_window
    return slots_per_window(self.route_window, self.rate, self.capacity)

  @nn.compact
  def __call__(
    self, x_BLD, *, positions_BL=None, mask_BL=None, segments_BL=None, cache=None, train=False
  ) -> Mixed:
    self.refuse(cache=cache)
    before = None if cache is None else cache.stream
    place_BL, start_BL = places(x_BLD.shape[1], segments_BL, before)
    positions_BL = place_BL if positions_BL is None else positions_BL
    real_BL = jnp.ones(x_BLD.shape[:2], bool) if mask_BL is None else mask_BL
    compute = wide(x_BLD.dtype)
    coefficients_BLD = self.coefficients(x_BLD)
    entropy_BL = coefficient_entropy(coefficients_BLD, released=self.released)
    last = len(self.operators) - 1
    if self.router in ('soft', 'hard'):
      gates_BLK = self.gates(x_BLD, entropy_BL)
      route_BL = jnp.argmax(gates_BLK, -1).astype(jnp.int32)
    else:
      route_BL = self.route(entropy_BL, positions_BL)
      gates_BLK = jax.nn.one_hot(route_BL, last + 1, dtype=compute)
    routed_BL = (route_BL == last) & real_BL
    accepted_BL, rank_BL = arrivals(
      routed_BL,
      place_BL,
      start_BL,
      window=self.route_window,
      slots=self.slots,
      count_B=before and before.count_B,
    )
    slots = after = None
    if cache is not None:
      after = advance(before, routed_BL, rank_BL, start_BL, mask_BL, segments_BL)
    elif segments_BL is None and self.attending(x_BLD.shape[1])[0] < x_BLD.shape[1]:
      slots = assign(accepted_BL, rank_BL, window=self.route_window, slots=self.slots)
    outputs = {'dct': self.dct_path(x_BLD, coefficients_BLD, train)}
    outputs['attention'], attention_cache = self.attend(
      Tokens(x_BLD, positions_BL, place_BL, start_BL, real_BL),
      accepted_BL,
      slots,
      whole={'mask_BL': mask_BL, 'segments_BL': None if segments_BL is None else start_BL},
      cache=cache and cache.attention,
      start_B=after and after.start_B,
      packed=segments_BL is not None,
      train=train,
    )
    rbf_cache = None
    if self.rbf:
      outputs['rbf'], _, rbf_cache = self.path(
        self.rbf_module(name='rbf'),
        x_BLD,
        {
          'mask_BL': mask_BL,
          'segments_BL': segments_BL,
          'cache': cache and cache.rbf,
          'train': train,
        },
      )
    outputs = [outputs[name] for name in self.operators]
    if self.router in ('soft', 'hard'):
      y_BLD = blend(gates_BLK, outputs)
      if self.selective:
        y_BLD = jnp.where(accepted_BL[:, :, None], y_BLD, outputs[0])
    else:
      y_BLD = choose(jnp.where(routed_BL & ~accepted_BL, 0, route_BL), outputs)
    share_K = shares(gates_BLK, mask_BL)
    named = zip(self.operators, share_K, strict=True)
    metrics = {f'{n}_share': s for n, s in named if self.rbf or n == 'attention'}
    if self.dispatch == 'capacity':
      routed, accepted = (jnp.sum(a, dtype=compute) for a in (routed_BL, accepted_BL))
      metrics['attention_share'] = shares(accepted_BL[:, :, None].astype(compute), mask_BL)[0]
      metrics['overflow_share'] = (routed - accepted) / jnp.maximum(routed, jnp.ones((), compute))
    losses = {}
    if self.collapse:
      losses['collapse'] = jnp.asarray(-self.collapse, compute) * gate_entropy(share_K)
    debug = {}
    if self.capture:
      debug = {'entropy': entropy_BL, 'route': accepted_BL, 'router_gates': gates_BLK}
    caches = None if cache is None else RoutedCache(attention_cache, rbf_cache, after)
    return Mixed(blank(y_BLD, mask_BL), Aux(losses, metrics, debug), caches)

  @property
  def selective(self) -> bool:
    """Whether the attention's output is known at the tokens alone that it accepts."""
    return (self.dispatch, self.kv) != ('dense', 'all')

  def attending(self, length: int) -> tuple[int, int]:
    """Queries and keys that the attention computes of a row of `length` tokens."""
    slots = min(length, -(-length // self.route_window) * min(self.slots, self.route_window))
    return slots, length if self.kv == 'all' else slots

  def attend(self, tokens: Tokens, accepted_BL, slots: Slots | None, *, whole, train, **streaming):
    """`LN(x + attention(x))` at the accepted tokens at least, and the attention's cache.

    In slots where there are some, else on all tokens, of which `kv` hides those without one. whole:
    as `SlotAttention` takes it, where no token is left out.
    """
    if slots is not None or self.kv == 'routed' or streaming['cache'] is not None:
      whole = None
    chosen = tokens
    if slots is not None:
      chosen = tokens.in_slots(slots)
    elif self.kv == 'routed':
      chosen = tokens._replace(real_BL=accepted_BL)
    keys = tokens if self.kv == 'all' else chosen
    module = self.inner(SlotAttention, name='attention')
    y_BLD, cache = module(chosen, keys, whole=whole, train=train, **streaming)
    y_BLD = LayerNorm(self.param_dtype, name='attention_norm')(chosen.x_BLD + y_BLD)
    return y_BLD if slots is None else combine(y_BLD, slots), cache

  def empty_cache(self, batch: int, max_len: int, dtype) -> RoutedCache:
    kept = self.attending(max_len)[1]
    return RoutedCache(
      self.inner(SlotAttention, parent=None).init_cache(batch, kept, dtype),
      self.rbf_module(parent=None).init_cache(batch, max_len, dtype) if self.rbf else None,
      empty_stream(batch),
    )
