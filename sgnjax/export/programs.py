"""A model as programs that run where jax is and nothing else: `jax.export`, StableHLO.

`forward(weights, inputs) -> logits`, and of a model that streams
`start(weights, tokens_B) -> (logits_BV, cache)` of the first token of each row, and
`step(weights, tokens_B, cache) -> (logits_BV, cache)` of the next. weights: the arrays of
weights.safetensors by name. cache: a list of arrays. The vocabulary's padding is cut off.
"""

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from sgnjax.decode.generate import keeps_cache
from sgnjax.errors import UserError, check_choice
from sgnjax.export.weights import flat, nested
from sgnjax.models import Model, example, one_by_one, unstacked
from sgnjax.models.decoder import Decoder
from sgnjax.ops.backend import untiled

PLATFORMS = ('cpu', 'cuda', 'tpu', 'rocm')
ENDING = '.jaxexport'


def save(
  folder: str | Path, config: ConfigDict, model: Model, params: Any
) -> dict[str, dict[str, Any]]:
  """Writes `forward`, `start` and `step` (.jaxexport) and programs.json; what the last says.

  Of `config.export`: platforms, batch (None: symbolic, any number of rows) and tokens, which the
  caches have room for. Raises UserError for settings that cannot be, and where flatbuffers is not
  installed.
  """
  check(config, model)
  folder = Path(folder)
  e = config.export
  rows = e.batch or jax.export.symbolic_shape('b')[0]
  weights = {name: jax.ShapeDtypeStruct(a.shape, a.dtype) for name, a in flat(params).items()}
  whole = example(config)
  inputs = jax.ShapeDtypeStruct((rows, *whole.shape[1:]), whole.dtype)
  token_B = jax.ShapeDtypeStruct((rows,), jnp.int32)
  found = {'forward': _write(folder, config, 'forward', forward(model), weights, inputs)}
  room = e.tokens or config.model.context
  if isinstance(model, Decoder) and keeps_cache(model):
    start, step = stream(model, room)
    with _any(config):
      cache = jax.eval_shape(start, weights, token_B)[1]
    found['start'] = _write(folder, config, 'start', start, weights, token_B)
    found['step'] = _write(folder, config, 'step', step, weights, token_B, cache)
    found['step']['cache'] = [{'shape': list(map(str, a.shape)), 'dtype': str(a.dtype)}
                              for a in cache]  # fmt: skip
    found['step']['room'] = room
  (folder / 'programs.json').write_text(json.dumps(found, indent=2) + '\n')
  return found


def check(config: ConfigDict, model: Model) -> None:
  """Raises UserError for settings of `config.export` that cannot be."""
  e, context = config.export, config.model.context
  for platform in e.platforms:
    check_choice('export.platforms:', platform, PLATFORMS)
  if not e.platforms:
    raise UserError(f'export.platforms is empty; choose of {", ".join(PLATFORMS)}')
  for key in ('batch', 'tokens'):
    if e[key] is not None and e[key] < 1:
      raise UserError(f'export.{key}={e[key]}: expected at least 1, or none')
  if e.tokens is not None and e.tokens > context and model.positions == 'learned':
    raise UserError(
      f'export.tokens={e.tokens}, but the learned positions end at {context} (model.context)'
    )


def forward(model: Model) -> Callable:
  """`forward(weights, inputs) -> logits` of the whole context, or of pixels."""

  def run(weights, inputs):
    logits = model.apply({'params': nested(weights)}, inputs).y_BLD
    return logits[..., : model.vocab] if logits.ndim == 3 else logits

  return run


def stream(model: Decoder, room: int) -> tuple[Callable, Callable]:
  """`start` and `step`, of caches for so many tokens.

  A cache gets what a layer computes from its parameters with the first token, so that `start` reads
  one.
  """
  single = one_by_one(model)

  def advance(weights, token_B, cache):
    _, params = unstacked(model, nested(weights))
    logits_B1V, _, cache = single.apply({'params': params}, token_B[:, None], cache=cache)
    return logits_B1V[:, 0, : model.vocab], cache

  def first(weights, token_B):
    return advance(weights, token_B, single.init_cache(token_B.shape[0], room))

  def start(weights, token_B):
    logits_BV, cache = first(weights, token_B)
    return logits_BV, jax.tree.leaves(cache)

  def step(weights, token_B, leaves):
    _, like = jax.eval_shape(first, weights, token_B)
    cache = jax.tree.unflatten(jax.tree.structure(like), leaves)
    logits_BV, cache = advance(weights, token_B, cache)
    return logits_BV, jax.tree.leaves(cache)

  return start, step


def _write(folder: Path, config: ConfigDict, name: str, function: Callable, *args) -> dict:
  """Exports one program; what programs.json says of it."""
  platforms = tuple(config.export.platforms)
  try:
    import flatbuffers  # noqa: F401
  except ImportError:
    raise UserError(
      "programs need flatbuffers: pip install 'sgnjax[export]', or --config.export.programs=false "
      'for the weights alone'
    ) from None
  with _any(config):
    exported = jax.export.export(jax.jit(function), platforms=platforms)(*args)
  path = folder / f'{name}{ENDING}'
  path.write_bytes(exported.serialize())
  return {
    'file': path.name,
    'platforms': list(platforms),
    'rows': config.export.batch or 'any',
    'inputs': [str(a) for a in exported.in_avals],
    'outputs': [str(a) for a in exported.out_avals],
    'jax': jax.__version__,
    'calling_convention': exported.calling_convention_version,
  }


@contextlib.contextmanager
def _any(config: ConfigDict):
  """What is traced inside is whole: tiles are cut for one device and a number of rows.

  Turns what a mixer cannot do with a symbolic number of rows into a UserError.
  """
  try:
    with untiled():
      yield
  except (jax.errors.InconclusiveDimensionOperation, jax.errors.ConcretizationTypeError) as error:
    raise UserError(
      f'these layers need to know the number of rows ({str(error).splitlines()[0]}); set '
      f'--config.export.batch=1, or another number'
    ) from error
