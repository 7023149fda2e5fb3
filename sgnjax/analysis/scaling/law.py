"""A power law through measured points, with the interval of its exponent."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

POINTS, LEVEL = 5, 0.95


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


def fit(lengths: Sequence[float], values: Sequence[float], points: int = POINTS) -> Law | None:
  """Least squares through the logarithms of the `points` longest; None where fewer than two.

  The interval is Student's: it tells how far the points lie from one power, not what other powers
  a longer sequence will bring.
  """
  order = np.argsort(lengths)[-points:]
  x, y = (np.log(np.asarray(a, float)[order]) for a in (lengths, values))
  if len(x) < 2:
    return None
  spread = np.sum((x - x.mean()) ** 2)
  slope = float(np.sum((x - x.mean()) * (y - y.mean())) / spread)
  start = float(y.mean() - slope * x.mean())
  half = math.inf
  if len(x) > 2:
    residual = float(np.sum((y - start - slope * x) ** 2) / (len(x) - 2))
    half = float(stats.t.ppf((1 + LEVEL) / 2, len(x) - 2)) * math.sqrt(residual / spread)
  return Law(slope, slope - half, slope + half, math.exp(start), len(x))
