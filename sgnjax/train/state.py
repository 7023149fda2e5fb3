"""The training state: what a step changes and a checkpoint keeps."""

from typing import Any

import flax
import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh
from ml_collections import ConfigDict

from sgnjax.models.decoder import Decoder
from sgnjax.parallel.mesh import replicated


@flax.struct.dataclass
class TrainState:
  """`step` counts the finished steps (int32); `params` float32; `opt_state` Optax's."""

  step: jax.Array
  params: Any
  opt_state: Any


def _fresh(config: ConfigDict, model: Decoder, optimiser: optax.GradientTransformation):
  def make() -> TrainState:
    tokens_BL = jnp.zeros((1, config.model.context), jnp.int32)
    params = model.init(jax.random.key(config.seed), tokens_BL)['params']
    return TrainState(jnp.zeros((), jnp.int32), params, optimiser.init(params))

  return make


def create(
  config: ConfigDict, model: Decoder, optimiser: optax.GradientTransformation, mesh: Mesh
) -> TrainState:
  """The state before step 0, drawn from `config.seed`, whole on every device of the mesh."""
  return jax.jit(_fresh(config, model, optimiser), out_shardings=replicated(mesh))()


def abstract(
  config: ConfigDict, model: Decoder, optimiser: optax.GradientTransformation, mesh: Mesh
) -> TrainState:
  """Shapes, types and shardings of the state, without computing it."""
  sharding = replicated(mesh)
  return jax.tree.map(
    lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=sharding),
    jax.eval_shape(_fresh(config, model, optimiser)),
  )
