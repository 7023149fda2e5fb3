"""Sheets of panels: curves, taps and matrices over a frequency or a lag. Arrays in, Figure out."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sgnjax.analysis.plots.style import (
  BLACK,
  BLUE,
  GREEN,
  MAP,
  ORANGE,
  PURPLE,
  RED,
  SKY,
  entitle,
  new_figure,
)

FREQUENCY, LAG = 'frequency (cycles per token)', 'lag (tokens into the past)'
FINE = np.arange(2049) / 4096  # cycles per token
# Beside its colour, each curve has its own dashes and each row of taps its own mark.
LINES = tuple(
  zip(
    (BLUE, ORANGE, GREEN, PURPLE, SKY, RED, BLACK, BLUE),
    ('-', '--', '-.', ':', '-', '--', '-.', ':'),
    ('o', 's', '^', 'D', 'v', 'x', '+', '.'),
    strict=True,
  )
)


class Curve(NamedTuple):
  """y over x, with its name in the legend; taps: one mark for each value and no line between.

  width: of the line, points; wider ones below narrower ones where curves coincide.
  """

  x: np.ndarray
  y: np.ndarray
  label: str = ''
  taps: bool = False
  width: float = 1.4


class Panel(NamedTuple):
  """Curves on one pair of axes; the legend stands beside them, under the title `key`.

  ticks: places and what is written there. scale: of the x axis, linear, log, or root, which spreads
  low frequencies and has a zero.
  """

  title: str
  xlabel: str
  ylabel: str
  curves: Sequence[Curve]
  key: str = ''
  xlim: tuple[float, float] | None = None
  ylim: tuple[float, float] | None = None
  scale: str = 'linear'
  ticks: tuple[Sequence[float], Sequence[str]] | None = None


class Matrix(NamedTuple):
  """A matrix as an image, zero in the middle of the colours, row 0 at the top."""

  title: str
  xlabel: str
  ylabel: str
  values: np.ndarray


def sheet(
  title: str, rows: Sequence[Sequence[Panel | Matrix]], *, height: float = 1.7, bar: str = ''
) -> Figure:
  """Rows of panels, rows of one length. height: of a row, inches. bar: what the colours mean."""
  figure = new_figure(0.5 + height * len(rows))
  axes = figure.subplots(len(rows), len(rows[0]), squeeze=False)
  matrices = [p.values for row in rows for p in row if isinstance(p, Matrix)]
  top = max((float(np.abs(m).max()) for m in matrices), default=1.0)
  for axes_row, row in zip(axes, rows, strict=True):
    for ax, panel in zip(axes_row, row, strict=True):
      ax.set_title(panel.title, fontsize=10)
      ax.set_xlabel(panel.xlabel, fontsize=9)
      ax.set_ylabel(panel.ylabel, fontsize=9)
      ax.tick_params(labelsize=8)
      if isinstance(panel, Matrix):
        image = ax.imshow(panel.values, cmap=MAP, vmin=-top, vmax=top, interpolation='nearest')
      else:
        _curves(ax, panel)
  if matrices:
    figure.colorbar(image, ax=axes, label=bar, shrink=0.6, aspect=30)
  entitle(figure, title, False)
  return figure


def _curves(ax: Axes, panel: Panel) -> None:
  ax.axhline(0, color=BLACK, linewidth=0.5)
  for (x, y, label, taps, width), (colour, dashes, mark) in zip(panel.curves, LINES, strict=False):
    style = {'color': colour, 'label': label or None}
    if taps:
      ax.vlines(x, 0, y, color=colour, linewidth=0.7)
      ax.plot(
        x, y, linestyle='none', marker=mark, markersize=4, fillstyle='none', clip_on=False, **style
      )
    else:
      ax.plot(x, y, linestyle=dashes, linewidth=width, **style)
  ax.grid(alpha=0.25)
  if panel.scale == 'root':
    ax.set_xscale('function', functions=(lambda x: np.sqrt(np.maximum(x, 0)), np.square))
    ax.set_xlim(0, 0.5)
  else:
    ax.set_xscale(panel.scale)
  if panel.ticks:
    ax.set_xticks(*panel.ticks)
    ax.minorticks_off()
  limits = {'xlim': panel.xlim, 'ylim': panel.ylim}
  ax.set(**{name: limit for name, limit in limits.items() if limit})
  if any(curve.label for curve in panel.curves):
    ax.legend(
      title=panel.key or None, loc='upper left', bbox_to_anchor=(1.01, 1.05), frameon=False,
      fontsize=8, title_fontsize=8, alignment='left', handlelength=2.4, borderaxespad=0.2,
      ncols=2 if len(panel.curves) > 6 else 1, columnspacing=1.0,
    )  # fmt: skip
