"""FLOPs of SGN: transforms of the sequence, kernels of gates, dense operators, image grids."""

from sgnjax.analysis.flops.tally import (
  NOTHING,
  Cost,
  Tally,
  convolution,
  dct,
  idct,
  irfft,
  known,
  rfft,
  there_and_back,
)
from sgnjax.mixers.sgn import SGN
from sgnjax.ops.dct import matrix_up_to
from sgnjax.ops.haar import causal_haar_levels
from sgnjax.ops.kernels import fast_length

BASES = {'dct': ('dct',), 'fft': ('fft',), 'adaptive': ('dct', 'fft', 'haar')}


def sgn(tally: Tally, m: SGN, batch: int, length: int) -> None:
  tokens, width = batch * length, m.width
  if m.gated:
    tally.product('in projection', tokens, width, 2 * width)
    tally.product('out projection', tokens, width, width)
    tally.each('silu gate', 'silu', tokens * width)
    if m.out_bias:
      tally.each('biases', 'bias', tokens * width)
  bases = known(m, 'basis', BASES)
  learned = known(m, 'gate', {'learned': True, 'random': False, 'lowpass': False})
  learned = learned or len(bases) > 1  # the mixture trains
  if len(bases) > 1:
    points = sum(gate_points(b, n, whole=m.whole) for b in bases for n in m.contexts)
    tally.put('gate mixture', Cost(1, 3) * (points * width))
  if m.grid is not None:
    grid(tally, m, batch, learned)
  elif m.form == 'published':
    for basis in bases:
      published(tally, 'gate', basis, length, batch * width, learned=learned)
    tally.each('gate products', 'add', (len(bases) - 1) * tokens * width)
  elif m.masked:
    masked(tally, m, batch, length, bases, learned)
  else:
    kernels(tally, m, batch, length, bases, learned)


def gate_points(basis: str, n: int, *, whole: bool) -> int:
  """Numbers a channel of a gate of context n."""
  if whole:
    return {'dct': n, 'fft': 2 * (n // 2 + 1), 'haar': n}[basis]
  return {'dct': n + 1, 'fft': 2 * (n + 1), 'haar': causal_haar_levels(n + 1) + 1}[basis]


def published(tally, name, basis, n, rows, *, learned=True, constant=False) -> None:
  """Transform, gate, inverse of `rows` sequences of n tokens; constant: they take no gradient."""
  if basis == 'fft':
    forward, back, gates = rfft(n, rows), irfft(n, rows), Cost(1, 5) * ((n // 2 + 1) * rows)
  else:
    gates = Cost(1, 3) * (n * rows)
    if basis == 'dct' and n > matrix_up_to():
      forward, back, gates = rfft(n, rows), irfft(n, rows), Cost(3.7, 11.3) * (n * rows)
    elif basis == 'dct':
      forward, back = dct(n, rows), idct(n, rows)
    else:
      # The gradients of all levels' parts are added up at full length.
      forward, back = Cost(4, 4) * (n * rows), Cost(4, 3 + (n - 1).bit_length()) * (n * rows)
  if constant:
    forward, gates = forward.constant, gates + Cost(0, -n * rows)
  if not learned:
    gates = gates._replace(backward=gates.forward)
  tally.put(f'{name} transforms', forward + back)
  tally.put(f'{name} products', gates)


def masked(tally, m, batch, length, bases, learned) -> None:
  """The operator, dense, and its product with the sequence."""
  n, rows = m.context, m.context * m.width
  operator = Tally()
  for basis in bases:
    if m.basis == 'dct':
      # The product with the cosines, which take no gradient, and the two parts that it gives.
      operator.product('', 2 * n, n, m.width, constant=True)
      operator.put('', Cost(3, 4) * (n * rows))
    else:
      published(operator, '', basis, n, rows, constant=True)
      operator.put('', Cost(1, 1) * (n * rows))
  for cost in operator.values():
    tally.put('gate operator', cost if learned else cost.constant)
  tally.product('gate products', batch * length, length, m.width, constant=not learned)


def kernels(tally, m, batch, length, bases, learned) -> None:
  """Kernels from gates, one for the past or one for each side, and their convolution."""
  made = NOTHING
  for n in m.contexts:
    for basis in bases:
      if basis == 'haar':
        levels = causal_haar_levels(n + 1)
        made += Cost(2, 2) * (2**levels * (levels + 1) * m.width)
      else:  # a complex gate gives an even and an odd part
        parts = 2 if basis == 'fft' else 1
        made += irfft(2 * n, parts * m.width) + Cost(parts, 2 * parts) * (n * m.width)
    made += Cost(len(bases), 0) * (n * m.width)
  tally.put('gate kernels', made if learned else made.constant)
  sides = 2 if m.form == 'bidirectional' and m.basis != 'dct' else 1
  convolution(
    tally, 'gate', lags=m.context + 1, length=length, rows=batch * m.width,
    kernels=sides * m.width, learned=learned,
  )  # fmt: skip


def grid(tally, m, batch, learned) -> None:
  """2-D transforms of an image, one axis after the other."""
  (rows, columns), width = m.grid, m.width
  if m.form == 'published':
    points, images = rows * columns, batch * width
    both = NOTHING
    for transform in (dct, idct):
      both += transform(rows, columns * images) + transform(columns, rows * images)
    tally.put('gate transforms', both)
    tally.put('gate products', Cost(1, 3 if learned else 1) * (points * images))
    return
  # The kernel from its gate, axis by axis, then a 2-D convolution over the padded image.
  made = irfft(2 * rows, (columns + 1) * width) + irfft(2 * columns, (rows + 1) * width)
  tally.put('gate kernels', made if learned else made.constant)
  high, wide = (fast_length(2 * side - 1) for side in (rows, columns))
  half = wide // 2 + 1
  over_rows = 8.0 * (high.bit_length() - 1) * high * half  # complex, of what the columns' FFTs give
  over_rows = Cost(over_rows, over_rows)
  of_kernel = (rfft(wide, high) + over_rows) * width
  tally.put('gate kernels', of_kernel if learned else of_kernel.constant)
  tally.put('gate FFTs', (there_and_back(wide, high) + over_rows * 2) * (batch * width))
  tally.put('gate products', Cost(1, 5 if learned else 2) * (high * half * batch * width))
