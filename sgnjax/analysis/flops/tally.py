"""Costs by name, and those of the operations that several mechanisms share."""

from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from sgnjax.errors import UserError
from sgnjax.mixers import Mixer
from sgnjax.ops.dct import matrix_up_to
from sgnjax.ops.kernels import fast_length, turned


class Cost(NamedTuple):
  """FLOPs of the forward pass, and of what the backward pass adds."""

  forward: float
  backward: float

  @property
  def training(self) -> float:
    return self.forward + self.backward

  @property
  def constant(self):
    """The same without a gradient."""
    return Cost(self.forward, 0)

  def __add__(self, other):
    return Cost(self.forward + other.forward, self.backward + other.backward)

  def __mul__(self, times):
    return Cost(self.forward * times, self.backward * times)


NOTHING = Cost(0, 0)

# Of each element of the named operation's output, as XLA lowers it: forward, backward.
ELEMENTWISE = {
  'add': Cost(1, 0),
  'bias': Cost(1, 1),
  'layer norm': Cost(7, 13),
  'gelu': Cost(66, 10),  # erf as polynomials
  'silu': Cost(5, 8),  # and the product that it gates
  'rope': Cost(3, 3.5),
  'softmax': Cost(7.25, 9),  # scale, mask, shift, sum, divide
  'loss': Cost(4, 4),
  'embedding': Cost(1, 1),
  'prefix z-norm': Cost(25, 43.5),
  'sequence z-norm': Cost(11.2, 14.2),
  'floor': Cost(4, 8),
  'prefix mean': Cost(9, 13.5),
  'window mean': Cost(4.6, 9.9),  # of one level
  'mean': Cost(1, 1),
  'blend': Cost(3, 5),
  'select': Cost(1, 2),
  'entropy': Cost(6, 10),  # beside its coefficients
}


class Tally(Counter):
  """Costs by name."""

  def product(self, name: str, rows: float, inner: int, columns: int, *, constant=False) -> None:
    """A matrix product, and the two of its backward pass, or one where a factor is constant."""
    self.put(name, Cost(2, 2 if constant else 4) * (rows * inner * columns))

  def each(self, name: str, kind: str, elements: float) -> None:
    self.put(name, ELEMENTWISE[kind] * elements)

  def put(self, name: str, cost: Cost) -> None:
    self[name] = self.get(name, NOTHING) + cost


def known(mixer: Mixer, option: str, choices: Mapping[Any, Any] | tuple) -> Any:
  """The option's value, or what `choices` holds under it. Raises UserError where it is not there.

  So that a choice which a mixer gets later is not counted as another one.
  """
  value = getattr(mixer, option)
  if value not in choices:
    raise UserError(f"no FLOPs are known of mixer '{mixer.label}' with {option}={value!r}")
  return choices[value] if isinstance(choices, Mapping) else value


def fft(points: int, rows: float, *, inverse: bool = False) -> float:
  """XLA's count: 8 floor(log2 n) an element of the operand, which is real, or complex.

  inverse: of a real FFT, whose operand is half as long.
  """
  elements = points // 2 + 1 if inverse else points
  return 8.0 * (points.bit_length() - 1) * elements * rows


def rfft(points: int, rows: float) -> Cost:
  """Its transpose is the inverse, and scales its operand."""
  return Cost(fft(points, rows), fft(points, rows, inverse=True) + 5 * points * rows)


def irfft(points: int, rows: float) -> Cost:
  return Cost(fft(points, rows, inverse=True), fft(points, rows) + points * rows)


def there_and_back(points: int, rows: float) -> Cost:
  return rfft(points, rows) + irfft(points, rows)


def convolution(
  tally: Tally,
  name: str,
  *,
  lags: int,
  length: int,
  rows: float,
  kernels: float,
  learned: bool = True,
  bank: int = 1,
) -> None:
  """Convolutions by FFT of `rows` sequences, with the FFTs of kernels of so many lags.

  bank: kernels that each sequence meets, with one transform of it for all.
  """
  taps = min(length, lags)
  if turned(length, lags):
    points = fast_length(length)
    to = back = Cost(*(fft(points, 1),) * 2)
    turn, turn_back = Cost(3, 5), Cost(5, 6)
    tally.put(f'{name} turns', (turn * rows + turn_back * (rows * bank)) * length)
    of_kernels = (to + turn * taps) * kernels
  else:
    real = fast_length(length + taps - 1)
    to, back, points = rfft(real, 1), irfft(real, 1), real // 2 + 1
    of_kernels = to * kernels
  tally.put(f'{name} FFTs', (to + back * bank) * rows)
  products = Cost(1, 3 if turned(length, lags) else 5) * points
  if not learned:
    of_kernels, products = of_kernels.constant, Cost(1, 2) * points
  tally.put(f'{name} products', products * (rows * bank))
  tally.put(f'{name} kernels', of_kernels)


def dct(n: int, rows: float) -> Cost:
  """A DCT of n points, as `ops.dct` chooses to compute it."""
  if n <= matrix_up_to():
    return Cost(2, 2) * (n * n * rows)
  return rfft(n, rows) + Cost(3, 3) * (n * rows)


def idct(n: int, rows: float) -> Cost:
  if n <= matrix_up_to():
    return Cost(2, 2) * (n * n * rows)
  return irfft(n, rows) + Cost(3, 9) * (n * rows)
