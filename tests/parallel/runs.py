"""Five training steps of a small model on any mesh."""

import functools
from typing import Any, NamedTuple

import jax
import numpy as np

from configs import base
from sgnjax.models import build
from sgnjax.models.variants import variant
from sgnjax.parallel.mesh import batch_sharding, make_mesh
from sgnjax.train import state as state_lib
from sgnjax.train.optim import make_optimiser
from sgnjax.train.step import make_train_step

ONE = (1, 1, 1, 1)
STEPS = 5


def sized(mesh: tuple[int, ...], *, dtype='float64', context=32, batch=8):
  """A small softmax config on a mesh (data, fsdp, tensor, sequence), unlocked."""
  config = base.get_config().unlock()
  m = config.model
  m.layers, m.width, m.heads, m.context, m.ffn, m.vocab = 2, 32, 4, context, 2, 61
  m.dtype, m.dropout = dtype, 0.1
  m.ega.lengths, m.ega.levels = (3, 5), 2  # few taps compile fast
  config.train.batch, config.optim.warmup = batch, 2
  for axis, size in zip(('data', 'fsdp', 'tensor', 'sequence'), mesh, strict=True):
    config.mesh[axis] = size
  return config


def small(name: str, mesh: tuple[int, ...], changes: dict[str, Any] | None = None, **sizes):
  """`sized` with the model of a variant, and changes."""
  config = variant(sized(mesh, **sizes), name).unlock()
  if config.model.mixer == 'chiar':
    config.model.layers = 3
  config.update_from_flattened_dict(changes or {})
  return config.lock()


def tokens(config) -> dict[str, np.ndarray]:
  shape = (config.train.batch, config.model.context + 1)
  window_BL = np.random.default_rng(0).integers(0, 61, shape).astype(np.int32)
  return {'tokens': window_BL[:, :-1], 'targets': window_BL[:, 1:]}


class Run(NamedTuple):
  """Of a run: parameters before, losses, moments after one step, and parameters at the end.

  Adam's first moments after one step are the gradients (clipped) times 1 - b1.
  """

  start: Any
  losses: list[float]
  moments: Any
  end: Any


def compiled(config, mesh):
  """The training step, not run: its program."""
  model, optimiser = build(config), make_optimiser(config)
  abstract = state_lib.abstract(config, model, optimiser, mesh)
  where = batch_sharding(mesh)
  batch = {
    key: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=where) for key, a in tokens(config).items()
  }
  return make_train_step(model, optimiser, config, mesh).lower(abstract, batch).compile()


@functools.lru_cache(maxsize=2)
def run(name: str, mesh: tuple[int, ...], changes: tuple = ()) -> Run:
  """changes: (key, value) pairs of the config."""
  with jax.enable_x64(True):
    config = small(name, mesh, dict(changes))
    devices = make_mesh(config)
    model, optimiser = build(config), make_optimiser(config)
    state = state_lib.create(config, model, optimiser, devices)
    start = jax.device_get(state.params)
    step = compiled(config, devices)
    batch = jax.device_put(tokens(config), batch_sharding(devices))
    losses, moments = [], None
    for _ in range(STEPS):
      state, metrics = step(state, batch)
      losses.append(float(metrics['loss']))
      moments = moments or jax.device_get(state.opt_state)
    return Run(start, losses, moments, jax.device_get(state.params))


def furthest(a: Any, b: Any) -> float:
  """The largest difference between two trees, of the largest number in each array.

  An array of rounding alone (a gradient that is 0 by mathematics) is small beside all others.
  """
  pairs = list(zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))
  least = 1e-3 * max(np.max(np.abs(x)) for x, _ in pairs)
  return max(float(np.max(np.abs(x - y)) / max(np.max(np.abs(x)), least)) for x, y in pairs)
