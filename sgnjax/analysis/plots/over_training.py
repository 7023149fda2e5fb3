"""Curves over the steps of one run or of several: a line a group, a band over its runs."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sgnjax.analysis.plots.panels import LINES
from sgnjax.analysis.plots.style import BLACK, entitle, mark, new_figure

HEIGHT, ROW = 3.4, 0.22  # inches of a panel, and of a line of the legend


class Band(NamedTuple):
  """Values over steps; low and high: the band around them (None: no band).

  number: of its colour, dashes and mark, so that pictures of the same runs agree (None: its place).
  """

  label: str
  steps: Sequence[float]
  middle: Sequence[float]
  low: Sequence[float] | None = None
  high: Sequence[float] | None = None
  leaky: bool = False
  number: int | None = None


class Panel(NamedTuple):
  """Bands on one pair of axes. level: a dashed line across, and what it is called."""

  ylabel: str
  bands: Sequence[Band]
  level: tuple[float, str] | None = None
  ylim: tuple[float, float] | None = None


def over_runs(label: str, runs: Sequence[tuple[Sequence[float], Sequence[float]]], leaky: bool):
  """The band of several runs (steps, values): mean, lowest and highest where all have a step."""
  tables = [dict(zip(*run, strict=True)) for run in runs]
  steps = sorted(set.intersection(*map(set, tables))) if tables else []
  values_RS = np.array([[table[s] for s in steps] for table in tables], float)
  if len(runs) == 1:
    return Band(label, steps, values_RS[0], leaky=leaky)
  return Band(
    f'{label} ({len(runs)} seeds)', steps, values_RS.mean(0), values_RS.min(0), values_RS.max(0),
    leaky,
  )  # fmt: skip


def figure(title: str, panels: Sequence[Panel], *, leaky: bool = False) -> Figure:
  """Panels below one another, each with its legend below it. leaky: whether the title says so."""
  count = max(len(p.bands) + (p.level is not None) for p in panels)
  drawn = new_figure(0.6 + len(panels) * (HEIGHT + ROW * -(-count // 2)))
  axes = drawn.subplots(len(panels), 1, squeeze=False)[:, 0]
  for ax, panel in zip(axes, panels, strict=True):
    _draw(ax, panel)
  entitle(drawn, title, leaky)
  return drawn


def _draw(ax: Axes, panel: Panel) -> None:
  for i, band in enumerate(panel.bands):
    number = i if band.number is None else band.number
    colour, dashes, mark_ = LINES[number % len(LINES)]
    every = max(1, len(band.steps) // 8)
    ax.plot(
      band.steps, band.middle, color=colour, linestyle=dashes, linewidth=1.5, marker=mark_,
      markersize=4.5, markevery=every, label=mark(band.label, band.leaky),
    )  # fmt: skip
    if band.low is not None:
      ax.fill_between(band.steps, band.low, band.high, color=colour, alpha=0.2, linewidth=0)
  if panel.level is not None:
    value, said = panel.level
    ax.axhline(value, color=BLACK, linestyle='--', linewidth=1, label=f'{said}: {value:.3f}')
  ax.set(xlabel='optimiser step', ylabel=panel.ylabel)
  if panel.ylim:
    ax.set_ylim(*panel.ylim)
  ax.grid(alpha=0.25)
  if not panel.bands:
    return
  ax.legend(
    loc='upper left', bbox_to_anchor=(0, -0.17), ncols=2, frameon=False, fontsize=9,
    handlelength=2.6, borderaxespad=0,
  )  # fmt: skip
