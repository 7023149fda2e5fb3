"""How all parts measure: functions in turn, compiled programs, and the machine's own ceilings."""

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp

from sgnjax.analysis import layout

WARMUP = 2
LEAST = 3  # rounds that a median is taken of, however long they take
# A slow function: one that needs more than this share of the seconds given is not repeated.
SLOW = 0.25


@dataclass(frozen=True)
class Rounds:
  """Seconds of each function, round by round; the same round of two was taken back to back."""

  seconds: Mapping[str, Sequence[float]]

  def __getitem__(self, name: str) -> float:
    """Median seconds."""
    return median(self.seconds[name])

  @property
  def count(self) -> int:
    return len(next(iter(self.seconds.values())))

  def ratio(self, one: str, other: str) -> float:
    """Median over rounds of what `one` took over what `other` took."""
    pairs = zip(self.seconds[one], self.seconds[other], strict=True)
    return median(a / b for a, b in pairs)


def interleaved(
  timed: Mapping[str, Callable], repeats: int, limit: float = math.inf, warmup: int = WARMUP
) -> Rounds:
  """Calls each function in turn, `repeats` times after a warm-up; each result is waited for.

  limit: seconds after which no round is begun, once there are `LEAST` of them. Where one round took
  more than `SLOW` of it, the warm-up is a single one, and so are the rounds where it took all.
  """
  found: dict[str, list[float]] = {name: [] for name in timed}
  begun = now = time.perf_counter()
  longest, done = 0.0, -warmup
  while done < repeats:
    if done < 0 and longest > SLOW * limit:
      done = 0
    least = 1 if longest > limit else LEAST
    if done >= least and now - begun > limit:
      break
    since = now
    for name, function in timed.items():
      start = time.perf_counter()
      jax.block_until_ready(function())
      now = time.perf_counter()
      if done >= 0:
        found[name].append(now - start)
    longest = now - since
    done += 1
  return Rounds(found)


@dataclass(frozen=True)
class Program:
  """A compiled function with its arguments: call it to run it.

  flops, moved: FLOPs and bytes as XLA counts them; the body of a loop, as of a scan over layers,
  counts once. peak: bytes of all its buffers, arguments and results among them; temporaries: of
  what is neither.
  """

  run: Callable
  arguments: tuple
  flops: float
  moved: float
  peak: int
  temporaries: int
  compile_seconds: float

  def __call__(self):
    return self.run(*self.arguments)


def program(function: Callable, *arguments: Any) -> Program:
  """Compiles a function, jitted already or not, for these arguments."""
  jitted = function if hasattr(function, 'lower') else jax.jit(function)
  start = time.perf_counter()
  compiled = jitted.lower(*arguments).compile()
  seconds = time.perf_counter() - start
  cost, held = counted(compiled), buffers(compiled)
  return Program(compiled, arguments, *cost, held.peak, held.temporaries, seconds)


def counted(compiled: jax.stages.Compiled) -> tuple[float, float]:
  """FLOPs and bytes that XLA counts in a compiled program."""
  cost = compiled.cost_analysis() or {}
  return cost.get('flops', math.nan), cost.get('bytes accessed', math.nan)


def buffers(compiled: jax.stages.Compiled) -> layout.Program:
  """What a compiled program holds."""
  return layout.Program(0.0, **layout.buffers(compiled))


def gradient(function: Callable) -> Callable:
  """Half the sum of squares of what `function` gives, and its gradient by every argument.

  The cotangent is then the result itself: a constant one would be folded by the compiler.
  """

  def energy(*arguments):
    return jnp.sum(jnp.square(function(*arguments).astype(jnp.float32))) / 2

  def both(*arguments):
    return jax.value_and_grad(energy, argnums=tuple(range(len(arguments))))(*arguments)

  return both


def matrix_product(dtype: str, size: int | None = None) -> Callable:
  """A large square matrix product at JAX's default precision."""
  size = size or matrix_size()
  a, b = jax.random.normal(jax.random.key(0), (2, size, size)).astype(jnp.dtype(dtype))
  product = jax.jit(jnp.matmul)
  return lambda: product(a, b)


def matrix_size() -> int:
  return 2048 if jax.default_backend() == 'cpu' else 8192


def copy(size: int | None = None) -> Callable:
  """Reads and writes `size` float32 numbers once each (their sign is turned: no copy is free)."""
  x = jnp.ones((size or copy_size(),), jnp.float32)
  turned = jax.jit(jnp.negative)
  return lambda: turned(x)


def copy_size() -> int:
  return 2**26 if jax.default_backend() == 'cpu' else 2**29


def too_large(peak: int) -> str | None:
  """Why a program of so many bytes is not run here; None where it fits."""
  free = room()
  if peak <= 0.8 * free:
    return None
  return f'needs {peak / 2**30:.1f} GiB of {free / 2**30:.1f} that are free'


def room() -> int:
  """Bytes that a program may take here: of the device's memory, or of the machine's."""
  stats = jax.local_devices()[0].memory_stats() or {}
  if 'bytes_limit' in stats:
    return stats['bytes_limit'] - stats['bytes_in_use']
  try:
    lines = Path('/proc/meminfo').read_text().splitlines()
    found = {name: int(rest.split()[0]) for name, rest in (line.split(':') for line in lines)}
    return 1024 * found['MemAvailable']
  except (OSError, KeyError):
    return os.sysconf('SC_AVPHYS_PAGES') * os.sysconf('SC_PAGE_SIZE')
