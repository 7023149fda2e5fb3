"""What a token costs in generation, against the context: time, worst step, bytes of the cache."""

import functools
import time
from collections.abc import Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from sgnjax.models import build, unstacked

# Keys of config.model that make each kind, beside the sizes of the given config.
KINDS = {
  'softmax': {'mixer': 'softmax'},
  'SGN, ring': {'mixer': 'sgn', 'sgn.streaming': 'ring'},
  'SGN, blocked': {'mixer': 'sgn', 'sgn.streaming': 'blocked'},
  'FourierQK, taps': {
    'mixer': 'fourier_qk',
    'fourier_qk.kernel': 'taps',
    'fourier_qk.filter': 'morlet',
    'fourier_qk.scores': 'analytic',
  },
  'EGA-1, query': {'mixer': 'ega'},
  'CHIAR': {'mixer': 'chiar', 'block': 'chiar', 'chiar.meta': False},
}
WHOLE = 'SGN, blocked'  # its steps differ: a whole schedule is timed, and the worst step apart


class Timed(NamedTuple):
  """Seconds of a mean step, of the slowest one where steps differ, and bytes of the cache."""

  steps: int
  mean: float
  worst: float | None
  cache_bytes: int


def measure(config: ConfigDict, contexts: tuple[int, ...], *, steps: int = 256, repeats: int = 3):
  """Yields (kind, context, Timed): greedy steps of `train.batch` rows in one compiled loop.

  Best of the repeats. A step costs what its cache has room for, however little of it is filled, so
  a generation starts at its first token and goes on for `steps`, or where steps differ in cost for
  as many as the context. Positions are left out, so that any length fits.
  """
  for context in contexts:
    for kind, changes in KINDS.items():
      twin = config.copy_and_resolve_references().unlock()
      twin.model.update_from_flattened_dict(changes | {'positions': 'none', 'context': context})
      count = context if kind == WHOLE else min(context, steps)
      yield (
        kind,
        context,
        _time(build(twin), twin.train.batch, context, count, kind == WHOLE, repeats),
      )


def _time(model, batch: int, context: int, count: int, whole: bool, repeats: int) -> Timed:
  params = jax.jit(model.init)(jax.random.key(0), jnp.zeros((1, 2), jnp.int32))['params']
  model, params = unstacked(model, params)

  def step(carry, _):
    token_B, cache = carry
    logits_B1V, _, cache = model.apply({'params': params}, token_B[:, None], cache=cache)
    return (jnp.argmax(logits_B1V[:, 0, : model.vocab], -1).astype(jnp.int32), cache), None

  @functools.partial(jax.jit, donate_argnums=0)
  def loop(carry):
    return jax.lax.scan(step, carry, None, length=count)[0]

  one = jax.jit(lambda carry: step(carry, None)[0], donate_argnums=0)

  def begin():
    token_B = jnp.zeros((batch,), jnp.int32)
    return jax.block_until_ready(one((token_B, model.init_cache(batch, context))))

  def seconds(function, carry):
    start = time.perf_counter()
    carry = jax.block_until_ready(function(carry))
    return time.perf_counter() - start, carry

  seconds(loop, begin())
  mean = min(seconds(loop, begin())[0] for _ in range(repeats)) / count
  size = sum(leaf.nbytes for leaf in jax.tree.leaves(begin()[1]))
  return Timed(count, mean, _worst(one, begin(), context, seconds) if whole else None, size)


def _worst(one, carry, context: int, seconds) -> float:
  """Seconds of the slowest of the steps that add up the largest block."""
  found = []
  power = 1 << (max(context, 2) - 1).bit_length() - 1
  for clock in range(1, 2 * power + 1):
    spent, carry = seconds(one, carry)
    if clock % power == 0:
      found.append(spent)
  return float(np.max(found))


def table(rows: Iterator[tuple[str, int, Timed]], batch: int) -> Iterator[str]:
  """Lines of a Markdown table, as they are measured."""
  yield '| mixer | context | steps timed | us a step | tokens/s | worst step, ms | cache |'
  yield '|---' * 7 + '|'
  for kind, context, timed in rows:
    worst = '' if timed.worst is None else f'{1000 * timed.worst:.2f}'
    yield (
      f'| {kind} | {context:,} | {timed.steps:,} | {1e6 * timed.mean:,.0f} | '
      f'{batch / timed.mean:,.0f} | {worst} | {timed.cache_bytes / 2**20:.2f} MiB |'
    )
