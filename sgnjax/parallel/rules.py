"""Where each parameter lies: its path names its axes, and each named axis goes to mesh axes."""

import fnmatch
import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from sgnjax.errors import UserError

# A path's pattern and the names of its axes, of which None is never split; the first match counts.
# Layers of a group lie on an axis before these.
RULES: tuple[tuple[str, tuple], ...] = (
  ('embedding', ('vocab', None)),
  ('head', (None, 'vocab')),
  ('position', ('places', 'embed')),
  ('cls', ('embed',)),
  ('patches/kernel', (None, 'embed')),
  ('classifier*/kernel', ('embed', None)),
  ('*/[qkv]/kernel', ('embed', 'heads')),
  ('*/[qkv]/bias', ('heads',)),
  ('*/o/kernel', ('summed', None)),
  ('*/up/kernel', ('embed', 'hidden')),
  ('*/up/bias', ('hidden',)),
  ('*/down/kernel', ('summed', None)),
  ('*/in/kernel', ('embed', None, 'mixed')),
  ('*/rbf/out/kernel', ('embed', None)),
  ('*/out/kernel', ('summed', None)),
  ('*/frozen_omega', ('embed', None)),
  ('*/frozen_key', ()),
  ('*/router/kernel', (None, None)),
  ('*/meta_router/gate/kernel', (None, None)),
  ('*/meta_router/gate/bias', (None,)),
  ('*/mixer/gate', (None, 'channels')),
  ('*/mixer/gate/*', (None, 'channels')),
  ('*/mixer/frozen_gate', (None, 'channels')),
  ('*/mixer/frozen_gate/*', (None, 'channels')),
  ('*/mixer/mixture', (None, None)),
  ('*/mixer/w_spectral', (None,)),
  ('*/mixer/log_centre', ('heads', None)),
  ('*/mixer/tau', ('heads', None)),
  ('*/mixer/alpha', ('heads', None)),
  ('*/mixer/scale_logits', ('heads', None)),
  ('*/mixer/w_gate', ('heads', None, None)),
  ('*/mixer/b_gate', ('heads', None)),
  ('*/mixer/w_input', ('heads', None)),
  ('*/mixer/conv_taps', ('heads', None, 'embed', None)),
  ('*/mixer/conv_bias', ('heads', None, None)),
  ('*/mixer/log_omega0', ('heads', None)),
  ('*/mixer/log_sigma', ('heads', None)),
  ('*/mixer/angles', ('heads', None)),
  ('*/mixer/filters', ('heads', None, None)),
  ('*/bias', (None,)),
  ('*/scale', (None,)),
)

# Paths of the parameters of mixers that were registered: whole on every device, by any name.
OWN: set[str] = set()

# Where the named axes go. A matrix falls into parts along its rows, which accelerators gather well:
# `embed` is the width as it comes in, `summed` what a product adds up over `tensor`. `channels` are
# those of an operation along the length, which takes its share of them over `sequence` too (see
# `sgnjax.parallel.sequence`), and keeps them over `fsdp`.
MESH_AXES: dict[str, tuple[str, ...]] = {
  'embed': ('fsdp',),
  'places': ('sequence',),
  'vocab': ('tensor', 'fsdp'),
  'summed': ('tensor', 'fsdp'),
  'heads': ('tensor',),
  'hidden': ('tensor',),
  'mixed': ('tensor',),
  'channels': ('tensor', 'sequence', 'fsdp'),
}
WHOLE_OVER_FSDP = {
  name: tuple(axis for axis in axes if axis != 'fsdp') for name, axes in MESH_AXES.items()
}


def own(path: str) -> bool:
  """Whether the parameter at `path` is of a mixer that was registered, and not one of ours."""
  return any(fnmatch.fnmatchcase(path, pattern) for pattern in OWN)


def logical(path: str, rank: int, rules: Sequence[tuple[str, tuple]] = RULES) -> tuple:
  """Names of the axes of the parameter at `path`. Raises UserError where no rule is about it."""
  if own(path):
    return (None,) * rank
  found = next((rule for rule in rules if fnmatch.fnmatchcase(path, rule[0])), None)
  if found is None:
    raise UserError(
      f"parameter '{path}' has no rule of where it lies; add its name and axes to RULES in "
      'sgnjax/parallel/rules.py'
    )
  pattern, names = found
  names = (*((None,) if path.startswith('stack/') else ()), *names)
  if len(names) != rank:
    raise UserError(
      f"parameter '{path}' has {rank} axes, but its rule ('{pattern}') names {len(names)}: {names}"
    )
  return names


def spec(
  path: str,
  shape: Sequence[int],
  mesh: Mesh,
  rules: Sequence[tuple[str, tuple]] = RULES,
  mesh_axes: Mapping[str, tuple[str, ...]] = MESH_AXES,
) -> PartitionSpec:
  """Over which mesh axes each axis of a parameter is split; those of one device are left out.

  Raises UserError for a path without a rule, a name without a place, two axes in one place, and a
  size that does not divide.
  """
  parts, taken = [], {}
  for name, size in zip(logical(path, len(shape), rules), shape, strict=True):
    if name is not None and name not in mesh_axes:
      raise UserError(
        f"parameter '{path}': its axis '{name}' has no mesh axes; MESH_AXES in "
        f'sgnjax/parallel/rules.py names those of {", ".join(mesh_axes)}'
      )
    axes = tuple(axis for axis in mesh_axes.get(name, ()) if mesh.shape[axis] > 1)
    for axis in axes:
      if axis in taken:
        raise UserError(
          f"parameter '{path}': its axes '{taken[axis]}' and '{name}' both go to mesh axis "
          f"'{axis}'; an array can be split over it once"
        )
      taken[axis] = name
    count = math.prod(mesh.shape[axis] for axis in axes)
    if size % count:
      fits = [n for n in range(1, count) if size % n == 0]
      raise UserError(
        f"parameter '{path}' {tuple(shape)}: its axis '{name}' of {size} does not divide over "
        f'{" x ".join(f"mesh.{a}={mesh.shape[a]}" for a in axes)}; {fits[-1]} parts would do, or '
        f'a size of {-(-size // count) * count}'
      )
    parts.append(axes if len(axes) > 1 else axes[0] if axes else None)
  return PartitionSpec(*parts)


def shardings(params: Any, mesh: Mesh) -> Any:
  """A tree like `params` (arrays or their shapes) of NamedShardings.

  Rules are asked where the mesh splits parameters at all. Raises UserError as `spec` does.
  """
  split = any(mesh.shape[axis] > 1 for axes in MESH_AXES.values() for axis in axes)

  def of(key_path, leaf):
    if not split:
      return NamedSharding(mesh, PartitionSpec())
    path = jax.tree_util.keystr(key_path, simple=True, separator='/')
    return NamedSharding(mesh, spec(path, leaf.shape, mesh))

  return jax.tree_util.tree_map_with_path(of, params)
