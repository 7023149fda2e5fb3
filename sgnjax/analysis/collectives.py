"""What devices say to one another in a compiled program: read from XLA's own text of it.

Ring formulas, for the bytes that each device sends (and receives) in a group of n, of an operand of
O bytes a device: all-gather (n - 1) O, reduce-scatter and all-to-all (n - 1) / n O, all-reduce
2 (n - 1) / n O, collective-permute and -broadcast O. No algorithm sends less, all-to-all on a torus
more: its messages cross several links.
"""

import itertools
import math
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from sgnjax.analysis import hlo

MESH = re.compile(r'[^\[]*\[([^\]]*)\](?:, device_ids=\((.*?)\))? \{([^}]*)\}')


@dataclass(frozen=True)
class Collective:
  """One collective operation of a program. Bytes are a device's, of one run of it.

  kind: one of hlo.KINDS. axes: the mesh axes that it runs along; group: devices that take part
  together (fewer than the axes hold where it runs along a part of one). operand, result: bytes.
  shapes: of the operands, as 'f32[64,128]'. times: how often a run of the program runs it, loops
  counted in; turns_known: False in a loop whose turns depend on data, counted as one turn.
  op_name: the JAX operation that it is for.
  """

  kind: str
  axes: tuple[str, ...]
  group: int
  operand: int
  result: int
  shapes: tuple[str, ...]
  times: int
  turns_known: bool
  op_name: str

  @property
  def moved(self) -> float:
    """Bytes that a device sends in one run, by the ring formulas above."""
    if self.group == 1:
      return 0.0
    others = (self.group - 1) / self.group
    if self.kind == 'all-gather':
      return others * self.result
    if self.kind == 'all-reduce':
      return 2 * others * self.operand
    if self.kind in ('collective-permute', 'collective-broadcast'):
      return float(self.operand)
    return others * self.operand


class Total(NamedTuple):
  """Of all collectives of a kind along the same axes: runs, and bytes of all runs, a device's."""

  times: int
  operand: int
  result: int
  moved: float


def collectives(text: str, mesh) -> list[Collective]:
  """The collectives of a compiled program, in the order of its text.

  text: `compiled.as_text()` of a program partitioned over the mesh (`num_partitions`), of any
  backend, or its text after XLA's partitioner (`hlo.partitioned`). mesh: a Mesh or AbstractMesh.
  Asynchronous pairs count once; branches of a conditional each count as taken. An all-reduce of
  which each device takes its slice and no more is the reduce-scatter that accelerators make of it.
  Raises ValueError for groups that are not understood.
  """
  module = hlo.parse(text)
  found = []
  for name, (times, known) in hlo.runs(module).items():
    computation = module.computations[name]
    users = defaultdict(list)
    for op in computation.values():
      for operand in op.operands:
        users[operand].append(op)
    for op in computation.values():
      if op.kind not in hlo.KINDS:
        continue
      kind, groups = op.kind, _groups(op, mesh)
      group = len(groups[0])
      if kind == 'all-reduce' and (
        'all-reduce-scatter' in name or _is_sliced(op.name, users, computation, group)
      ):
        kind = 'reduce-scatter'
      shapes = [s for o in op.operands for s in computation[o].shapes]
      operand = sum(map(hlo.size, shapes))
      if kind == 'collective-permute':
        group = 2 if any(a != b for a, b in groups) else 1
      result = {'all-gather': operand * group, 'reduce-scatter': operand // group}
      found.append(
        Collective(
          kind,
          _axes(groups, mesh),
          group,
          operand,
          result.get(kind, operand),
          tuple(shapes),
          times,
          known,
          op.op_name,
        )
      )
  return found


def summary(found: Iterable[Collective]) -> dict[tuple[str, tuple[str, ...]], Total]:
  """`{(kind, axes): Total}`, the most bytes first."""
  sums = defaultdict(lambda: Total(0, 0, 0, 0.0))
  for c in found:
    s = sums[c.kind, c.axes]
    sums[c.kind, c.axes] = Total(
      s.times + c.times,
      s.operand + c.times * c.operand,
      s.result + c.times * c.result,
      s.moved + c.times * c.moved,
    )
  return dict(sorted(sums.items(), key=lambda item: -item[1].moved))


PASSED_ON = ('get-tuple-element', 'convert', 'copy', 'bitcast', 'reshape', 'transpose')


def _is_sliced(name: str, users: dict[str, list[hlo.Op]], computation, group: int) -> bool:
  """Whether all that is done with a result is to take one of `group` parts of it."""
  for user in users.get(name, ()):
    if user.kind in PASSED_ON and not user.root:
      if not _is_sliced(user.name, users, computation, group):
        return False
    elif user.kind != 'dynamic-slice' or group * hlo.elements(user.shapes[0]) != hlo.elements(
      computation[name].shapes[0]
    ):
      return False
  return name in users


def _groups(op: hlo.Op, mesh) -> np.ndarray | list[list[int]]:
  """Positions in the mesh of the devices that take part together, one row a group.

  Written as a list {{0,1},{2,3}}, as [2,4]<=[8] or [2,4]<=[4,2]T(1,0), or by the axes of a mesh;
  empty: all. Of a permutation, its (source, target) pairs.
  """
  attribute = re.search(r'\b(?:replica_groups|source_target_pairs)=(.*)', op.rest)
  text = attribute[1] if attribute else '{}'
  devices = math.prod(mesh.shape.values())
  if text.startswith('{}'):
    return np.arange(devices)[None]
  if text.startswith('{{'):
    listed = text[: text.index('}}') + 2]
    return [[int(i) for i in group.split(',')] for group in re.findall(r'\{([\d,]+)\}', listed)]
  if text.startswith('['):
    shape = re.match(r'\[([\d,]+)\]', text)[1]
    return _iota(text[text.index('<=') + 2 :]).reshape([int(n) for n in shape.split(',')])
  if text.startswith('mesh['):
    return _by_axes(text)
  raise ValueError(f'groups of devices not understood: {text[:80]}')


def _iota(text: str) -> np.ndarray:
  """'[4,2]T(1,0)': the numbers from 0 in that shape, its axes in that order; flat."""
  found = re.match(r'\[([\d,]+)\](?:T\(([\d,]+)\))?', text)
  dims = [int(n) for n in found[1].split(',')]
  order = [int(n) for n in found[2].split(',')] if found[2] else range(len(dims))
  return np.arange(math.prod(dims)).reshape(dims).transpose(order).ravel()


def _by_axes(text: str) -> np.ndarray:
  """Of "mesh['x'=2,'y'=4] {'y'}". 'y':(2)2 is the part of size 2 below a part of size 2.

  The mesh may say the order of its devices: ", device_ids=(0,2,1,3)", or in the form of `_iota`.
  """
  axes, order, chosen = MESH.match(text).groups()
  sizes = {name: int(n) for name, n in re.findall(r"'([^']+)'=(\d+)", axes)}
  parts = {name: [n] for name, n in sizes.items()}
  taken = []
  for name, above, part in re.findall(r"'([^']+)'(?::\((\d+)\)(\d+))?", chosen):
    if part:
      cuts = {1, int(above), int(above) * int(part), sizes[name]}
      known = np.cumprod([1, *parts[name]])
      cuts = sorted(cuts.union(known.tolist()))
      parts[name] = [b // a for a, b in itertools.pairwise(cuts)]
    taken.append((name, int(above or 1), int(part or sizes[name])))
  shape, inside = [], []
  for name, cut in parts.items():
    ends = np.cumprod([1, *cut]).tolist()
    for start, end in itertools.pairwise(ends):
      if any(n == name and a <= start and end <= a * p for n, a, p in taken):
        inside.append(len(shape))
      shape.append(end // start)
  devices = math.prod(shape)
  if order is None:
    ids = np.arange(devices)
  else:
    ids = _iota(order) if order.startswith('[') else np.array([int(i) for i in order.split(',')])
  outside = [i for i in range(len(shape)) if i not in inside]
  group = math.prod(shape[i] for i in inside)
  return ids.reshape(shape).transpose(outside + inside).reshape(-1, group)


def _axes(groups, mesh) -> tuple[str, ...]:
  """The mesh axes along which the devices of a group differ."""
  shape = tuple(mesh.shape.values())
  differs = np.zeros(len(shape), bool)
  for group in groups:
    at = np.stack(np.unravel_index(np.asarray(group), shape), axis=-1)
    differs |= np.any(at != at[:1], axis=0)
  return tuple(axis for axis, differ in zip(mesh.shape, differs, strict=True) if differ)
