"""A power law through measured points, with the interval of its exponent."""

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from scipy import stats

LEVEL = 0.95


class Law(NamedTuple):
  """`value = factor * length ** exponent`; low, high: the exponent's interval of `LEVEL`.

  points: how many it was fitted to. With two the line is exact and the interval has no end.
  """

  exponent: float
  low: float
  high: float
  factor: float
  points: int

  def __call__(self, length: float) -> float:
    return self.factor * length**self.exponent

  def __str__(self) -> str:
    if math.isinf(self.low):
      return f'{self.exponent:.2f} (two points)'
    return f'{self.exponent:.2f} ({self.low:.2f} to {self.high:.2f})'


def fit(lengths: Iterable[float], values: Iterable[float], points: int | None = None) -> Law | None:
  """Least squares through logarithms, of the `points` longest (None: of all); None below two.

  The interval is Student's: it tells how far the points lie from one power, not what other powers
  a longer sequence will bring.
  """
  x, y = (np.array(list(given), float) for given in (lengths, values))
  order = np.argsort(x)[-(points or len(x)) :]
  if len(order) < 2:
    return None
  line = stats.linregress(np.log(x[order]), np.log(y[order]))
  free, half = len(order) - 2, math.inf
  if free:
    half = float(stats.t.ppf((1 + LEVEL) / 2, free) * line.stderr)
  slope = float(line.slope)
  return Law(slope, slope - half, slope + half, math.exp(line.intercept), len(order))
