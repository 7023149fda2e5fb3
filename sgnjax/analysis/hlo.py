"""The text of a compiled XLA program: its computations, and how often each of them runs."""

import math
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import jax

# Opcodes that move data between devices.
KINDS = (
  'all-gather',
  'all-reduce',
  'reduce-scatter',
  'all-to-all',
  'ragged-all-to-all',
  'collective-permute',
  'collective-broadcast',
)

# For a CPU's program that will not run: a third of the time, and the same operations.
CHEAP = {'xla_backend_optimization_level': 0, 'xla_llvm_disable_expensive_passes': True}
if jax.__version_info__ < (0, 11):  # can leave out fused kernels
  CHEAP['xla_cpu_use_fusion_emitters'] = False


@dataclass(frozen=True)
class Op:
  """An instruction; `kind` is its opcode, without '-start'. shapes: of the result, leaf by leaf."""

  name: str
  kind: str
  shapes: tuple[str, ...]
  operands: tuple[str, ...]
  rest: str  # what stands between the opcode's parentheses, and after them
  root: bool

  @property
  def op_name(self) -> str:
    found = re.search(r'op_name="((?:[^"\\]|\\.)*)"', self.rest)
    return found[1] if found else ''


class Module(NamedTuple):
  """Computations by name, instructions by name in each."""

  computations: dict[str, dict[str, Op]]
  entry: str


SHAPE = re.compile(r'\b([a-z]+[0-9]*[a-z0-9]*)\[([0-9,<=]*)\]')
HEADER = re.compile(r'(ENTRY )?%?([\w.\-]+) (?:\(.*\) -> .*)?\{$')
NAME = re.compile(r'%([\w.\-]+)')


def parse(text: str) -> Module:
  """Computations and instructions of a module's text. Raises ValueError without an entry."""
  computations, entry, current = {}, None, None
  for line in text.splitlines():
    if not line.startswith(' '):
      header = HEADER.match(line)
      if header:
        current = computations.setdefault(header[2], {})
        entry = header[2] if header[1] else entry
    elif ' = ' in line and current is not None:
      op = _instruction(line.strip())
      current[op.name] = op
  if entry is None:
    raise ValueError('no ENTRY computation: this is not the text of a compiled program')
  return Module(computations, entry)


def _instruction(line: str) -> Op:
  root = line.startswith('ROOT ')
  left, right = line.removeprefix('ROOT ').split(' = ', 1)
  end = _closing(right) if right.startswith('(') else right.index(' ')
  shapes = tuple(f'{kind}[{dims}]' for kind, dims in SHAPE.findall(right[:end]))
  opcode, rest = right[end:].lstrip().split('(', 1)
  close = _closing(f'({rest}')
  operands = tuple(NAME.findall(rest[: close - 1]))
  return Op(left.lstrip('%'), opcode.removesuffix('-start'), shapes, operands, rest, root)


def _closing(text: str) -> int:
  """The place after the parenthesis that closes the first one."""
  depth = 0
  for found in re.finditer(r'[()]', text):
    depth += 1 if found[0] == '(' else -1
    if not depth:
      return found.end()
  raise ValueError(f'parentheses do not close: {text[:80]}')


def size(shape: str) -> int:
  """Bytes of a shape such as 'bf16[8,128]'."""
  kind = shape.partition('[')[0]
  if kind in ('pred', 'token', 'opaque'):
    return elements(shape) if kind == 'pred' else 0
  bits = int(re.search(r'\d+', kind)[0])
  return -(-elements(shape) * bits // 8)


def elements(shape: str) -> int:
  """Numbers in an array of a shape such as 'bf16[8,128]'."""
  dims = SHAPE.fullmatch(shape)[2]
  return math.prod(int(d.removeprefix('<=')) for d in dims.split(',') if d)


def partitioned(lowered: jax.stages.Lowered) -> tuple[str, jax.stages.Compiled]:
  """The program as XLA's partitioner leaves it, before what a backend makes of it; and compiled.

  On CPUs bfloat16 is widened later, also where it is sent, and some pairs of operations are not
  made into the one that an accelerator would run: the partitioner's own text stands for those.
  """
  with tempfile.TemporaryDirectory() as folder:
    options = CHEAP | {'xla_dump_to': folder, 'xla_dump_hlo_pass_re': 'spmd-partitioning'}
    compiled = lowered.compile(compiler_options=options)
    (path,) = Path(folder).glob('*.after_spmd-partitioning.*.txt')
    return path.read_text(), compiled


def runs(module: Module) -> dict[str, tuple[int, bool]]:
  """`{computation: (times, whether all loops around it are known)}` from the entry."""
  found = {}

  def visit(name: str, times: int, known: bool) -> None:
    before, also = found.get(name, (0, True))
    found[name] = (before + times, known and also)
    for op in module.computations[name].values():
      for called, turns in _calls(op, module.computations[name], module):
        visit(called, times * (turns or 1), known and turns is not None)

  visit(module.entry, 1, True)
  return {name: found[name] for name in module.computations if name in found}


CALLED = re.compile(
  r'\b(?:calls|to_apply|true_computation|false_computation|called_computation)=%([\w.\-]+)'
)


def _calls(op: Op, computation: dict[str, Op], module: Module) -> Iterator[tuple[str, int | None]]:
  """Computations that an instruction runs, and how often (None: not known)."""
  if op.kind in KINDS or op.kind.endswith(('-done', '-update')):
    return  # the first have their reducers, the others end what was begun
  if op.kind == 'while':
    turns = trips(op, computation, module)
    yield re.search(r'\bbody=%([\w.\-]+)', op.rest)[1], turns
    yield re.search(r'\bcondition=%([\w.\-]+)', op.rest)[1], turns
    return
  for name in CALLED.findall(op.rest):
    yield name, 1
  branches = re.search(r'\b(?:branch_computations|called_computations)=\{([^}]*)\}', op.rest)
  for name in NAME.findall(branches[1]) if branches else ():
    yield name, 1


def trips(loop: Op, computation: dict[str, Op], module: Module) -> int | None:
  """Turns of a while loop: XLA's note, or else what its condition compares; None: not known."""
  note = re.search(r'"known_trip_count":\{"n":"(\d+)"\}', loop.rest)
  if note:
    return int(note[1])
  condition, body = (
    module.computations[re.search(rf'\b{part}=%([\w.\-]+)', loop.rest)[1]]
    for part in ('condition', 'body')
  )
  place, limit, inclusive = _bound(condition, module)
  if place is None:
    return None
  start = _constant(_element(computation, loop.operands[0], place), computation)
  step = _step(body, place, module)
  if start is None or not step:
    return None
  return max(0, -(-(limit + inclusive - start) // step))


def _root(computation: dict[str, Op]) -> Op:
  return next(op for op in computation.values() if op.root)


def _bound(condition: dict[str, Op], module: Module):
  """Which element of the loop's state is compared, with what, and whether the last is included."""
  inner, seen = _root(condition), condition
  outer = inner
  if inner.kind == 'fusion':
    seen = module.computations[CALLED.search(inner.rest)[1]]
    inner = _root(seen)
  direction = re.search(r'direction=(L[TE])', inner.rest)
  if inner.kind != 'compare' or not direction:
    return None, 0, 0
  left, right = (_outside(seen[o], outer, condition) for o in inner.operands)
  limit = _constant(right, condition | seen)
  place = _place(left, condition | seen)
  return (place, limit, int(direction[1] == 'LE')) if limit is not None else (None, 0, 0)


def _outside(op: Op, fusion: Op, around: dict[str, Op]) -> Op:
  """What a parameter of a fused computation is outside of it."""
  if op.kind == 'parameter' and fusion.kind == 'fusion':
    return around[fusion.operands[int(re.match(r'\d+', op.rest)[0])]]
  return op


def _source(op: Op, computation: dict[str, Op]) -> Op:
  """What an instruction is a copy of."""
  while op.kind in ('copy', 'bitcast', 'copy-done') and op.operands:
    op = computation[op.operands[0]]
  return op


def _place(op: Op, computation: dict[str, Op]) -> int | None:
  op = _source(op, computation)
  found = re.search(r'\bindex=(\d+)', op.rest) if op.kind == 'get-tuple-element' else None
  return int(found[1]) if found else None


def _element(computation: dict[str, Op], name: str, place: int) -> Op:
  whole = computation[name]
  return computation[whole.operands[place]] if whole.kind == 'tuple' else whole


def _constant(op: Op, computation: dict[str, Op]) -> int | None:
  op = _source(op, computation)
  found = re.match(r'(-?\d+)\)', op.rest) if op.kind == 'constant' else None
  return int(found[1]) if found else None


def _step(body: dict[str, Op], place: int, module: Module) -> int | None:
  """What a turn adds to the counter."""
  outer = _element(body, _root(body).name, place)
  inner, seen = outer, body
  if outer.kind == 'fusion':
    seen = module.computations[CALLED.search(outer.rest)[1]]
    inner = _root(seen)
  if inner.kind != 'add':
    return None
  parts = [_outside(seen[o], outer, body) for o in inner.operands]
  steps = [_constant(part, body | seen) for part in parts]
  if place not in [_place(part, body | seen) for part in parts]:
    return None
  return next((s for s in steps if s is not None), None)
