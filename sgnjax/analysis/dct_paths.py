"""Operations of one choice or another on a chip that is not here: DCT by FFT and by matrix.

  python -m sgnjax.analysis.dct_paths docs/results/dct_paths.md [v5e-1]

Programs are compiled ahead of time by the chip's own compiler and not run. A roofline is the time
that the arithmetic or the memory needs at least, by the data sheet; what a compiler's FFT costs
beyond that it does not know.
"""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp

from sgnjax.analysis import targets
from sgnjax.analysis.targets import Chip, Target
from sgnjax.ops.backend import assumed
from sgnjax.ops.dct import MATRIX_UP_TO, PATHS, dct, dct_gate
from sgnjax.ops.kernels import causal_conv

# Products of float32 at the highest precision are six of bfloat16, of which the peak rate is.
PASSES = 6
WIDTHS = (64, 128, 256, 512, 768, 1024, 2048, 4096)
LENGTHS = (256, 1024, 4096, 16_384, 65_536)
NUMBERS = 2**22
CHANNELS = 256


class Compiled(NamedTuple):
  """Of one program: the compiler's FLOPs and bytes, bytes of its temporaries, seconds at least."""

  flops: float
  bytes: float
  temporaries: int
  seconds: float


def compiled(chip: Chip, device, op: Callable, *shapes, products: float = 0) -> Compiled:
  """`op` of float32 arrays, compiled for the device. products: FLOPs of matrix products in it."""
  place = jax.sharding.SingleDeviceSharding(device)
  arrays = [jax.ShapeDtypeStruct(shape, jnp.float32, sharding=place) for shape in shapes]
  with assumed(chip.kind):
    program = jax.jit(op).lower(*arrays).compile()
  cost = program.cost_analysis()
  arithmetic = max(cost['flops'], PASSES * products) / chip.flops
  seconds = max(arithmetic, cost['bytes accessed'] / chip.bandwidth)
  temporaries = program.memory_analysis().temp_size_in_bytes
  return Compiled(cost['flops'], cost['bytes accessed'], temporaries, seconds)


def lines(target: Target, *, widths=WIDTHS, lengths=LENGTHS, numbers=NUMBERS) -> Iterator[str]:
  """The page, as it is computed."""
  chip, device = target.chip, targets.devices(target)[0]
  yield '# Transforms on a chip that is not here'
  yield ''
  yield (
    f'One chip of {target.family}, float32, programs compiled ahead of time and not run: the '
    "compiler's FLOPs and bytes, temporaries, and the least time by the data sheet (peak "
    f'{chip.flops / 1e12:.0f} TFLOP/s, {chip.bandwidth / 1e9:.0f} GB/s; a product at the highest '
    f'precision as {PASSES} of bfloat16). An FFT has costs that this does not know, so it is held '
    'at its best against the matrix.'
  )
  # Rows of 2^22 numbers in all, transformed along the width, then gated along the length.
  cases = [
    ('DCT of a width', n, lambda x, path: dct(x, path=path), [(numbers // n, n)], 2 * n)
    for n in widths
  ]
  for n in lengths:
    shapes = [(max(1, numbers // n // CHANNELS), n, CHANNELS), (n, CHANNELS)]
    cases.append(
      ('DCT, gate, inverse of a length', n, lambda x, g, path: dct_gate(x, g, path=path), shapes,
       4 * n)
    )  # fmt: skip
  title = None
  for name, n, op, shapes, products in cases:
    if name != title:
      title = name
      yield from ('', f'## {name}', '', header('points', 'shape', 'path'))
      yield '|---' * 7 + '|'
    size = shapes[0][0] * n * (CHANNELS if len(shapes[0]) == 3 else 1)
    for path in PATHS:
      if path == 'matrix' and n > max(widths):
        continue  # its matrix alone would be larger than the array
      found = compiled(
        chip, device, lambda *arrays, op=op, path=path: op(*arrays, path), *shapes,
        products=products * size if path == 'matrix' else 0,
      )  # fmt: skip
      yield row(f'{n:,}', shapes[0], path, found)
  yield ''
  yield f'ops/dct.py takes the matrix up to {MATRIX_UP_TO[chip.kind]:,} points on {chip.kind}.'
  yield from ('', '## Causal convolution', '', header('points', 'shape', 'operation'))
  yield '|---' * 7 + '|'
  for n in lengths:
    shapes = [(max(1, numbers // n // CHANNELS), n, CHANNELS), (n, CHANNELS)]
    for what, op in (('ours', causal_conv), ('zero-padded real FFTs', _padded)):
      yield row(f'{n:,}', shapes[0], what, compiled(chip, device, op, *shapes))


def header(*names: str) -> str:
  return f'| {" | ".join(names)} | GFLOP | MB | temporaries, MB | least us |'


def row(points: str, shape, what: str, found: Compiled) -> str:
  numbers = (found.flops / 1e9, found.bytes / 1e6, found.temporaries / 1e6, found.seconds * 1e6)
  return f'| {points} | {shape} | {what} | ' + ' | '.join(f'{a:,.1f}' for a in numbers) + ' |'


def _padded(x_BLD, h_TD):
  n = 2 * x_BLD.shape[1]
  spectrum_BFD = jnp.fft.rfft(x_BLD, n, axis=1) * jnp.fft.rfft(h_TD, n, axis=0)[None]
  return jnp.fft.irfft(spectrum_BFD, n, axis=1)[:, : x_BLD.shape[1]]


def main(path: str, name: str = 'v5e-1') -> None:
  target = targets.find(name)
  targets.prepare(target)
  page = []
  for line in lines(target):
    print(line, flush=True)
    page.append(line)
  Path(path).write_text('\n'.join(page) + '\n')


if __name__ == '__main__':
  main(*sys.argv[1:])
