"""Generation: batched prompts of different length, one compiled loop, greedy or sampled."""

import functools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from sgnjax.decode.sampling import Rules, Sampling, pick
from sgnjax.errors import UserError
from sgnjax.models import one_by_one, unstacked
from sgnjax.models.decoder import Decoder


def generate(
  model: Decoder, params: Any, prompts: Sequence[Sequence[int]], tokens: int, **options
) -> np.ndarray:
  """Continues every prompt by `tokens` tokens; int32 `(prompts, tokens)`, the prompts left out.

  options: temperature (0 is greedy, and the default), top_k, top_p and repetition_penalty, as
  `Sampling` takes them; seed; slide. The draws of row r depend on (seed, r, step), not on how many
  other prompts there are.

  Where every layer keeps a cache, the prompts are read once and each token costs one step.
  Elsewhere each token costs one forward pass over a window of one compiled shape: the context or,
  without learned positions, as much as is needed. What stands right of a prompt is token 0, which
  a causal model never sees.

  slide: past the context the oldest tokens are dropped, one a step, so that the model never sees
  more than `model.context` tokens, each time as a fresh sequence from position 0. Without it
  learned positions end a generation there, and other models go on.

  Raises UserError for an empty prompt, a token outside the vocabulary, a prompt or a generation
  that does not fit the context, and sampling options out of range.
  """
  return np.concatenate(list(Generation(model, params, prompts, tokens, **options)), axis=1)


class Plan(NamedTuple):
  """What is compiled in. chunk: the tokens that one call has room for."""

  model: Decoder
  rules: Rules
  cached: bool
  chunk: int


class Generation:
  """A generation piece by piece: iterating gives the next tokens, int32 (prompts, at most chunk).

  Arguments as of `generate`; all pieces side by side are what it returns. chunk: None is all
  tokens at once.
  """

  def __init__(
    self,
    model: Decoder,
    params: Any,
    prompts: Sequence[Sequence[int]],
    tokens: int,
    *,
    seed: int = 0,
    slide: bool = False,
    chunk: int | None = None,
    **sampling,
  ):
    chosen = Sampling(**sampling)
    chosen.check()
    _check(model, prompts, tokens)
    self.tokens, self.chunk = tokens, min(chunk or tokens, tokens)
    longest = max(len(p) for p in prompts)
    width, cached = _shape(model, longest, tokens, slide)
    prompt_BL = np.zeros((len(prompts), width), np.int32)
    for row, prompt in zip(prompt_BL, prompts, strict=True):
      row[: len(prompt)] = prompt
    length_B = np.asarray([len(p) for p in prompts], np.int32)
    rows = jnp.arange(len(prompts), dtype=jnp.uint32)
    self._key_B = jax.vmap(functools.partial(jax.random.fold_in, jax.random.key(seed)))(rows)
    self._values = chosen.values()
    if cached:
      model, params = one_by_one(model), _slices(model, params)
    self._plan = Plan(model, chosen.rules(model.vocab), cached, self.chunk)
    self._params = params
    self._carry = _begin(self._plan, longest + tokens, params, prompt_BL, length_B)
    self._advance(0)  # compiles, and writes nothing

  def __iter__(self) -> Iterator[np.ndarray]:
    for done in range(0, self.tokens, self.chunk):
      count = min(self.chunk, self.tokens - done)
      yield np.asarray(self._advance(count))[:, :count]

  def _advance(self, count: int) -> jax.Array:
    self._carry, written_BC = _advance(
      self._plan, self._params, self._carry, np.int32(count), self._key_B, self._values
    )
    return written_BC


def _shape(model: Decoder, longest: int, tokens: int, slide: bool) -> tuple[int, bool]:
  """The width that prompts are filled up to, and whether caches are kept. Raises UserError."""
  total = longest + tokens
  bound = slide or model.positions == 'learned'
  if bound and longest > model.context:
    raise UserError(
      f'a prompt of {longest} tokens is longer than the context of {model.context} (model.context)'
    )
  if total > model.context and model.positions == 'learned' and not slide:
    raise UserError(
      f'{longest} tokens of prompt and {tokens} new ones are {total}, but the learned positions '
      f'end at {model.context} (model.context); ask for fewer, or slide'
    )
  if keeps_cache(model) and not (slide and total > model.context):
    return longest, True
  return model.context if bound else max(model.context, total), False


def _check(model: Decoder, prompts, tokens: int) -> None:
  if not len(prompts):
    raise UserError('no prompt was given')
  for prompt in prompts:
    if not len(prompt):
      raise UserError('the prompt is empty: give the model at least one token to go on from')
    outside = [int(t) for t in prompt if not 0 <= t < model.vocab]
    if outside:
      raise UserError(f'token {outside[0]} is outside the vocabulary of {model.vocab}')
  if tokens < 1:
    raise UserError(f'{tokens} tokens to generate: expected at least 1')


def keeps_cache(model: Decoder) -> bool:
  """Whether every layer can take a sequence in chunks."""
  try:
    jax.eval_shape(lambda: model.init_cache(1, 1))
  except UserError:
    return False
  return True


@functools.partial(jax.jit, static_argnums=0)
def _slices(model: Decoder, params):
  """The parameters of `one_by_one`: in the loop's own program they would be cut at each call."""
  return unstacked(model, params)[1]


@functools.partial(jax.jit, static_argnums=(0, 1))
def _begin(plan: Plan, room: int, params, prompt_BL, length_B):
  """What the loop starts from: with caches the prompts are read here, padding masked."""
  batch, width = prompt_BL.shape
  real_BL = jnp.arange(width)[None, :] < length_B[:, None]
  carry = {'step': jnp.int32(0)}
  if plan.rules.penalised:
    row_B1 = jnp.arange(batch)[:, None]
    token_BL = jnp.where(real_BL, prompt_BL, plan.model.vocab)  # one past the end: dropped
    seen_BV = jnp.zeros((batch, plan.model.vocab), bool)
    carry['seen_BV'] = seen_BV.at[row_B1, token_BL].set(True, mode='drop')
  if not plan.cached:
    return carry | {'window_BL': prompt_BL, 'length_B': length_B}
  cache = plan.model.init_cache(batch, room)
  logits_BLV, _, cache = plan.model.apply(
    {'params': params}, prompt_BL, mask_BL=real_BL, cache=cache
  )
  return carry | {'logits_BV': _last(plan.model, logits_BLV, length_B - 1), 'cache': cache}


@functools.partial(jax.jit, static_argnums=0, donate_argnums=2)
def _advance(plan: Plan, params, carry, count, key_B, values):
  """The next `count` tokens of each row in the first columns of (B, chunk); and the carry."""
  model, row_B = plan.model, jnp.arange(key_B.shape[0])

  def body(column, state):
    carry, written_BC = state
    if plan.cached:
      logits_BV = carry['logits_BV']
    else:
      logits_BLV = model.apply({'params': params}, carry['window_BL']).y_BLD
      logits_BV = _last(model, logits_BLV, carry['length_B'] - 1)
    key_of_B = jax.vmap(lambda key: jax.random.fold_in(key, carry['step']))(key_B)
    token_B = pick(logits_BV, key_of_B, values, plan.rules, carry.get('seen_BV'))
    carry = carry | {'step': carry['step'] + 1}
    if plan.rules.penalised:
      carry['seen_BV'] = carry['seen_BV'].at[row_B, token_B].set(True)
    if plan.cached:
      logits_B1V, _, carry['cache'] = model.apply(
        {'params': params}, token_B[:, None], cache=carry['cache']
      )
      carry['logits_BV'] = logits_B1V[:, 0, : model.vocab]
    else:
      carry |= _pushed(carry['window_BL'], carry['length_B'], token_B)
    return carry, written_BC.at[:, column].set(token_B)

  written_BC = jnp.zeros((key_B.shape[0], plan.chunk), jnp.int32)
  return jax.lax.fori_loop(0, count, body, (carry, written_BC))


def _last(model: Decoder, logits_BLV, at_B):
  """The logits after position `at_B` of each row, without the vocabulary's padding."""
  return jnp.take_along_axis(logits_BLV, at_B[:, None, None], axis=1)[:, 0, : model.vocab]


def _pushed(window_BL, length_B, token_B) -> dict[str, jax.Array]:
  """The window with one token more; a full one drops its oldest."""
  batch, width = window_BL.shape
  full_B1 = (length_B == width)[:, None]
  window_BL = jnp.where(full_B1, jnp.roll(window_BL, -1, axis=1), window_BL)
  window_BL = window_BL.at[jnp.arange(batch), jnp.minimum(length_B, width - 1)].set(token_B)
  return {'window_BL': window_BL, 'length_B': jnp.minimum(length_B + 1, width)}
