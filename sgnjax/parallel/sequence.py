"""Activations on a mesh: where they lie, and operations that need a whole length or width.

Inside `using(mesh)`, which the training step opens, the functions here place what models compute;
outside it, and on a mesh of one device, they are the plain operation. A Fourier transform or a scan
along a sharded length is not left to the compiler, which would gather it: each device gives away
its tokens' other channels for the other tokens of its own channels (`all_to_all`), works on whole
rows of those, and trades back.
"""

import contextlib
import contextvars
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from sgnjax.errors import UserError
from sgnjax.parallel import rules
from sgnjax.parallel.mesh import ROWS

_MESH: contextvars.ContextVar[Mesh | None] = contextvars.ContextVar('mesh', default=None)

P = PartitionSpec
TOKENS = P(ROWS, 'sequence')  # (B, L, ...)
CHANNELS = P(ROWS, 'sequence', 'tensor')  # (B, L, C, ...): channels or heads split too
PARTS = P(ROWS, 'sequence', None, 'tensor')  # (B, L, any, C, ...)
# Parameters (any, C) of channels, as `over_length` takes them: over `fsdp` they come gathered.
CHANNEL_WEIGHTS = P(None, ('tensor', 'sequence', 'fsdp'))  # beside traded CHANNELS
TOKEN_WEIGHTS = P(None, ('sequence', 'fsdp'))  # beside traded TOKENS
HEAD_KEYS = P(ROWS, 'tensor')  # (B, H, S, ...): whole rows of the heads' own keys
QUERIES = P(ROWS, 'tensor', 'sequence')  # (B, H, L, S): queries apart, keys whole
WHOLE_ROWS = P(ROWS)  # (B, L, ...) whole on every device of a row


@contextlib.contextmanager
def using(mesh: Mesh | None):
  """What is traced inside lies on `mesh`; a mesh of one device changes nothing."""
  token = _MESH.set(mesh if mesh is not None and mesh.size > 1 else None)
  try:
    yield
  finally:
    _MESH.reset(token)


def alone() -> bool:
  """Whether what is traced lies on one device."""
  return _MESH.get() is None


def shards() -> tuple[int, int]:
  """Over how many devices rows, and lengths, are split."""
  mesh = _MESH.get()
  if mesh is None:
    return 1, 1
  return math.prod(mesh.shape[axis] for axis in ROWS), mesh.shape['sequence']


def constrain(x: Any, spec: PartitionSpec) -> Any:
  """Arrays of a tree where `spec` says, further axes whole; None stays None."""
  mesh = _MESH.get()
  if mesh is None:
    return x
  return jax.tree.map(
    lambda a: jax.lax.with_sharding_constraint(a, NamedSharding(mesh, P(*spec[: a.ndim]))), x
  )


def gathered(weight: jax.Array, path: str) -> jax.Array:
  """A parameter as it is multiplied: whole over `fsdp`, in its parts over the other axes.

  Said, since a compiler may find it cheaper to move the rows of small batches to the parts of a
  parameter, which is another strategy. path: of the parameter, without the group's `stack/`.
  """
  mesh = _MESH.get()
  if mesh is None:
    return weight
  whole, parts = (
    NamedSharding(mesh, rules.spec(path, weight.shape, mesh, mesh_axes=places))
    for places in (rules.WHOLE_OVER_FSDP, rules.MESH_AXES)
  )
  return _gathered(weight, whole, parts)


@functools.partial(jax.custom_vjp, nondiff_argnums=(1, 2))
def _gathered(weight, whole, parts):
  return jax.lax.with_sharding_constraint(weight, whole)


# Its gradient is summed into the parts, not whole and then cut.
_gathered.defvjp(
  lambda weight, whole, parts: (_gathered(weight, whole, parts), None),
  lambda whole, parts, _, gradient: (jax.lax.with_sharding_constraint(gradient, parts),),
)


def product(x: jax.Array, kernel: jax.Array, path: str, **how) -> jax.Array:
  """`dot_general(x, kernel, **how)` in x's dtype, for which devices gather their parts of a kernel.

  The backward pass gathers them again: kept, the layers of a model would add up to all of it.
  """

  def whole(x, kernel):
    return jax.lax.dot_general(x, gathered(kernel.astype(x.dtype), path), **how)

  mesh = _MESH.get()
  if mesh is None or mesh.shape['fsdp'] == 1:
    return whole(x, kernel)
  return jax.checkpoint(whole, prevent_cse=False)(x, kernel)


def over_length(op: Callable, *args: Any, specs: Sequence[PartitionSpec]) -> Any:
  """`op(*args)` of an operation along whole rows that treats channels apart.

  specs: one an argument, all arrays of the argument's tree alike. Arrays (B, L, ..., C) whose spec
  begins as TOKENS are traded: they come to `op` with the whole length and a share of their last
  axis, and so must all that it returns, which lies as the first of them does. Other arguments come
  as their spec says. Raises UserError where the last axis does not divide.
  """
  mesh = _MESH.get()
  if mesh is None:
    return op(*args)
  for arg, spec in zip(args, specs, strict=True):
    for a in jax.tree.leaves(arg):
      _check_divides(a, spec, mesh)

  def trade(a, *, back: bool):
    if mesh.shape['sequence'] == 1:
      return a
    split, join = (1, a.ndim - 1) if back else (a.ndim - 1, 1)
    return jax.lax.all_to_all(a, 'sequence', split, join, tiled=True)

  def come(a, spec):
    if _traded(spec):
      return trade(a, back=False)
    if spec in (CHANNEL_WEIGHTS, TOKEN_WEIGHTS) and mesh.shape['fsdp'] > 1:
      return jax.lax.all_gather(a, 'fsdp', axis=1, tiled=True)
    return a

  def local(*args):
    pairs = zip(args, specs, strict=True)
    args = [jax.tree.map(lambda a, spec=spec: come(a, spec), arg) for arg, spec in pairs]
    return jax.tree.map(lambda a: trade(a, back=True), op(*args))

  out = next(spec for spec in specs if _traded(spec))
  return _on(mesh, local, tuple(specs), out)(*args)


def over_width(op: Callable, x: jax.Array, *weights: jax.Array) -> Any:
  """`op(x, *weights)` of an operation on each token of x (B, L, D) alone, weights whole."""
  mesh = _MESH.get()
  if mesh is None:
    return op(x, *weights)
  return _on(mesh, op, (TOKENS, *(P() for _ in weights)), TOKENS)(x, *weights)


def _on(mesh: Mesh, op: Callable, specs: tuple, out: PartitionSpec) -> Callable:
  # Where the devices of `tensor` do the same, their gradients are not to be added up: that takes
  # the types which the check infers, and which loops (`lax.scan`) do not always meet.
  same = 'tensor' not in out
  return jax.shard_map(op, mesh=mesh, in_specs=specs, out_specs=out, check_vma=same)


def _traded(spec: PartitionSpec) -> bool:
  return tuple(spec[:2]) == (ROWS, 'sequence')


def _check_divides(a: jax.Array, spec: PartitionSpec, mesh: Mesh) -> None:
  """Raises UserError where the channels of what is traded, or of its weights, do not divide."""
  if _traded(spec):
    last = spec[a.ndim - 1] if len(spec) == a.ndim else None
    axes = ('sequence',) if last is None else (last, 'sequence')
  elif spec in (CHANNEL_WEIGHTS, TOKEN_WEIGHTS):
    axes = spec[1]
  else:
    return
  size, count = a.shape[-1], math.prod(mesh.shape[axis] for axis in axes)
  if size % count:
    named = ' x '.join(f'mesh.{axis}={mesh.shape[axis]}' for axis in axes if mesh.shape[axis] > 1)
    raise UserError(
      f'{size} channels do not divide over {named}; {size // count * count or count} would, or '
      'sizes that divide them'
    )
