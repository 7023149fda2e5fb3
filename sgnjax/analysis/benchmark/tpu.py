"""For TPUs, from programs compiled for a v5e slice ahead of time: counted and divided, not run."""

import importlib.util
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from ml_collections import ConfigDict

from sgnjax import config as config_lib
from sgnjax.analysis import layout, roofline, targets
from sgnjax.analysis.benchmark import timing
from sgnjax.analysis.benchmark.page import Row
from sgnjax.analysis.benchmark.settings import Settings
from sgnjax.analysis.collectives import collectives
from sgnjax.analysis.targets import Target
from sgnjax.models import resolve_stack
from sgnjax.ops.backend import assumed
from sgnjax.ops.dct import MATRIX_UP_TO, dct
from sgnjax.parallel.mesh import make_mesh

NOT_HERE = "not run: libtpu is not installed (pip install 'sgnjax[tpu-plan]')"
COUNTED = (
  'FLOPs and bytes of one chip as libtpu counts its program, each turn of the scan over layers '
  'counted (from two programs, of one and of two layers a turn); the least time: the longest of '
  'arithmetic, memory and links at the rates of the data sheet, all at once. Nothing was run.'
)
# libtpu counts a float32 product at the highest precision once; it is six of bfloat16.
PASSES = {'fft': 1, 'matrix': 6}


class Counted(NamedTuple):
  """A program of one chip. step: seconds by the data sheet; refused: what does not fit."""

  flops: float
  moved: float
  temporaries: int
  peak: int
  step: roofline.Step | None
  seconds: float
  refused: str | None = None


def counted(config: ConfigDict, target: Target) -> Counted:
  """Compiles the config's step for a target; its vocabulary is set."""
  start = time.perf_counter()
  repeats = max(n for _, n in resolve_stack(config))
  costs, first, text = [], None, ''
  mesh = make_mesh(config, targets.devices(target))
  for turn in (1, 2) if repeats > 1 else (1,):
    twin = config.copy_and_resolve_references().unlock()
    twin.model.scan_unroll = turn
    try:
      with assumed(target.backend):
        compiled = layout.lower(twin, mesh).compile()
    except jax.errors.JaxRuntimeError as error:
      if 'RESOURCE_EXHAUSTED' not in str(error):
        raise
      said = ' '.join(str(error).split())[:160]
      return Counted(0, 0, 0, 0, None, time.perf_counter() - start, said)
    costs.append(np.array(timing.counted(compiled)))
    if first is None:
      first, text = timing.buffers(compiled), compiled.as_text()
  flops, moved = costs[0] + (repeats - 1) * (costs[-1] - costs[0])
  step = roofline.step(
    target,
    mesh,
    collectives(text, mesh),
    flops=flops * target.devices,
    memory=moved,
    narrow=config.model.dtype == 'bfloat16',
  )
  seconds = time.perf_counter() - start
  return Counted(flops, moved, first.temporaries, first.peak, step, seconds)


def _row(case: Row, config: ConfigDict, target: Target) -> Row:
  found = counted(config, target)
  tokens = config.train.batch * config.model.context
  if found.refused:
    return case | {'tokens a step': tokens, 'note': f'does not fit: {found.refused}'}
  return case | {
    'tokens a step': tokens,
    'TFLOP a chip': found.flops / 1e12,
    'GB moved': found.moved / 1e9,
    'temporaries GiB': found.temporaries / 2**30,
    'peak GiB': found.peak / 2**30,
    'arithmetic, ms': 1e3 * found.step.compute,
    'memory, ms': 1e3 * found.step.memory,
    'links, ms': 1e3 * found.step.communication,
    'least, ms': 1e3 * found.step.least,
    'bound by': found.step.bound,
    'tokens/s a chip at most': tokens / found.step.least / target.devices,
    'compiled in, s': found.seconds,
  }


def chiar(
  settings: Settings,
  *,
  target: str = 'v5e-8',
  context: int = 1024,
  kinds: Sequence[str] = ('dense', 'capacity'),
  overrides: Sequence[str] = (),
) -> Iterator[Row | str]:
  """chiar_400m on eight v5e chips

  Training steps in bfloat16, parameters over the chips (fsdp), 32 rows of 1,024 tokens, each layer
  computed again in the backward pass: every token at every operator, and routed in slots."""
  del settings
  if importlib.util.find_spec('libtpu') is None:
    yield NOT_HERE
    return
  for kind in kinds:
    changes = [f'model.context={context}', 'train.batch=32', 'model.remat=all']
    changes += [f'model.chiar.dispatch={kind}', *overrides]
    config = config_lib.load(config_lib.CONFIGS / 'chiar_400m.py', changes)
    yield _row({'dispatch': kind}, config, targets.find(target))
  yield COUNTED


def sgn(
  settings: Settings,
  *,
  lengths: Sequence[int] = tuple(2**k for k in range(10, 19, 2)),
  tokens: int = 2**16,
  overrides: Sequence[str] = (),
) -> Iterator[Row | str]:
  """SGN over the length on one v5e chip

  Gated causal SGN, 12 layers of width 512 that keep 1,024 coefficients, bytes, bfloat16, each layer
  computed again in the backward pass; 65,536 tokens a step, or one row."""
  del settings
  if importlib.util.find_spec('libtpu') is None:
    yield NOT_HERE
    return
  for length in lengths:
    changes = [
      *('model.layers=12', 'model.width=512', 'model.heads=8', 'model.vocab=256'),
      *(f'model.sgn.retained={min(1024, length)}', 'model.dtype=bfloat16'),
      *('model.remat=all', 'mesh.data=1'),
      *(f'model.context={length}', f'train.batch={max(1, tokens // length)}', *overrides),
    ]
    config = config_lib.load(config_lib.CONFIGS / 'quickstart.py', changes)
    yield _row({'length': length}, config, targets.find('v5e-1'))
  yield COUNTED


def transforms(
  settings: Settings,
  *,
  points: Sequence[int] = (64, 128, 256, 512, 768, 1024, 2048, 4096),
  numbers: int = 2**24,
) -> Iterator[Row | str]:
  """DCT by FFT and by matrix on one v5e chip

  Along the last axis of 2^24 numbers in float32, widths and lengths of the configs, forward: least
  time by the data sheet, where a product is six of bfloat16. What an FFT costs beyond that is not
  known: it is taken at its best, so that a tie is the matrix's."""
  del settings
  if importlib.util.find_spec('libtpu') is None:
    yield NOT_HERE
    return
  target = targets.find('v5e-1')
  mesh = Mesh(np.asarray(targets.devices(target)[:1]), ('all',))
  wins = []
  for n in points:
    shape = (max(1, numbers // n), n)
    where = NamedSharding(mesh, PartitionSpec())
    x_RN = jax.ShapeDtypeStruct(shape, jnp.float32, sharding=where)
    row: Row = {'points': n, 'rows': shape[0]}
    for path, passes in PASSES.items():
      found = _transform(lambda x, path=path: dct(x, path=path), x_RN, target, passes)
      row |= {f'{path}, GFLOP': found[0] / 1e9, f'{path}, GB': found[1] / 1e9}
      row |= {f'{path}, temporaries MiB': found[2] / 2**20, f'{path}, least, ms': 1e3 * found[3]}
    row['matrix / FFT'] = row['matrix, least, ms'] / row['fft, least, ms']
    wins += [n] * (row['matrix / FFT'] <= 1)
    yield row
  said = f'at {", ".join(map(str, wins))} points' if wins else 'nowhere'
  yield f'By these the matrix wins {said}; ops/dct.py takes it up to {MATRIX_UP_TO["tpu"]}.'


def _transform(
  function: Callable, x, target: Target, passes: int
) -> tuple[float, float, int, float]:
  """FLOPs, bytes, temporaries, and seconds at least, of a program for one chip."""
  with assumed('tpu'):
    compiled = jax.jit(function).lower(x).compile()
  flops, moved = timing.counted(compiled)
  seconds = max(passes * flops / target.chip.flops, moved / target.chip.bandwidth)
  return flops, moved, timing.buffers(compiled).temporaries, seconds


SECTIONS = {'chiar': chiar, 'sgn': sgn, 'dct': transforms}
