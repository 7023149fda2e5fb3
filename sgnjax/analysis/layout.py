"""A training step laid out on a mesh: what each device holds, and what devices send each other."""

import dataclasses
import json
import math
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding
from ml_collections import ConfigDict

from sgnjax import config as config_lib
from sgnjax.analysis import hlo, targets
from sgnjax.analysis.collectives import Collective, collectives
from sgnjax.analysis.targets import Target
from sgnjax.errors import UserError
from sgnjax.models import Model, build
from sgnjax.models.encoder import Encoder
from sgnjax.ops.backend import assumed
from sgnjax.parallel.mesh import AXES, make_mesh, row_shards
from sgnjax.train import state as state_lib
from sgnjax.train.optim import make_optimiser
from sgnjax.train.step import abstract_batch, check_batch, make_train_step


@dataclass(frozen=True)
class Parameter:
  """`axes`: of each axis, the mesh axes that it is split over. here: bytes on one device."""

  path: str
  shape: tuple[int, ...]
  axes: tuple[tuple[str, ...], ...]
  here: int


@dataclass(frozen=True)
class Program:
  """A compiled step. Bytes are one device's, of the buffers that the compiler laid out.

  refused: what a compiler said of a program that does not fit; there are no other numbers then.
  """

  seconds: float
  arguments: int = 0
  outputs: int = 0  # those that do not take the place of arguments
  temporaries: int = 0
  collectives: tuple[Collective, ...] = ()
  refused: str | None = None

  @property
  def peak(self) -> int:
    return self.arguments + self.outputs + self.temporaries


@dataclass(frozen=True)
class Memory:
  """Bytes on one device, by formula: activations are all that autodiff saves of a microbatch.

  They are split over rows and over the sequence, not over tensor, where a part of them is.
  gathered: parameters that a device computes with: whole but for the split over tensor. average: of
  the weights over the steps, where train.ema asks for it.
  """

  parameters: int
  gradients: int
  optimiser: int
  activations: int
  gathered: int
  average: int

  @property
  def state(self) -> int:
    return self.parameters + self.average + self.optimiser

  @property
  def total(self) -> int:
    return self.state + self.gradients + self.activations

  def traffic(self, config: ConfigDict, program: Program) -> int:
    """Bytes that a step reads and writes at least: activations written and read; weights read by
    each pass of each microbatch; gradients written and read; the state read and written.

    Activations are no more than the buffers of the step's program hold.
    """
    m, accumulation = config.model, config.train.accumulation
    passes = 3 if m.remat == 'all' else 2
    weights = self.gathered * jnp.dtype(m.dtype).itemsize // 4
    state = 2 * (self.state + self.gradients)
    saved = min(self.activations, program.temporaries or self.activations)
    return state + accumulation * (2 * saved + passes * weights)


def mesh_of(config: ConfigDict, count: int) -> AbstractMesh:
  """The config's mesh over so many devices, without devices. Raises UserError."""
  sizes = make_mesh(config, range(count)).shape
  return AbstractMesh(tuple(sizes.values()), AXES, axis_types=(AxisType.Auto,) * len(AXES))


def whole_mesh(config: ConfigDict, target: Target) -> AbstractMesh:
  """The mesh over all devices of a target. Raises UserError where it leaves some idle."""
  mesh = mesh_of(config, target.devices)
  if mesh.size < target.devices and target.compiler != 'here':
    words = ' x '.join(f'{axis} {n}' for axis, n in mesh.shape.items())
    raise UserError(
      f'mesh of {words} leaves {target.devices - mesh.size} of the {target.devices} devices of '
      f"'{target.name}' idle; set one axis to -1 to take them all"
    )
  return mesh


def activations(model: Model, params, *, length: int) -> int:
  """Bytes an example of `length` tokens that the backward pass reads: what autodiff saves.

  XLA keeps less where it recomputes cheap operations. What does not grow with the batch (weights)
  is left out, by taking the difference of two batches.
  """

  def saved(batch: int) -> int:
    inputs = jnp.zeros((batch, length), jnp.int32)
    if isinstance(model, Encoder) and model.image is not None:
      inputs = jnp.zeros((batch, *model.image))

    def loss(params):
      dropout = {'dropout': jax.random.key(0)}
      logits = model.apply({'params': params}, inputs, train=True, rngs=dropout)[0]
      return jnp.mean(jax.nn.log_softmax(logits)[..., 0])

    residuals = jax.eval_shape(lambda params: jax.vjp(loss, params)[1], params)
    return sum(math.prod(a.shape) * a.dtype.itemsize for a in jax.tree.leaves(residuals))

  return saved(3) - saved(2)


class Layout:
  """The state of a run, traced once, on any mesh."""

  def __init__(self, config: ConfigDict, model: Model, per_example: int):
    """per_example: bytes of activations that one row saves for the backward pass."""
    self.config, self.per_example = config, per_example
    self.optimiser = make_optimiser(config)
    one = AbstractMesh((1,) * len(AXES), AXES, axis_types=(AxisType.Auto,) * len(AXES))
    self.shapes = state_lib.abstract(config, model, self.optimiser, one)

  def parameters(self, mesh: AbstractMesh) -> list[Parameter]:
    """Raises UserError where a parameter does not divide."""
    placed = state_lib.shardings_of(self.shapes, self.optimiser, mesh).params
    found = []
    for (path, leaf), where in zip(
      jax.tree_util.tree_leaves_with_path(self.shapes.params), jax.tree.leaves(placed), strict=True
    ):
      spec = (*where.spec, *[None] * (leaf.ndim - len(where.spec)))
      axes = tuple(() if a is None else (a,) if isinstance(a, str) else tuple(a) for a in spec)
      name = jax.tree_util.keystr(path, simple=True, separator='/')
      found.append(Parameter(name, leaf.shape, axes, _here(leaf, where)))
    return found

  def memory(self, mesh: AbstractMesh) -> Memory:
    """Raises UserError where batch or parameters do not divide."""
    check_batch(self.config, row_shards(mesh))
    parameters = self.parameters(mesh)
    held = sum(p.here for p in parameters)
    split = (math.prod(mesh.shape[a] for axis in p.axes for a in axis) for p in parameters)
    tensor = mesh.shape['tensor']
    placed = state_lib.shardings_of(self.shapes, self.optimiser, mesh).opt_state
    optimiser = jax.tree.map(_here, self.shapes.opt_state, placed)
    rows = self.config.train.batch // self.config.train.accumulation // row_shards(mesh)
    return Memory(
      parameters=held,
      gradients=held,
      optimiser=sum(jax.tree.leaves(optimiser)),
      activations=rows * self.per_example // mesh.shape['sequence'],
      gathered=sum(
        p.here * n // (tensor if any('tensor' in axis for axis in p.axes) else 1)
        for p, n in zip(parameters, split, strict=True)
      ),
      average=held if self.config.train.ema else 0,
    )

  def nearest(self, target: Target, limit: int) -> dict[str, tuple[Target, AbstractMesh, Memory]]:
    """{'fewer': ..., 'more': ...}: the nearest machines of the kind that hold the run.

    The mesh axis that is -1 takes what the machine has, else fsdp.
    """
    found = {}
    config = self.config.copy_and_resolve_references().unlock()
    if -1 not in config.mesh.values():
      config.mesh.fsdp = -1
    counts = [2**k for k in range(13)]
    fewer = [n for n in reversed(counts) if n < target.devices]
    more = [n for n in counts if n > target.devices]
    for name, order in (('fewer', fewer), ('more', more)):
      for count in order:
        other = targets.resize(target, count)
        try:
          mesh = mesh_of(config, count)
          memory = self.memory(mesh)
        except UserError:
          continue  # batch, heads or widths do not divide over so many
        if other and mesh.size == count and memory.total <= limit:
          found[name] = (other, mesh, memory)
          break
    return found


def _here(leaf: Any, where: NamedSharding) -> int:
  return math.prod(where.shard_shape(leaf.shape)) * leaf.dtype.itemsize


def program(config: ConfigDict, target: Target) -> Program:
  """The training step of the config, compiled for the target; its vocabulary is set.

  A process that lacks the CPU devices that stand in for a target's starts another one. Raises
  UserError as the training step itself does.
  """
  try:
    devices = targets.devices(target)
  except targets.TooFewDevicesError:
    return _in_a_new_process(config, target)
  start = time.perf_counter()
  mesh = make_mesh(config, devices)
  with assumed(target.backend):
    lowered = lower(config, mesh)
  try:
    if target.compiler == 'cpu':
      text, compiled = hlo.partitioned(lowered)
    else:
      compiled = lowered.compile()
      text = compiled.as_text()
  except jax.errors.JaxRuntimeError as error:
    if 'RESOURCE_EXHAUSTED' not in str(error):
      raise
    said = ' '.join(str(error).split('HLO module')[0].split())
    return Program(time.perf_counter() - start, refused=re.sub(r'^[A-Z_]+: \S+ \S+ ', '', said))
  return Program(
    time.perf_counter() - start, **buffers(compiled), collectives=tuple(collectives(text, mesh))
  )


def lower(config: ConfigDict, mesh: Mesh) -> jax.stages.Lowered:
  """The training step of the config, traced for a mesh; its vocabulary is set."""
  model, optimiser = build(config), make_optimiser(config)
  state = state_lib.abstract(config, model, optimiser, mesh)
  return make_train_step(model, optimiser, config, mesh).lower(state, abstract_batch(config, mesh))


def buffers(compiled: jax.stages.Compiled) -> dict[str, int]:
  """What a `Program` says of memory."""
  stats = compiled.memory_analysis()
  return {
    'arguments': stats.argument_size_in_bytes,
    'outputs': stats.output_size_in_bytes - stats.alias_size_in_bytes,
    'temporaries': stats.temp_size_in_bytes,
  }


def _in_a_new_process(config: ConfigDict, target: Target) -> Program:
  flags = re.sub(r'--xla_force_host_platform_device_count=\d+', '', os.environ.get('XLA_FLAGS', ''))
  done = subprocess.run(
    [sys.executable, '-m', 'sgnjax.analysis.layout', target.name],
    input=json.dumps(config_lib.serialise(config)),
    env=os.environ | {'JAX_PLATFORMS': 'cpu', 'XLA_FLAGS': flags, 'PYTHONPATH': _path()},
    capture_output=True,
    text=True,
    check=False,
  )
  if done.returncode == 2:
    raise UserError(done.stderr.strip().splitlines()[-1])
  if done.returncode:
    raise RuntimeError(f"planning for '{target.name}' failed in its own process:\n{done.stderr}")
  found = json.loads(done.stdout.splitlines()[-1])
  listed = (
    Collective(**c | {'axes': tuple(c['axes']), 'shapes': tuple(c['shapes'])})
    for c in found.pop('collectives')
  )
  return Program(**found, collectives=tuple(listed))


def _path() -> str:
  return os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get('PYTHONPATH', '')])


def main() -> int:
  """The new process: config on its standard input, program on its standard output."""
  config = config_lib.deserialise(json.load(sys.stdin))
  try:
    found = program(config, targets.find(sys.argv[1]))
  except UserError as error:
    print(error, file=sys.stderr)
    return 2
  print(json.dumps(dataclasses.asdict(found)))
  return 0


if __name__ == '__main__':
  sys.exit(main())
