"""Pictures of hidden states along the sequence: power spectra, scalograms, learned periods."""

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure

from sgnjax.analysis.plots.runs import _of, _some
from sgnjax.analysis.plots.style import BLUE, DASHES, MAP, drawable, entitle, new_figure, plain_log


def power_spectra(power_F_by_name: dict[str, np.ndarray], *, leaky: bool = False) -> Figure:
  """Share of the power by frequency, one line a layer, log-log.

  Each array is (F,), frequencies k / 2F cycles per token, k from 1; darker is earlier.
  """
  figure = new_figure(4.2)
  ax = figure.subplots()
  last = max(1, len(power_F_by_name) - 1)
  for i, (name, power_F) in enumerate(power_F_by_name.items()):
    frequency_F = np.arange(1, len(power_F) + 1) / (2 * len(power_F))
    ax.plot(
      frequency_F, power_F, color=colormaps[MAP](0.88 * i / last), linestyle=DASHES[i % 4],
      linewidth=1.5, label=name,
    )  # fmt: skip
  ax.set_xscale('log', base=2)
  ax.set_yscale('log')
  plain_log(ax.yaxis)
  ticks = [2.0**-k for k in range(1, 12) if 2.0**-k >= 1 / (2 * len(power_F))]
  ax.set_xticks(ticks, [f'1/{1 / t:.0f}' for t in ticks])
  ax.minorticks_off()
  ax.set(xlabel='frequency (cycles per token)', ylabel='share of the power')
  ax.grid(alpha=0.25)
  ax.legend(loc='upper left', bbox_to_anchor=(1.01, 1.0), frameon=False, fontsize=9)
  entitle(figure, 'How fast hidden states change along the text', leaky)
  return figure


def scalograms(
  power_PL_by_layer: dict[int, np.ndarray],
  period_P: np.ndarray,
  pieces: list[str],
  *,
  leaky: bool = False,
) -> Figure:
  """Power of hidden states by period and place, one image a layer, each over its own largest.

  pieces: the text of each token, written along the axis where there is room (up to 64 of them).
  """
  shown = _some(power_PL_by_layer)
  figure = new_figure(0.9 + 1.9 * len(shown))
  axes = np.atleast_1d(figure.subplots(len(shown), 1, sharex=True))
  for ax, (layer, power_PL) in zip(axes, shown.items(), strict=True):
    image = ax.imshow(
      power_PL / max(float(power_PL.max()), 1e-30), aspect='auto', origin='lower', cmap=MAP, vmin=0,
      vmax=1, interpolation='nearest',
    )  # fmt: skip
    at = np.linspace(0, len(period_P) - 1, 5).round().astype(int)
    ax.set_yticks(at, [f'{period_P[i]:.0f}' for i in at])
    ax.set_title(f'layer {layer + 1}', fontsize=10)
  if len(pieces) <= 64:
    told = [drawable(piece)[:12] for piece in pieces]
    turned = 90 if max(map(len, told), default=0) > 2 else 0  # words would overlap
    axes[-1].set_xticks(range(len(told)), told, fontsize=7, rotation=turned)
  figure.supylabel('period (tokens)')
  figure.supxlabel('text')
  figure.colorbar(image, ax=axes, label='power over its largest', shrink=0.6, aspect=30)
  entitle(figure, f'Scalograms of hidden states{_of(shown, power_PL_by_layer)}', leaky)
  return figure


def periods(period_H_by_layer: dict[int, np.ndarray], *, leaky: bool = False) -> Figure:
  """Learned period of every head and filter, tokens: a column a layer, a mark each."""
  figure = new_figure(3.2)
  ax = figure.subplots()
  for i, (layer, period) in enumerate(period_H_by_layer.items()):
    flat = np.ravel(period)
    spread = np.linspace(-0.25, 0.25, len(flat)) if len(flat) > 1 else np.zeros(1)
    ax.plot(layer + 1 + spread, flat, linestyle='none', marker='osD^'[i % 4], color=BLUE,
            markersize=5, fillstyle='none')  # fmt: skip
  ax.set_yscale('log', base=2)
  plain_log(ax.yaxis)
  ax.set_xticks([layer + 1 for layer in period_H_by_layer])
  ax.set(xlabel='layer (heads side by side)', ylabel='period of the filter (tokens)')
  ax.grid(alpha=0.25)
  entitle(figure, 'Where the filters have moved', leaky)
  return figure
