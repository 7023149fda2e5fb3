"""Generation: batched prompts of different length, one compiled loop, greedy or sampled."""

import functools
import math
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from sgnjax.errors import UserError
from sgnjax.models import unstacked
from sgnjax.models.decoder import Decoder


class Written(NamedTuple):
  """Continuations, one a prompt, and the seconds that the loop took (compilation apart)."""

  texts: list[str]
  seconds: float


def generate(
  model: Decoder,
  params: Any,
  prompts: Sequence[Sequence[int]],
  tokens: int,
  *,
  temperature: float = 0.0,
  top_k: int | None = None,
  seed: int = 0,
  slide: bool = False,
) -> np.ndarray:
  """Continues every prompt by `tokens` tokens; int32 `(prompts, tokens)`, the prompts left out.

  temperature: 0 is greedy. top_k: sample among the k likeliest alone (ties: the lower token). The
  draws of row r depend on (seed, r, step), not on how many other prompts there are.

  Where every layer keeps a cache, the prompts are read once and each token costs one step.
  Elsewhere each token costs one forward pass over a window of one compiled shape: the context or,
  without learned positions, as much as is needed. What stands right of a prompt is token 0, which
  a causal model never sees.

  slide: past the context the oldest tokens are dropped, one a step, so that the model never sees
  more than `model.context` tokens, each time as a fresh sequence from position 0. Without it
  learned positions end a generation there.

  Raises UserError for an empty prompt, a token outside the vocabulary, a prompt or a generation
  that does not fit the context, and sampling options out of range.
  """
  run, static, dynamic = _prepare(model, params, prompts, tokens, temperature, top_k, seed, slide)
  return np.asarray(run(*static, *dynamic))


def write(
  model: Decoder, params: Any, tokenizer: Any, prompts: Sequence[str], tokens: int, **options
) -> Written:
  """`generate` from text to text, past the context by sliding; options as there.

  Raises UserError as `generate` does, and the tokenizer's for characters that it does not know.
  """
  ids = [tokenizer.encode(prompt) for prompt in prompts]
  run, static, dynamic = _prepare(model, params, ids, tokens, slide=True, **options)
  compiled = run.lower(*static, *dynamic).compile()
  start = time.perf_counter()
  written_BT = np.asarray(compiled(*dynamic))
  seconds = time.perf_counter() - start
  return Written([tokenizer.decode(row) for row in written_BT], seconds)


def _prepare(
  model, params, prompts, tokens, temperature=0.0, top_k=None, seed=0, slide=False
) -> tuple[Any, tuple, tuple]:
  """The compiled loop that fits, its static and its traced arguments. Raises UserError."""
  _check(model, prompts, tokens, temperature, top_k)
  longest = max(len(p) for p in prompts)
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
  cached = _keeps_cache(model) and not (slide and total > model.context)
  width = longest if cached else model.context if bound else max(model.context, total)
  prompt_BL = np.zeros((len(prompts), width), np.int32)
  for row, prompt in zip(prompt_BL, prompts, strict=True):
    row[: len(prompt)] = prompt
  length_B = np.asarray([len(p) for p in prompts], np.int32)
  rows = jnp.arange(len(prompts), dtype=jnp.uint32)
  key_B = jax.vmap(functools.partial(jax.random.fold_in, jax.random.key(seed)))(rows)
  greedy = temperature == 0
  static = (model, tokens, greedy, None if top_k is None else min(top_k, model.vocab))
  dynamic = (params, prompt_BL, length_B, key_B, np.float32(1 if greedy else temperature))
  return (_with_cache if cached else _with_window), static, dynamic


def _check(model, prompts, tokens, temperature, top_k) -> None:
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
  if not (math.isfinite(temperature) and temperature >= 0):
    raise UserError(f'temperature {temperature}: expected 0 (greedy) or a positive number')
  if top_k is not None and top_k < 1:
    raise UserError(f'top_k {top_k}: expected at least 1, or none')


def _keeps_cache(model: Decoder) -> bool:
  """Whether every layer can take a sequence in chunks."""
  try:
    jax.eval_shape(lambda: model.init_cache(1, 1))
  except UserError:
    return False
  return True


def pick(logits_BV, key_B, temperature, *, greedy: bool, top_k: int | None) -> jax.Array:
  """The next token of each row: `argmax`, or a draw from `softmax(logits / temperature)`."""
  if greedy:
    return jnp.argmax(logits_BV, axis=-1).astype(jnp.int32)
  logits_BK, token_BK = jax.lax.top_k(logits_BV, top_k or logits_BV.shape[-1])
  # Relative to the largest: a small temperature then gives -inf and 0, never a NaN.
  scaled_BK = (logits_BK - logits_BK[:, :1]) / temperature.astype(logits_BK.dtype)
  drawn_B = jax.vmap(jax.random.categorical)(key_B, scaled_BK)
  return jnp.take_along_axis(token_BK, drawn_B[:, None], axis=1)[:, 0].astype(jnp.int32)


def _next(model, logits_BLV, at_B, step, key_B, temperature, greedy, top_k):
  """The token after position `at_B` of each row."""
  last_BV = jnp.take_along_axis(logits_BLV, at_B[:, None, None], axis=1)[:, 0, : model.vocab]
  key_B = jax.vmap(lambda key: jax.random.fold_in(key, step))(key_B)
  return pick(last_BV, key_B, temperature, greedy=greedy, top_k=top_k)


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _with_cache(model, tokens, greedy, top_k, params, prompt_BL, length_B, key_B, temperature):
  """Prompts in one chunk, padding masked; then one token a step."""
  model, params = unstacked(model, params)
  batch, longest = prompt_BL.shape
  cache = model.init_cache(batch, longest + tokens)
  mask_BL = jnp.arange(longest)[None, :] < length_B[:, None]
  logits_BLV, _, cache = model.apply({'params': params}, prompt_BL, mask_BL=mask_BL, cache=cache)
  choose = functools.partial(
    _next, model, key_B=key_B, temperature=temperature, greedy=greedy, top_k=top_k
  )
  first_B = choose(logits_BLV, length_B - 1, jnp.int32(0))

  def body(carry, step):
    token_B, cache = carry
    logits_B1V, _, cache = model.apply({'params': params}, token_B[:, None], cache=cache)
    token_B = choose(logits_B1V, jnp.zeros_like(length_B), step)
    return (token_B, cache), token_B

  _, rest_TB = jax.lax.scan(body, (first_B, cache), jnp.arange(1, tokens, dtype=jnp.int32))
  return jnp.concatenate([first_B[None], rest_TB]).T


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _with_window(model, tokens, greedy, top_k, params, window_BL, length_B, key_B, temperature):
  """One forward pass over the window a token; a full window drops its oldest token."""
  width = window_BL.shape[1]
  row_B = jnp.arange(window_BL.shape[0])

  def body(carry, step):
    window_BL, length_B = carry
    logits_BLV = model.apply({'params': params}, window_BL).y_BLD
    token_B = _next(model, logits_BLV, length_B - 1, step, key_B, temperature, greedy, top_k)
    full_B1 = (length_B == width)[:, None]
    window_BL = jnp.where(full_B1, jnp.roll(window_BL, -1, axis=1), window_BL)
    window_BL = window_BL.at[row_B, jnp.minimum(length_B, width - 1)].set(token_B)
    return (window_BL, jnp.minimum(length_B + 1, width)), token_B

  steps_T = jnp.arange(tokens, dtype=jnp.int32)
  _, token_TB = jax.lax.scan(body, (window_BL, length_B), steps_T)
  return token_TB.T
