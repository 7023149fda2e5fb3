"""A layout in words and tables, for a terminal."""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence

from sgnjax.analysis import roofline
from sgnjax.analysis.collectives import summary
from sgnjax.analysis.layout import Memory, Parameter, Program
from sgnjax.analysis.roofline import Step
from sgnjax.analysis.targets import Target
from sgnjax.audit.report import aligned

GIB = 2**30
STANDS_IN = (
  "a CPU's program stands in for the GPU's: collectives as XLA places them, before a compiler for "
  'GPUs\nmerges and overlaps them; of the two totals of memory, the lower one is nearer'
)


def in_words(mesh) -> str:
  return ' x '.join(f'{axis} {n}' for axis, n in mesh.shape.items())


def title(target: Target, mesh) -> str:
  memory = f' of {target.chip.memory / GIB:.4g} GiB' if target.chip else ''
  where = 'the devices here' if target.compiler == 'here' else target.name
  return f'layout on {where}: {mesh.size} devices{memory}, mesh of {in_words(mesh)}'


def drawing(parameters: Sequence[Parameter], mesh, family: Callable[[str], str]) -> list[str]:
  """What share of each kind of array a device holds, and the mesh axes that divide it.

  family: the name under which a parameter's path is counted.
  """
  axes = [axis for axis, n in mesh.shape.items() if n > 1]
  held, whole, split = defaultdict(int), defaultdict(int), defaultdict(set)
  for p in parameters:
    name = family(p.path)
    over = {a for axis in p.axes for a in axis}
    held[name] += p.here
    whole[name] += p.here * math.prod(mesh.shape[a] for a in over)
    split[name] |= over
  shares = {'tokens and activations': 1 / math.prod(mesh.shape[a] for a in axes if a != 'tensor')}
  split['tokens and activations'] = {'data', 'fsdp', 'sequence'}
  shares |= {name: held[name] / whole[name] for name in held}
  rows = [('a device holds', *(f'{a} {mesh.shape[a]}' for a in axes), 'share', '')]
  for name, share in shares.items():
    cells = ('split' if a in split[name] else 'whole' for a in axes)
    rows.append((name, *cells, f'{share:.2%}', bar(share)))
  return aligned(rows, right=(len(axes) + 1,))


def bar(share: float, width: int = 16) -> str:
  eighths = max(1, round(share * width * 8))
  return '█' * (eighths // 8) + ' ▏▎▍▌▋▊▉'[eighths % 8].strip()


def parameters(found: Sequence[Parameter]) -> list[str]:
  """Each parameter: its axes, the mesh axes that they are split over, bytes on a device."""
  rows = [('parameter', 'shape', 'split over', 'bytes a device')]
  for p in found:
    shape = ' x '.join(map(str, p.shape))
    over = ', '.join('+'.join(axis) or '-' for axis in p.axes)
    rows.append((p.path, shape, over if any(p.axes) else 'whole', f'{p.here:,}'))
  return aligned(rows, right=(3,))


def memory(found: Memory, program: Program, target: Target, rows_at_once: int) -> list[str]:
  """Bytes a device, by formula and as compiled, against the chip's limit."""
  by_formula = (
    ('parameters', found.parameters),
    ('gradients', found.gradients),
    ("the optimiser's state", found.optimiser),
    *([('average of the weights', found.average)] if found.average else []),
    (f'activations of {rows_at_once} rows that autodiff saves', found.activations),
    ('total by formula', found.total),
  )
  table = [('memory of a device', 'GiB'), *((name, f'{n / GIB:.3f}') for name, n in by_formula)]
  stands_in = target.compiler == 'cpu'
  if not program.refused:
    by = ' for CPUs, bfloat16 widened' if stands_in else ''
    table += [
      (f'compiled{by}: state and batch', f'{program.arguments / GIB:.3f}'),
      (f'compiled{by}: all temporaries', f'{program.temporaries / GIB:.3f}'),
      (f'total as compiled{by}', f'{program.peak / GIB:.3f}'),
    ]
  lines = aligned(table, right=(1,))
  if program.refused:
    lines.append(f'the compiler refused it: {program.refused}')
  elif target.chip:
    # The formula does not divide all that is divided, and the CPU's program widens bfloat16.
    needed = min(found.total, program.peak) if stands_in else program.peak
    limit = target.chip.memory
    verdict = 'fits' if needed <= limit else 'does NOT fit'
    lines.append(f'{verdict} in {limit / GIB:.4g} GiB: {needed / limit:.0%} of it')
  return lines


def collectives(program: Program, target: Target, mesh) -> list[str]:
  """Kinds of collectives along mesh axes: how often, bytes sent, and the time they take."""
  if not program.collectives:
    return ['no collectives']
  rows = [('collectives of a step', 'along', 'runs', 'MiB a device sends', 'milliseconds')]
  for (kind, axes), total in summary(program.collectives).items():
    same = [c for c in program.collectives if (c.kind, c.axes) == (kind, axes)]
    seconds = '-'
    if target.chip:
      over = roofline.transfer(same[0], target, mesh)[0]
      spent = sum(c.times * roofline.transfer(c, target, mesh)[1] for c in same)
      seconds = f'{1e3 * spent:.3f} ({over})'
    cells = (kind, ' + '.join(axes) or '-', f'{total.times:,}', f'{total.moved / 2**20:,.1f}')
    rows.append((*cells, seconds))
  lines = aligned(rows, right=(2, 3))
  if not all(c.turns_known for c in program.collectives):
    lines.append('some run in loops whose turns depend on data: counted as one turn')
  return lines


def step(found: Step, tokens: int, flops: float, target: Target, memory: float) -> list[str]:
  """The time of a step by roofline."""
  rows = [
    ('a step, at the peak rates of data sheets', 'milliseconds'),
    (f'{flops / target.devices:.3e} FLOPs a device', f'{1e3 * found.compute:.3f}'),
    (f'{memory / GIB:.2f} GiB through its memory', f'{1e3 * found.memory:.3f}'),
    *((f'sent over {over}', f'{1e3 * s:.3f}') for over, s in found.sent.items()),
    ('all at the same time', f'{1e3 * found.least:.3f}'),
    ('communication waited for', f'{1e3 * found.most:.3f}'),
  ]
  share = found.communication / found.most
  return [
    *aligned(rows, right=(1,)),
    f'bound by {found.bound}; communication is {share:.1%} where it is waited for; '
    f'{tokens / found.most:,.0f} to {tokens / found.least:,.0f} tokens a second',
  ]


def nearest(found: dict, limit: int, target: Target) -> list[str]:
  """The nearest machines that hold the run."""
  lines = []
  for which, words in (('fewer', 'smaller'), ('more', 'larger')):
    if which not in found:
      lines.append(f'no {words} number of devices of the kind holds it (powers of 2, to 4096)')
      continue
    other, mesh, used = found[which]
    name = f'{mesh.size} devices' if target.compiler == 'here' else other.name
    lines.append(
      f'nearest {words} that fits: {name}, mesh of {in_words(mesh)}, {used.total / GIB:.2f} GiB '
      f'a device ({used.total / limit:.0%})'
    )
  return [*lines, 'by formula, which counts no buffers for communication or logits']
