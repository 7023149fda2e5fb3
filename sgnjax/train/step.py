"""One optimiser step, and the sums of an evaluation batch. Optax needs standard dtype promotion."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from ml_collections import ConfigDict

from sgnjax.errors import UserError
from sgnjax.models import Model, example
from sgnjax.parallel.feed import EXAMPLES
from sgnjax.parallel.mesh import batch_sharding, make_mesh, replicated, row_shards
from sgnjax.parallel.sequence import TOKENS, WHOLE_ROWS, constrain, using
from sgnjax.train import objectives
from sgnjax.train import state as state_lib
from sgnjax.train.optim import schedule
from sgnjax.train.state import TrainState

PASSED_ON = {'mask': 'mask_BL', 'segments': 'segments_BL', 'positions': 'positions_BL'}


def _apply(model: Model, params, batch: dict[str, jax.Array], **options):
  extras = {name: batch[key] for key, name in PASSED_ON.items() if key in batch}
  inputs = batch['image'] if 'image' in batch else batch['tokens']
  return model.apply({'params': params}, inputs, **extras, **options)


def abstract_batch(config: ConfigDict, mesh: Mesh) -> dict[str, jax.ShapeDtypeStruct]:
  """Shapes, types and shardings of a training batch, as the pipeline gives it."""
  rows, task = config.train.batch, config.data.task
  inputs = example(config, rows)
  found = {'tokens' if config.model.image is None else 'image': inputs}
  if task == 'classify':
    number = config.model.classes == 1
    found['label'] = jax.ShapeDtypeStruct((rows,), jnp.float32 if number else jnp.int32)
  else:
    found |= dict.fromkeys(('targets', *(('segments', 'positions') * config.data.packing)), inputs)
  if config.data.packing or ('tokens' in found and task == 'classify' and config.data.mask_padding):
    found['mask'] = jax.ShapeDtypeStruct(inputs.shape, jnp.bool_)
  spec = batch_sharding(mesh).spec

  def placed(key, a):
    axes = spec[: 1 if key in EXAMPLES else a.ndim]
    where = NamedSharding(mesh, PartitionSpec(*axes))
    return jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=where)

  return {key: placed(key, a) for key, a in found.items()}


def check_batch(config: ConfigDict, shards: int) -> None:
  """Raises UserError where the batch does not divide into microbatches and these over devices."""
  batch, accumulation = config.train.batch, config.train.accumulation
  for key in ('batch', 'accumulation'):
    if config.train[key] < 1:
      raise UserError(f'train.{key}={config.train[key]}: expected at least 1')
  unit = accumulation * shards
  if batch % unit:
    below, above = batch // unit * unit, -(-batch // unit) * unit
    would_do = f'{below} or {above}' if below else str(above)
    raise UserError(
      f'train.batch={batch} does not divide into train.accumulation={accumulation} microbatches '
      f'over {shards} device{"s" if shards > 1 else ""}; train.batch={would_do} would do'
    )


def make_train_step(
  model: Model,
  optimiser: optax.GradientTransformation,
  config: ConfigDict,
  mesh: Mesh | None = None,
) -> Callable[[TrainState, dict], tuple[TrainState, dict[str, jax.Array]]]:
  """`step(state, batch) -> (state, metrics)`, compiled; the state given is consumed.

  batch: `tokens` and `targets` (B, L), and `mask`, `segments`, `positions` where there are any;
  placed as `batch_sharding` says; of data.task=classify `tokens` or `image`, and `label` (B,).
  Microbatch m takes rows m, m + A, ... of the A of
  `train.accumulation`, so that every device works on its own rows.

  metrics, scalars: loss (nats a scored token, over the whole batch), tokens (scored; of classify:
  examples), grad_norm (before clipping), lr, accuracy where the objective knows one, and the
  model's own (means over microbatches), auxiliary losses among them.

  Sums over tokens are divided once, after the last microbatch, by the tokens of the whole batch;
  auxiliary losses add their mean over microbatches.
  """
  mesh = make_mesh(config) if mesh is None else mesh
  accumulation = config.train.accumulation
  check_batch(config, row_shards(mesh))
  rate, objective = schedule(config), objectives.of(config)
  where = jax.tree.map(lambda a: a.sharding, state_lib.abstract(config, model, optimiser, mesh))

  def step(state: TrainState, batch: dict[str, jax.Array]):
    key = jax.random.fold_in(jax.random.key(config.seed), state.step)
    tokens = objective.scored(batch)
    scored = jnp.maximum(tokens, 1)

    def weighed(params, micro, m):
      micro = {
        name: constrain(a, WHOLE_ROWS if name in EXAMPLES else TOKENS) for name, a in micro.items()
      }
      dropout = jax.random.fold_in(key, m)
      outputs, aux, _ = _apply(model, params, micro, train=True, rngs={'dropout': dropout})
      sums = objective.smoothed(outputs, micro)
      loss_sum = sums['loss_sum']
      extra = sum(aux.losses.values(), jnp.zeros((), loss_sum.dtype))
      scalars = {'loss_sum': loss_sum, **{k: v / accumulation for k, v in aux.metrics.items()}}
      if 'correct' in sums:
        scalars['correct'] = sums['correct']
      scalars |= {f'{k}_loss': v / accumulation for k, v in aux.losses.items()}
      return loss_sum + extra * (scored.astype(loss_sum.dtype) / accumulation), scalars

    def microbatch(total, inputs):
      (_, scalars), grads = jax.value_and_grad(weighed, has_aux=True)(state.params, *inputs)
      return jax.tree.map(jnp.add, total, grads), scalars

    micros = jax.tree.map(lambda a: a.reshape(-1, accumulation, *a.shape[1:]).swapaxes(0, 1), batch)
    zeros = jax.tree.map(jnp.zeros_like, state.params)
    with using(mesh):
      grads, scalars = jax.lax.scan(microbatch, zeros, (micros, jnp.arange(accumulation)))
    grads = jax.lax.with_sharding_constraint(grads, where.params)
    scalars = jax.tree.map(jnp.sum, scalars)
    grads = jax.tree.map(lambda g: g / scored.astype(g.dtype), grads)
    updates, opt_state = optimiser.update(grads, state.opt_state, state.params)
    loss_sum = scalars.pop('loss_sum')
    metrics = {
      'loss': loss_sum / scored.astype(loss_sum.dtype),
      'tokens': tokens,
      'grad_norm': optax.tree.norm(grads),
      'lr': rate(state.step),
      **scalars,
    }
    if 'correct' in metrics:
      metrics['accuracy'] = metrics.pop('correct') / scored.astype(loss_sum.dtype)
    params = optax.apply_updates(state.params, updates)
    return TrainState(state.step + 1, params, opt_state), metrics

  return jax.jit(
    step,
    # Tokens lie as the mesh says wherever they are from; what else there is comes placed.
    in_shardings=(where, None if objective.unit == 'example' else batch_sharding(mesh)),
    out_shardings=(where, replicated(mesh)),
    donate_argnums=0,
  )


def make_eval_step(
  model: Model, mesh: Mesh | None = None, sums: Callable = objectives.next_token_sums
) -> Callable[[Any, dict], dict[str, jax.Array]]:
  """`step(params, batch)`: an objective's `sums` over the batch, `loss_sum` and `tokens` first."""

  def step(params, batch: dict[str, jax.Array]):
    with using(mesh):
      return sums(_apply(model, params, batch)[0], batch)

  return jax.jit(step, out_shardings=None if mesh is None else replicated(mesh))
