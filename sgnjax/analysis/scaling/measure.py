"""Time, memory, FLOPs and collectives of a training step against the length, for several mixers.

One row of random tokens. What a program holds and sends is asked of the compiler, and FLOPs of the
formulas, at every length; steps are timed on one device as far as budget and memory go: seconds of
the clock, and of all processors, which other programs of a busy machine change less. Records are
lines of scaling.jsonl, so that what was measured is not measured again.
"""

import functools
import json
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import jax
import numpy as np
from ml_collections import ConfigDict

from sgnjax import config as config_lib
from sgnjax.analysis import flops, layout, targets
from sgnjax.analysis.scaling.law import fit
from sgnjax.errors import UserError, nearest
from sgnjax.models import build
from sgnjax.models.variants import VARIANTS, variant
from sgnjax.parallel.feed import place
from sgnjax.parallel.mesh import make_mesh
from sgnjax.train import state as state_lib
from sgnjax.train.optim import make_optimiser

FILE = 'scaling.jsonl'
STEPS, ENOUGH = 7, 3.0  # timed steps at most, and seconds after which fewer will do
GIB = 2**30
FREE = ('scaling.',)  # what does not change a measurement


def check(config: ConfigDict) -> None:
  """Raises UserError for mixers, lengths and sizes that cannot be measured."""
  s = config.scaling
  for name in s.mixers:
    if name not in VARIANTS:
      raise UserError(f"scaling.mixers: '{name}' is no variant" + nearest(name, VARIANTS))
  if not s.lengths or any(type(n) is not int or n < 2 for n in s.lengths):
    raise UserError(f'scaling.lengths={s.lengths}: expected whole numbers of tokens')
  if s.devices < 2:
    raise UserError(f'scaling.devices={s.devices}: expected at least 2, which have to talk')
  for key in ('seconds', 'memory_gib'):
    if s[key] <= 0:
      raise UserError(f'scaling.{key}={s[key]}: expected more than 0')
  if config.data.task != 'lm' or not config.model.vocab:
    raise UserError('scaling is of language models, with model.vocab set: no text is read')


def of_length(config: ConfigDict, mixer: str, length: int, devices: int) -> ConfigDict:
  """The config with that mixer and context, one row, its length over so many devices."""
  twin = variant(config, mixer).copy_and_resolve_references().unlock()
  twin.model.context = length
  twin.train.batch, twin.train.accumulation = 1, 1
  for axis in ('data', 'fsdp', 'tensor', 'sequence'):
    twin.mesh[axis] = devices if axis == 'sequence' else 1
  return twin.lock()


def read(workdir: Path, config: ConfigDict) -> list[dict]:
  """The records of this config that lie in the workdir."""
  path = Path(workdir) / FILE
  lines = path.read_text(encoding='utf-8').splitlines() if path.is_file() else []
  found = [json.loads(line) for line in lines if line.endswith('}')]
  model = _model(config)
  return [r for r in found if r['model'] == model]


def _model(config: ConfigDict) -> str:
  """A hash of what is measured, whichever mixers and lengths are asked for."""
  keys = {k: v for k, v in config_lib.flat(config).items() if not k.startswith(FREE)}
  return config_lib.fingerprint(ConfigDict({k.replace('.', '/'): v for k, v in keys.items()}))


def measure(config: ConfigDict, workdir: Path) -> Iterator[dict]:
  """Makes the records that are missing and yields each once it is written."""
  check(config)
  s, target = config.scaling, targets.find(f'cpu-{config.scaling.devices}')
  targets.prepare(target)
  known, model = read(workdir, config), _model(config)
  have = {(r['kind'], r['mixer'], r['length']) for r in known}
  lengths = sorted(s.lengths)
  with (Path(workdir) / FILE).open('a', encoding='utf-8') as file:
    for many in (False, True):
      for length in lengths[:: EVERY if many else 1]:
        for mixer in s.mixers:
          step = _Step(config, mixer, length)
          for kind, make in (SEVERAL if many else ONE).items():
            if (kind, mixer, length) in have:
              continue
            record = {'kind': kind, 'mixer': mixer, 'length': length, 'model': model}
            record['leaky'] = step.leaky
            record |= make(config, step, known)
            file.write(json.dumps(record) + '\n')
            file.flush()
            known.append(record)
            yield record


class _Step:
  """The training step of a mixer at a length on one device, compiled when it is asked for."""

  def __init__(self, config: ConfigDict, mixer: str, length: int):
    self.mixer, self.length = mixer, length
    self.config = of_length(config, mixer, length, 1)

  @functools.cached_property
  def leaky(self) -> bool:
    return not build(self.config).causal

  @functools.cached_property
  def mesh(self):
    return make_mesh(self.config, jax.devices()[:1])

  @functools.cached_property
  def compiled(self) -> jax.stages.Compiled:
    return layout.lower(self.config, self.mesh).compile()


def _program(config: ConfigDict, step: _Step, known: list[dict]) -> dict:
  """FLOPs of a step, and bytes that one device alone would hold."""
  work = flops.flops(step.config, batch=1, length=step.length, training=True)
  start = time.perf_counter()
  peak = layout.Program(0, **layout.buffers(step.compiled)).peak
  seconds = time.perf_counter() - start
  return {'flops': sum(work.values()), 'peak': peak, 'compile_seconds': seconds}


def _several(config: ConfigDict, step: _Step, known: list[dict]) -> dict:
  """Bytes that one of several devices sends, by kind, and holds; or why it cannot be."""
  devices = config.scaling.devices
  try:
    program = layout.program(
      of_length(config, step.mixer, step.length, devices), targets.find(f'cpu-{devices}')
    )
  except UserError as error:
    return {'refused': str(error)}
  sent: dict[str, float] = {}
  for c in program.collectives:
    sent[c.kind] = sent.get(c.kind, 0) + c.times * c.moved
  return {'collectives': sent, 'peak_of_several': program.peak}


def _time(config: ConfigDict, step: _Step, known: list[dict]) -> dict:
  """Median seconds of a step, by the clock and of all processors; or why none was run."""
  s, length = config.scaling, step.length
  own = [r for r in known if r['mixer'] == step.mixer]
  peak = next(r['peak'] for r in own if r['kind'] == 'program' and r['length'] == length)
  if peak > s.memory_gib * GIB:
    return {'skipped': f'{peak / GIB:,.1f} GiB, more than scaling.memory_gib={s.memory_gib:g}'}
  before = [r for r in own if r['kind'] == 'time' and 'seconds' in r and r['length'] < length]
  law = fit([r['length'] for r in before], [r['seconds'] for r in before], 2)
  if law is not None and law(length) > s.seconds:
    return {'skipped': f'{law(length):,.0f} s by the law, more than scaling.seconds={s.seconds:g}'}
  one = step.config
  state = state_lib.create(one, build(one), make_optimiser(one), step.mesh)
  tokens_T = np.random.default_rng(0).integers(0, one.model.vocab, length + 1, np.int32)
  batch = place({'tokens': tokens_T[None, :-1], 'targets': tokens_T[None, 1:]}, step.mesh)
  took: list[tuple[float, float]] = []
  # The first step is not counted: it waits for the state and touches its memory anew.
  while len(took) < 2 or (len(took) <= STEPS and sum(t for t, _ in took[1:]) < ENOUGH):
    start = time.perf_counter(), time.process_time()
    state, metrics = step.compiled(state, batch)
    jax.block_until_ready((state, metrics))
    took.append((time.perf_counter() - start[0], time.process_time() - start[1]))
  seconds, processor = (median(values) for values in zip(*took[1:], strict=True))
  return {'seconds': seconds, 'processor_seconds': processor, 'steps': len(took) - 1}


# What is measured on one device, and over several; the latter at every third length.
ONE = {'program': _program, 'time': _time}
SEVERAL = {'several': _several}
EVERY = 3
