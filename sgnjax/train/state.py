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
  """`step` counts the finished steps (int32); `params` float32; `opt_state` Optax's."""

  step: jax.Array
  params: Any
  opt_state: Any


def _fresh(config: ConfigDict, model: Model, optimiser: optax.GradientTransformation):
  def make() -> TrainState:
    inputs = example(config)
    inputs = jnp.zeros(inputs.shape, inputs.dtype)
    params = model.init(jax.random.key(config.seed), inputs)['params']
    return TrainState(jnp.zeros((), jnp.int32), params, optimiser.init(params))

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
  return TrainState(whole, params, opt_state)
