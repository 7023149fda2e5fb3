"""What the next token is: the likeliest, or a draw from a part of the distribution."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from sgnjax.errors import UserError


class Rules(NamedTuple):
  """What of a choice is compiled in: which parts there are, and how many tokens top-k keeps."""

  greedy: bool
  top_k: int | None
  nucleus: bool
  penalised: bool


class Sampling(NamedTuple):
  """How tokens are chosen; the parts apply in this order: penalty, temperature, top-k, top-p.

  repetition_penalty: the logits of tokens that the prompt or the text so far has are divided by it
  where positive and multiplied where negative; 1: none. temperature: 0 is greedy. top_k: the k
  likeliest alone (ties: the lower token). top_p: the likeliest whose probabilities first reach p.
  Sources: CTRL (Keskar et al. 2019), eq. 2; Holtzman et al. 2020, section 3.1 (top-p).
  """

  temperature: float = 0.0
  top_k: int | None = None
  top_p: float | None = None
  repetition_penalty: float = 1.0

  def check(self) -> None:
    """Raises UserError for a value that cannot be."""
    if not (math.isfinite(self.temperature) and self.temperature >= 0):
      raise UserError(f'temperature {self.temperature}: expected 0 (greedy) or a positive number')
    if self.top_k is not None and self.top_k < 1:
      raise UserError(f'top_k {self.top_k}: expected at least 1, or none')
    if self.top_p is not None and not 0 < self.top_p <= 1:
      raise UserError(f'top_p {self.top_p}: expected more than 0 and at most 1, or none')
    if not (math.isfinite(self.repetition_penalty) and self.repetition_penalty > 0):
      raise UserError(
        f'repetition_penalty {self.repetition_penalty}: expected a positive number (1: none)'
      )

  def rules(self, vocab: int) -> Rules:
    """The compiled part, for a vocabulary."""
    greedy = self.temperature == 0
    top_k = None if greedy or self.top_k is None or self.top_k >= vocab else self.top_k
    nucleus = not greedy and self.top_p is not None and self.top_p < 1
    return Rules(greedy, top_k, nucleus, self.repetition_penalty != 1)

  def values(self) -> dict[str, Any]:
    """The traced part."""
    return {
      'temperature': np.float32(self.temperature or 1),
      'top_p': np.float32(1 if self.top_p is None else self.top_p),
      'penalty': np.float32(self.repetition_penalty),
    }


def pick(logits_BV, key_B, values: dict[str, Any], rules: Rules, seen_BV=None) -> jax.Array:
  """The next token of each row, int32 (B,).

  values: of `Sampling`. seen_BV: which tokens each row has, for the penalty.
  """
  dtype = logits_BV.dtype
  if rules.penalised:
    penalty = values['penalty'].astype(dtype)
    changed_BV = jnp.where(logits_BV > 0, logits_BV / penalty, logits_BV * penalty)
    logits_BV = jnp.where(seen_BV, changed_BV, logits_BV)
  if rules.greedy:
    return jnp.argmax(logits_BV, axis=-1).astype(jnp.int32)
  if rules.top_k is None and not rules.nucleus:  # nothing is left out, and nothing sorted
    scaled_BV = _scaled(logits_BV, jnp.max(logits_BV, axis=-1, keepdims=True), values)
    return jax.vmap(jax.random.categorical)(key_B, scaled_BV).astype(jnp.int32)
  logits_BK, token_BK = jax.lax.top_k(logits_BV, rules.top_k or logits_BV.shape[-1])
  scaled_BK = _scaled(logits_BK, logits_BK[:, :1], values)
  if rules.nucleus:
    share_BK = jax.nn.softmax(scaled_BK, axis=-1)
    before_BK = jnp.cumsum(share_BK, axis=-1) - share_BK  # 0 for the likeliest, which stays
    scaled_BK = jnp.where(before_BK < values['top_p'].astype(dtype), scaled_BK, -jnp.inf)
  drawn_B = jax.vmap(jax.random.categorical)(key_B, scaled_BK)
  return jnp.take_along_axis(token_BK, drawn_B[:, None], axis=1)[:, 0].astype(jnp.int32)


def _scaled(logits, largest, values):
  """Relative to the largest: a small temperature then gives -inf and 0, never a NaN."""
  return (logits - largest) / values['temperature'].astype(logits.dtype)
