"""The picture of a learning rate range test."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from sgnjax.analysis.plots.style import BLACK, BLUE, ORANGE, SKY, entitle, mark, new_figure


def lr_range(
  rates: Sequence[float],
  losses: Sequence[float],
  smooth: Sequence[float],
  suggestion: float | None,
  configured: float,
  *,
  leaky: bool = False,
) -> Figure:
  """Loss of each step and its average against the rate; the suggested and the configured one."""
  figure = new_figure(3.8)
  axes = figure.subplots()
  axes.plot(rates, losses, color=SKY, linewidth=1, label=mark('loss of the step', leaky))
  axes.plot(rates, smooth, color=BLUE, linewidth=2, label=mark('smoothed', leaky))
  if suggestion is not None:
    axes.axvline(suggestion, color=ORANGE, linewidth=2, label=f'falls fastest: {suggestion:.1e}')
  if rates[0] <= configured <= rates[-1]:
    axes.axvline(configured, color=BLACK, linestyle='--', label=f'optim.lr: {configured:.1e}')
  lowest, highest = min(*smooth, *losses), max(smooth)
  room = 0.1 * max(highest - lowest, 1e-3)
  axes.set(xscale='log', xlabel='learning rate', ylabel='training loss')
  axes.set_ylim(lowest - room, highest + room)
  axes.grid(alpha=0.25)
  axes.legend(frameon=False)
  title = 'No learning rate makes the loss fall'
  if suggestion is not None:
    title = f'The loss falls fastest at a learning rate of {suggestion:.1e}'
  entitle(figure, title, leaky)
  return figure
