"""The training state: what a step changes and a checkpoint keeps."""

from typing import Any

import flax
import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh
from ml_collections import ConfigDict

from sgnjax.models import Model, example
from sgnjax.parallel import rules
from sgnjax.parallel.mesh import replicated


@flax.struct.dataclass
class TrainState:
  """`step` counts the finished steps (int32); `params` float32; `opt_state` Optax's.

  average: of the parameters over the steps (`train.ema`), or None.
  """

  step: jax.Array
  params: Any
  opt_state: Any
  average: Any = None

  @property
  def evaluated(self) -> Any:
    """The parameters that are evaluated: the average, where one is kept."""
    return self.params if self.average is None else self.average


def averaged(average: Any, params: Any, step: jax.Array, decay: float) -> Any:
  """The exponential moving average after a step counted from 0; None stays None.

  Its decay grows as (1 + step) / (10 + step) up to `decay`, so that the start is soon forgotten.
  """
  if average is None:
    return None
  rate = jnp.minimum(decay, (1.0 + step) / (10.0 + step))
  return jax.tree.map(lambda a, p: a + (1 - rate).astype(a.dtype) * (p - a), average, params)


def _fresh(config: ConfigDict, model: Model, optimiser: optax.GradientTransformation):
  def make() -> TrainState:
    inputs = example(config)
    inputs = jnp.zeros(inputs.shape, inputs.dtype)
    params = model.init(jax.random.key(config.seed), inputs)['params']
    average = params if config.train.ema else None
    return TrainState(jnp.zeros((), jnp.int32), params, optimiser.init(params), average)

  return make


def create(
  config: ConfigDict, model: Model, optimiser: optax.GradientTransformation, mesh: Mesh
) -> TrainState:
  """The state before step 0, drawn from `config.seed`; its values do not depend on the mesh."""
  make = _fresh(config, model, optimiser)  # one function, which JAX traces once for both
  where = shardings_of(jax.eval_shape(make), optimiser, mesh)
  return jax.jit(make, out_shardings=where)()


def abstract(
  config: ConfigDict, model: Model, optimiser: optax.GradientTransformation, mesh: Mesh
) -> TrainState:
  """Shapes, types and shardings of the state, without computing it."""
  shapes = jax.eval_shape(_fresh(config, model, optimiser))
  return jax.tree.map(
    lambda a, where: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=where),
    shapes,
    shardings_of(shapes, optimiser, mesh),
  )


def shardings_of(
  shapes: TrainState, optimiser: optax.GradientTransformation, mesh: Mesh
) -> TrainState:
  """Where each array of the state lies: the optimiser's beside the parameters they are about."""
  params, whole = rules.shardings(shapes.params, mesh), replicated(mesh)
  opt_state = optax.tree.map_params(
    optimiser,
    lambda _, where: where,
    shapes.opt_state,
    params,
    transform_non_params=lambda _: whole,
  )
  return TrainState(whole, params, opt_state, None if shapes.average is None else params)
