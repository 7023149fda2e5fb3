"""How long a step takes at least: arithmetic, memory and each interconnect, from data sheets.

Nothing is measured: peak rates, no latencies, work spread evenly over devices. Mesh axes are taken
to lie along a TPU's torus, or through nodes of GPUs, in the mesh's order, the last one closest.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from ml_collections import ConfigDict

from sgnjax.analysis.collectives import Collective
from sgnjax.analysis.flops import Cost
from sgnjax.analysis.targets import Target


@dataclass(frozen=True)
class Step:
  """Seconds of a training step that each resource needs; sent: {interconnect: seconds}."""

  compute: float
  memory: float
  sent: Mapping[str, float]

  @property
  def communication(self) -> float:
    return sum(self.sent.values())

  @property
  def least(self) -> float:
    """All of it at the same time."""
    return max(self.compute, self.memory, *self.sent.values())

  @property
  def most(self) -> float:
    """Communication waited for."""
    return max(self.compute, self.memory) + self.communication

  @property
  def bound(self) -> str:
    """What needs the most time."""
    every = {'arithmetic': self.compute, 'memory': self.memory, **self.sent}
    return max(every, key=every.get)


def step(
  target: Target,
  mesh,
  found: Iterable[Collective],
  *,
  flops: float,
  memory: float,
  narrow: bool,
) -> Step:
  """A step on a target whose chip is known. mesh: anything with `shape`, as of a Mesh.

  flops: of the whole step, over all devices. memory: bytes that a device's memory reads and writes.
  narrow: whether matrix products are of bfloat16.
  """
  chip = target.chip
  sent = Counter()
  for c in found:
    over, seconds = transfer(c, target, mesh)
    sent[over] += c.times * seconds
  peak = chip.flops if narrow else chip.flops_float32
  return Step(flops / target.devices / peak, memory / chip.bandwidth, dict(sent))


def training(config: ConfigDict, terms: Mapping[str, Cost]) -> float:
  """FLOPs of a step by formula, with the second forward pass of rematerialised layers."""
  again = {'none': 0, 'dots': 0, 'all': 1}[config.model.remat]
  return sum(cost.training + again * cost.forward for cost in terms.values())


def transfer(c: Collective, target: Target, mesh) -> tuple[str, float]:
  """The interconnect that one run of a collective goes over, and its seconds.

  A torus: rings along the sides that the group spans, both ways where ends are joined; all-to-all
  by what crosses the middle of the longest side. GPUs: NVLink inside a node; between nodes the
  adapters of those of a group in one node work together, but in an all-to-all each alone.
  """
  if not c.axes:
    return 'links', 0.0
  chip = target.chip
  places = np.arange(math.prod(mesh.shape.values())).reshape(tuple(mesh.shape.values()))
  group = places[tuple(slice(None) if a in c.axes else 0 for a in mesh.shape)].ravel()
  if chip.kind == 'gpu':
    nodes = len(np.unique(group // chip.node))
    if nodes == 1:
      return 'NVLink', c.moved / chip.link
    together = 1 if c.kind in ('all-to-all', 'collective-permute') else len(group) / nodes
    return 'network', c.moved / min(chip.link, together * chip.network)
  at = np.unravel_index(group, target.sides)
  spans = [(len(np.unique(a)), side) for a, side in zip(at, target.sides, strict=True)]
  # Of each side that is spanned: its length, and links that carry data one way.
  rings = [(n, 2 if n == side and side % chip.node == 0 else 1) for n, side in spans if n > 1]
  if c.kind == 'all-to-all':
    crossing = max(n / (4 * links) for n, links in rings)
    return 'links', c.operand * max(crossing, (c.group - 1) / c.group / 2) / chip.link
  if c.kind == 'collective-permute':
    return 'links', c.moved / chip.link
  return 'links', c.moved / (sum(links for _, links in rings) * chip.link)
