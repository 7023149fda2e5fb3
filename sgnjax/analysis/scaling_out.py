"""Strategies on paper: `python -m sgnjax.analysis.scaling_out docs/scaling_out.md [CONFIG ...]`.

Each step is partitioned for its mesh on fake CPU devices, its collectives are counted (see
`sgnjax.analysis.hlo.partitioned`) and set against arithmetic and memory of real chips. Some are
compiled by libtpu too, where it is installed. Nothing here is a measurement of an accelerator.
"""

import importlib.util
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from sgnjax import config as config_lib
from sgnjax.analysis import flops, layout, roofline, targets
from sgnjax.analysis.collectives import Collective
from sgnjax.analysis.layout import Memory, Program
from sgnjax.analysis.roofline import Step
from sgnjax.models import build
from sgnjax.ops.backend import assumed
from sgnjax.parallel.mesh import AXES

CHIPS = ('h100', 'h200', 'v5e', 'v5p')
ROWS = (
  16  # rows a device where the batch grows with the machine, and of 8 devices where it does not
)
# Mesh sizes along data, fsdp, tensor, sequence.
STRATEGIES = {
  8: ((8, 1, 1, 1), (1, 8, 1, 1), (1, 4, 2, 1), (1, 1, 8, 1), (1, 1, 1, 8)),
  64: ((64, 1, 1, 1), (1, 64, 1, 1), (8, 8, 1, 1), (1, 8, 8, 1), (1, 8, 1, 8)),
}
LENGTHS = tuple(2**k for k in range(10, 21, 2))
TOKENS = 2**20  # a step, whatever the length
OF_LENGTHS = ((1, 8, 1, 1), (1, 2, 1, 4), (1, 1, 1, 8))
SENT = ('all-gather', 'reduce-scatter', 'all-reduce', 'all-to-all', 'collective-permute')
LIBTPU = (('chiar_400m', 'v5e-8', (1, 8, 1, 1)), ('chiar_400m', 'v5e-64', (1, 64, 1, 1)))

HEAD = """# Scaling out, on paper

Which way of sharing a training step over devices costs what. Nothing on this page was measured on
an accelerator: each step is partitioned by XLA for the mesh, its collectives are counted with the
loops that they are in, and bytes and FLOPs are divided by the peak rates of data sheets
(`sgnjax/analysis/targets.py` names them and their sources). Made by
`python -m sgnjax.analysis.scaling_out docs/scaling_out.md`.

- Columns of collectives: MiB that a device sends in a step, by ring formulas
  (`sgnjax/analysis/collectives.py`).
- GiB a device, the lower of two estimates from above: parameters, gradients, the optimiser's state
  and all activations that autodiff saves, by formula (activations not divided over `tensor`, where
  a part of them is); and the buffers of the program compiled for CPUs (where bfloat16 is widened).
- Columns of chips: milliseconds of a step when communication is waited for, and its share of them:
  the longer of arithmetic and memory traffic, and all collectives one after the other, without
  latencies. H100 and H200 in nodes of 8 with NVLink, and one adapter of 50 GB/s a GPU between
  nodes; v5e and v5p in one slice. Bold: the shortest that fits the chip's memory.
- An all-reduce along several axes is one ring through all of them."""
OVER_LENGTHS = f"""## Lengths from 1,024 to 1,048,576

A causal SGN model of bytes, 12 layers of width 1024 that keep 1,024 coefficients, layers
rematerialised, {TOKENS:,} tokens a step at every length, on 8 devices. Rows can be shared as long
as there are 8 of them; beyond, only the length can."""
COMPILED = """## As compiled for TPUs

The same steps as the partitioner leaves them and as libtpu compiles them, which may turn an
all-gather before a product into permutations that overlap with it, and a gather of narrow parts
into a sum. GiB of its row: all buffers that the compiler laid out."""


@dataclass(frozen=True)
class Measured:
  """A step on a mesh: its program as partitioned, and what a device holds by formula."""

  config: ConfigDict
  mesh: tuple[int, ...]
  program: Program
  memory: Memory

  @property
  def devices(self) -> int:
    return math.prod(self.mesh)

  def on(self, chip: str) -> Step:
    """Its time on so many of these chips."""
    cores = targets.CHIPS[chip].cores
    target = targets.find(f'{chip}-{self.devices * cores}')
    with assumed(target.chip.kind):
      terms = flops.costs(
        build(self.config), batch=self.config.train.batch, length=self.config.model.context
      )
    return roofline.step(
      target,
      layout.mesh_of(self.config, self.devices),
      self.program.collectives,
      flops=roofline.training(self.config, terms),
      memory=self.memory.traffic(self.config, self.program),
      narrow=self.config.model.dtype == 'bfloat16',
    )

  @property
  def held(self) -> int:
    """Bytes of a device: the lower of two estimates that both lie above what an accelerator needs.

    The formula does not divide activations over tensor; the CPU's program widens bfloat16.
    """
    return min(self.memory.total, self.program.peak)

  def fits(self, chip: str) -> bool:
    return self.held <= targets.CHIPS[chip].memory


def measure(config: ConfigDict, mesh: Sequence[int], target: str | None = None) -> Measured:
  """The config's step on a mesh, partitioned for CPU devices or compiled for a target."""
  config = config.copy_and_resolve_references().unlock()
  for axis, n in zip(AXES, mesh, strict=True):
    config.mesh[axis] = n
  model = build(config)
  tokens_BL = jax.ShapeDtypeStruct((1, config.model.context), jnp.int32)
  params = jax.eval_shape(model.init, jax.random.key(0), tokens_BL)['params']
  per_example = layout.activations(model, params, length=config.model.context)
  count = math.prod(mesh)
  return Measured(
    config,
    tuple(mesh),
    layout.program(config, targets.find(target or f'cpu-{count}')),
    layout.Layout(config, model, per_example).memory(layout.mesh_of(config, count)),
  )


def sgn(length: int) -> ConfigDict:
  """A causal SGN model of bytes, 12 layers, that keeps 1,024 coefficients of any length."""
  changes = [
    *('model.layers=12', 'model.width=1024', 'model.heads=16', 'model.vocab=256'),
    *('model.mixer=sgn', 'model.sgn.retained=1024', 'model.dtype=bfloat16', 'model.remat=all'),
    *(f'model.context={length}', f'train.batch={TOKENS // length}'),
  ]
  return config_lib.load(config_lib.CONFIGS / 'quickstart.py', changes)


def mebibytes(found: Iterable[Collective], kind: str) -> str:
  moved = sum(c.times * c.moved for c in found if c.kind == kind)
  return f'{moved / 2**20:,.0f}' if moved else '-'


def name(mesh: Sequence[int]) -> str:
  """'fsdp 8 x sequence 8'."""
  return ' x '.join(f'{axis} {n}' for axis, n in zip(AXES, mesh, strict=True) if n > 1)


def table(cases: Sequence[tuple[str, Measured]], first: str) -> list[str]:
  """Markdown: bytes by kind, memory, and on each chip the step's time and what is sent of it.

  Bold: the shortest step on the chip of those that fit and have the same first cell.
  """
  head = [first, 'mesh', *SENT, 'GiB', *CHIPS]
  lines = ['| ' + ' | '.join(head) + ' |', '|' + ' --- |' * 2 + ' ---: |' * (len(head) - 2)]
  steps = {(i, chip): m.on(chip) for i, (_, m) in enumerate(cases) for chip in CHIPS}
  for i, (label, m) in enumerate(cases):
    cells = [label, name(m.mesh), *(mebibytes(m.program.collectives, kind) for kind in SENT)]
    cells.append(f'{m.held / 2**30:.1f}')
    for chip in CHIPS:
      step = steps[i, chip]
      rivals = [
        steps[j, chip].most for j, (other, n) in enumerate(cases) if other == label and n.fits(chip)
      ]
      cell = f'{1e3 * step.most:.1f} ({step.communication / step.most:.0%})'
      if not m.fits(chip):
        cell = 'too large'
      elif step.most == min(rivals):
        cell = f'**{cell}**'
      cells.append(cell)
    lines.append('| ' + ' | '.join(cells) + ' |')
  return lines


def winners(cases: Sequence[tuple[str, Measured]], first: str) -> list[str]:
  """Markdown: the shortest step on each chip, and how much longer the next mesh takes."""
  head = [first, *CHIPS]
  lines = ['| ' + ' | '.join(head) + ' |', '| --- ' * len(head) + '|']
  for label in dict.fromkeys(label for label, _ in cases):
    cells = [label]
    for chip in CHIPS:
      ranked = sorted(
        (m.on(chip).most, name(m.mesh)) for other, m in cases if other == label and m.fits(chip)
      )
      margin = f' (next: +{ranked[1][0] / ranked[0][0] - 1:.0%})' if len(ranked) > 1 else ''
      cells.append(f'{ranked[0][1]}{margin}' if ranked else 'none fits')
    lines.append('| ' + ' | '.join(cells) + ' |')
  return lines


def both(cases: Sequence[tuple[str, Measured]], first: str) -> str:
  return '\n'.join([*table(cases, first), '', 'Shortest:', '', *winners(cases, first)])


def strong_and_weak(config: ConfigDict) -> str:
  """The table of 8 and 64 devices: the config's batch on both, and a batch that grows with them."""
  cases, rows = [], config.train.batch
  for devices, batch in ((8, rows), (64, rows), (64, 8 * rows)):
    config = config.copy_and_resolve_references().unlock()
    config.train.batch = batch
    for mesh in STRATEGIES[devices]:
      print(f'  {devices} devices, {batch} rows: {name(mesh)}', flush=True)
      cases.append((f'{devices} devices, {batch} rows', measure(config, mesh)))
  return both(cases, 'machine, batch')


def lengths() -> str:
  """The table over lengths, on 8 devices."""
  cases = []
  for length in LENGTHS:
    config = sgn(length)
    for mesh in OF_LENGTHS:
      if config.train.batch % (mesh[0] * mesh[1]) == 0:
        print(f'  {length} tokens: {name(mesh)}', flush=True)
        cases.append((f'{length:,}', measure(config, mesh)))
  return both(cases, 'length')


def as_compiled() -> list[str]:
  """The same steps partitioned and as libtpu compiles them."""
  head = ['step', 'program', *SENT, 'GiB']
  lines = ['| ' + ' | '.join(head) + ' |', '|' + ' --- |' * 2 + ' ---: |' * (len(head) - 2)]
  for file, target, mesh in LIBTPU:
    config = config_lib.load(config_lib.CONFIGS / f'{file}.py')
    for words, given in (('partitioned', None), ('libtpu', target)):
      print(f'  {file} on {target}: {words}', flush=True)
      m = measure(config, mesh, given)
      held = m.program.peak if given else m.held
      sent = (mebibytes(m.program.collectives, kind) for kind in SENT)
      memory = 'refused' if m.program.refused else f'{held / 2**30:.1f}'
      lines.append(f'| {" | ".join((f"{file}, {target}", words, *sent, memory))} |')
  return lines


def parts(configs: Sequence[str]) -> Iterator[str]:
  """The page, a part at a time."""
  yield HEAD
  for file in configs:
    print(file, flush=True)
    config = config_lib.load(config_lib.CONFIGS / f'{file}.py')
    t, m = config.train, config.model
    yield f'## {file}'
    yield (
      f'{t.batch} rows of {m.context} tokens a step on 8 and 64 devices (strong scaling), and '
      f'{8 * t.batch} on 64 (weak scaling); train.accumulation={t.accumulation}, '
      f'model.remat={m.remat}.'
    )
    yield strong_and_weak(config)
  yield OVER_LENGTHS
  yield lengths()
  if importlib.util.find_spec('libtpu') is not None:
    yield COMPILED
    yield '\n'.join(as_compiled())


def main() -> None:
  path, *configs = sys.argv[1:]
  targets.prepare(targets.find('cpu-64'))
  page = []
  for part in parts(configs or ('chiar_400m', 'chiar_1b')):
    page.append(part)
    Path(path).write_text('\n\n'.join(page) + '\n', encoding='utf-8')


if __name__ == '__main__':
  main()
