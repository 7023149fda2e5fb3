"""One optimiser step, and the sums of an evaluation batch. Optax needs standard dtype promotion."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from ml_collections import ConfigDict

from sgnjax.errors import UserError
from sgnjax.models import Model, example
from sgnjax.models.stretches import stretches
from sgnjax.parallel.feed import EXAMPLES
from sgnjax.parallel.mesh import batch_sharding, make_mesh, replicated, row_shards
from sgnjax.parallel.sequence import TOKENS, WHOLE_ROWS, constrain, using
from sgnjax.train import objectives
from sgnjax.train import state as state_lib
from sgnjax.train.optim import schedule
from sgnjax.train.state import TrainState
from sgnjax.train.tasks import Task

PASSED_ON = {'mask': 'mask_BL', 'segments': 'segments_BL', 'positions': 'positions_BL'}


def _apply(model: Model, params, batch: dict[str, jax.Array], **options):
  extras = {name: batch[key] for key, name in PASSED_ON.items() if key in batch}
  inputs = batch['image'] if 'image' in batch else batch['tokens']
  return model.apply({'params': params}, inputs, **extras, **options)


def _sums(model: Model, params, batch: dict[str, jax.Array], sums: Callable, **options):
  """An objective's sums over a batch, and the model's reports.

  Where logits of all tokens at once would be too many the model sums them stretch by stretch.
  """
  count = 1
  if 'targets' in batch and 'head' not in options:
    count = stretches(*batch['targets'].shape, model.padded_vocab)
  if count > 1:
    options['score'] = (sums, {'targets': batch['targets']}, count)
  outputs, aux, _ = _apply(model, params, batch, **options)
  return outputs if count > 1 else sums(outputs, batch), aux


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
  tasks: Mapping[str, Task] | None = None,
) -> Callable[[TrainState, dict], tuple[TrainState, dict[str, jax.Array]]]:
  """`step(state, batch) -> (state, metrics)`, compiled; the state given is consumed.

  batch: `tokens` and `targets` (B, L), and `mask`, `segments`, `positions` where there are any;
  placed as `batch_sharding` says; of data.task=classify `tokens` or `image`, and `label` (B,).
  Microbatch m takes rows m, m + A, ... of the A of `train.accumulation`, so that every device works
  on its own rows.

  metrics, scalars: loss (nats a scored token, over the whole batch), tokens (scored; of classify:
  examples), grad_norm (before clipping), lr, accuracy where the objective knows one, and the
  model's own (means over microbatches), auxiliary losses among them.

  Sums over tokens are divided once, after the last microbatch, by the tokens of the whole batch;
  auxiliary losses add their mean over microbatches.

  tasks: of a mixture, the main one first. A batch is then `{name: batch}` of those that the step
  has, each with the mean loss of its own; the sum is lowered. metrics are the main one's, and
  `name/loss` and `name/accuracy` of the others.
  """
  mesh = make_mesh(config) if mesh is None else mesh
  accumulation = config.train.accumulation
  check_batch(config, row_shards(mesh))
  rate, mixed = schedule(config), tasks is not None and len(tasks) > 1
  tasks = tasks if mixed else {'': Task(config, None)}
  goals = {name: objectives.of(task.config) for name, task in tasks.items()}
  main = next(iter(tasks))
  where = jax.tree.map(lambda a: a.sharding, state_lib.abstract(config, model, optimiser, mesh))

  def step(state: TrainState, batch: dict[str, jax.Array]):
    key = jax.random.fold_in(jax.random.key(config.seed), state.step)
    batches = batch if mixed else {main: batch}
    counts = {name: goals[name].scored(own) for name, own in batches.items()}
    tokens, scored = counts[main], jnp.maximum(counts[main], 1)

    def one(params, name, micro, dropout):
      """Sums and reports of a task's microbatch, and its part of the objective times `scored`."""
      micro = {
        key: constrain(a, WHOLE_ROWS if key in EXAMPLES else TOKENS) for key, a in micro.items()
      }
      head = {} if tasks[name].head is None else {'head': tasks[name].head}
      options = {'train': True, 'rngs': {'dropout': dropout}, **head}
      sums, aux = _sums(model, params, micro, goals[name].smoothed, **options)
      loss_sum = sums['loss_sum']
      weight = scored.astype(loss_sum.dtype)
      extra = sum(aux.losses.values(), jnp.zeros((), loss_sum.dtype)) * (weight / accumulation)
      if name != main:
        loss_sum = loss_sum * (weight / jnp.maximum(counts[name], 1).astype(weight.dtype))
      return sums, aux, loss_sum + extra

    def weighed(params, micros, m):
      dropout = jax.random.fold_in(key, m)
      sums, aux, total = one(params, main, micros[main], dropout)
      scalars = {k: sums[k] for k in ('loss_sum', 'correct') if k in sums}
      scalars |= {k: v / accumulation for k, v in aux.metrics.items()}
      scalars |= {f'{k}_loss': v / accumulation for k, v in aux.losses.items()}
      for number, name in enumerate(tasks):
        if name != main and name in micros:
          own = jax.random.fold_in(dropout, number)
          sums, _, part = one(params, name, micros[name], own)
          scalars |= {f'{name}/{k}': sums[k] for k in ('loss_sum', 'correct') if k in sums}
          total += part
      return total, scalars

    def microbatch(total, inputs):
      (_, scalars), grads = jax.value_and_grad(weighed, has_aux=True)(state.params, *inputs)
      return jax.tree.map(jnp.add, total, grads), scalars

    micros = jax.tree.map(
      lambda a: a.reshape(-1, accumulation, *a.shape[1:]).swapaxes(0, 1), batches
    )
    zeros = jax.tree.map(jnp.zeros_like, state.params)
    with using(mesh):
      grads, scalars = jax.lax.scan(microbatch, zeros, (micros, jnp.arange(accumulation)))
    grads = jax.lax.with_sharding_constraint(grads, where.params)
    scalars = jax.tree.map(jnp.sum, scalars)
    grads = jax.tree.map(lambda g: g / scored.astype(g.dtype), grads)
    updates, opt_state = optimiser.update(grads, state.opt_state, state.params)
    for name, number in counts.items():
      prefix = '' if name == main else f'{name}/'
      for kind, said in (('loss_sum', 'loss'), ('correct', 'accuracy')):
        if prefix + kind in scalars:
          total = scalars.pop(prefix + kind)
          scalars[prefix + said] = total / jnp.maximum(number, 1).astype(total.dtype)
    metrics = {
      'tokens': tokens,
      'grad_norm': optax.tree.norm(grads),
      'lr': rate(state.step),
      **scalars,
    }
    params = optax.apply_updates(state.params, updates)
    average = state_lib.averaged(state.average, params, state.step, config.train.ema)
    return TrainState(state.step + 1, params, opt_state, average), metrics

  return jax.jit(
    step,
    # Tokens lie as the mesh says wherever they are from; what else there is comes placed.
    in_shardings=(
      where,
      None if mixed or config.data.task == 'classify' else batch_sharding(mesh),
    ),
    out_shardings=(where, replicated(mesh)),
    donate_argnums=0,
  )


def make_eval_step(
  model: Model,
  mesh: Mesh | None = None,
  sums: Callable = objectives.next_token_sums,
  head: str | None = None,
) -> Callable[[Any, dict], dict[str, jax.Array]]:
  """`step(params, batch)`: an objective's `sums` over the batch, `loss_sum` and `tokens` first.

  head: of a further task of a mixture.
  """
  options = {} if head is None else {'head': head}

  def step(params, batch: dict[str, jax.Array]):
    with using(mesh):
      return _sums(model, params, batch, sums, **options)[0]

  return jax.jit(step, out_shardings=None if mesh is None else replicated(mesh))
