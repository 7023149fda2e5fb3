"""Audits of models that are not ours: a Flax module, or any function of tokens to logits."""

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from sgnjax import audit
from sgnjax.audit.causality import TOLERANCE, compare
from sgnjax.audit.report import Report
from sgnjax.errors import UserError

# Largest change, over the largest logit, that may still be rounding. Where sums run in another
# order for other values (an FFT, a scan by halves) it is not 0.
LIMITS = {'float64': TOLERANCE, 'float32': 1e-5}
COARSE = 1e-2  # of any narrower type


def audit_function(
  function: Callable,
  *,
  vocab: int,
  length: int,
  batch: int = 2,
  seed: int = 0,
  limit: float | None = None,
  name: str | None = None,
) -> Report:
  """Audits a function of tokens (B, L), int32, to logits (B, L, at least vocab columns).

  It is called as it is, each time on arrays of one shape; a tuple's first entry, or an attribute
  `logits`, counts. It may be of any library, as long as `numpy.asarray` reads what it gives.
  limit: the change, over the largest logit, from which on it leaks; None: by the logits' type, see
  LIMITS. Raises UserError where the logits have another shape, where the same tokens twice give
  other logits (dropout is on), and as `compare` does.
  """
  tokens_BL = _tokens(vocab, batch, length, seed)

  def apply(tokens_BL):
    return _checked(np.asarray(_logits(function(tokens_BL))), batch, length, vocab)

  first, again = apply(tokens_BL), apply(tokens_BL)
  if not np.array_equal(first, again, equal_nan=True):
    raise UserError(
      'the same tokens twice gave other logits: turn dropout off, or whatever else is random'
    )
  dtype = str(first.dtype)
  limit = LIMITS.get(dtype, COARSE) if limit is None else limit
  rows = compare(apply, tokens_BL, vocab=vocab, limit=limit, seed=seed)
  name = name or getattr(function, '__name__', type(function).__name__)
  return Report(tuple(rows), name, length, batch, None, how=f'{dtype}, as the function is')


def audit_module(
  module: nn.Module,
  variables: Mapping | None = None,
  *,
  vocab: int,
  length: int,
  batch: int = 2,
  seed: int = 0,
  limit: float | None = None,
  **call,
) -> Report:
  """Audits a Flax (Linen) module of tokens to logits, on a CPU, in float64 where it lets itself be.

  variables: its parameters, or all of its collections; None: its own, all parameters random (see
  `randomise`), since a fresh model often hides what it sees. call: further arguments of the call,
  as `train=False`. The first submodule whose output changes is named. limit: as in
  `audit_function`. Padding is not tried. Raises UserError as there.
  """
  tokens_BL = _tokens(vocab, batch, length, seed)
  name = module.name or type(module).__name__
  cpu = audit.local_cpu()
  if variables is None:
    with jax.default_device(cpu):
      variables = _random(module, tokens_BL, call, seed)
  elif 'params' not in variables:
    variables = {'params': variables}
  forward = functools.partial(_forward, module, call)
  for wide in (True, False):
    with jax.enable_x64(wide), jax.default_device(cpu):
      own = jax.device_put(jax.tree.map(functools.partial(_as, wide=wide), variables), cpu)
      try:
        result = jax.eval_shape(forward, own, tokens_BL)[0]
      except TypeError:
        if not wide:  # the module holds on to another type than float64
          raise
        continue
      _checked(result, batch, length, vocab)
      dtype = str(result.dtype)
      compiled = jax.jit(forward, compiler_options=audit.QUICK)
      rows = compare(
        lambda tokens_BL, own=own, compiled=compiled: compiled(own, tokens_BL),
        tokens_BL,
        vocab=vocab,
        limit=LIMITS.get(dtype, COARSE) if limit is None else limit,
        seed=seed,
      )
      return Report(tuple(rows), name, length, batch, None, how=f'{dtype} on a CPU')
  raise AssertionError('one of the two precisions returned or raised')


def _tokens(vocab: int, batch: int, length: int, seed: int) -> np.ndarray:
  if vocab < 2 or length < 2 or batch < 1:
    raise UserError(
      f'vocab={vocab}, length={length}, batch={batch}: an audit replaces tokens by others, and '
      'needs a vocabulary and a length of at least 2, and an example'
    )
  rng = np.random.default_rng(seed)
  return rng.integers(0, vocab, size=(batch, length)).astype(np.int32)


def _random(module: nn.Module, tokens_BL, call: dict, seed: int) -> dict:
  keys = dict(zip(('params', 'dropout'), jax.random.split(jax.random.key(seed)), strict=True))
  variables = nn.meta.unbox(jax.jit(lambda: module.init(keys, tokens_BL, **call))())
  return variables | {'params': audit.randomise(variables.get('params', {}), seed)}


def _as(leaf, wide: bool):
  leaf = np.asarray(leaf)
  if not jnp.issubdtype(leaf.dtype, jnp.floating):
    return leaf
  return leaf.astype(np.float64 if wide else np.float32)


def _forward(module: nn.Module, call: dict, variables, tokens_BL):
  """Logits, and the outputs of submodules that are of each token, by name in order."""
  result, found = module.apply(
    variables, tokens_BL, **call, capture_intermediates=True, mutable=['intermediates']
  )

  def shown(leaf):
    of_tokens = leaf.ndim > 2 and leaf.shape[:2] == tokens_BL.shape
    return of_tokens and jnp.issubdtype(leaf.dtype, jnp.inexact)

  outputs = [pair for pair in _outputs(found.get('intermediates', {}), ()) if shown(pair[1])]
  width = len(str(len(outputs)))  # jit sorts a dict by its keys: 9 of 12 is 09
  names = [f'submodule {i:0{width}d} ({name})' for i, (name, _) in enumerate(outputs, 1)]
  return _logits(result), dict(zip(names, (leaf for _, leaf in outputs), strict=True))


def _outputs(tree: Mapping, path: tuple[str, ...]) -> Iterator[tuple[str, jax.Array]]:
  """Outputs of the submodules under `path`, in the order in which they ended."""
  for key, value in tree.items():
    if isinstance(value, Mapping):
      yield from _outputs(value, (*path, key))
    elif key == '__call__' and path:
      for leaf in jax.tree.leaves(value):
        yield '/'.join(path), leaf


def _logits(result: Any):
  """The logits of what a model gave."""
  if hasattr(result, 'logits'):
    return result.logits
  return result[0] if isinstance(result, tuple | list) else result


def _checked(logits, batch: int, length: int, vocab: int):
  """The logits. Raises UserError where they are of another shape."""
  shape = tuple(getattr(logits, 'shape', ()))
  if len(shape) != 3 or shape[:2] != (batch, length) or shape[2] < vocab:
    raise UserError(
      f'of {batch} x {length} tokens the model gave {shape or type(logits).__name__}: expected '
      f'logits ({batch}, {length}, at least {vocab}), those of the next token at every position'
    )
  return logits


def is_module(model: Any) -> bool:
  """Whether it is an instance of a Linen module. Raises UserError for the class itself."""
  if inspect.isclass(model) and issubclass(model, nn.Module):
    raise UserError(f'{model.__name__} is a class: make an instance of it, {model.__name__}(...)')
  return isinstance(model, nn.Module)
