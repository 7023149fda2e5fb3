"""Pictures of a run: losses, gates, responses, routes. Arrays in, Figure out; no global state."""

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from sgnjax.analysis.plots.style import (
  BLACK,
  BLUE,
  COLOURS,
  DASHES,
  GREEN,
  MAP,
  MONO,
  ORANGE,
  SKY,
  drawable,
  entitle,
  mark,
  new_figure,
)

PANELS = 4  # layers shown side by side; more would be stamps


def loss_curves(
  train: tuple[Sequence[float], Sequence[float]],
  validation: tuple[Sequence[float], Sequence[float]],
  *,
  unigram: float | None = None,
  guess: str = 'token frequencies alone',
  unit: str = 'nats per token',
  leaky: bool = False,
) -> Figure:
  """Training and validation loss (steps, nats per token) beside the entropy of single tokens.

  guess, unit: what that line is called, and the loss measured in, where it is another task.
  """
  figure = new_figure(3.8)
  axes = figure.subplots()
  if len(train[0]):
    axes.plot(*train, color=SKY, linewidth=1.5, label=mark('training', leaky))
  said = 'Loss'
  if len(validation[0]):
    axes.plot(*validation, color=BLUE, marker='o', label=mark('validation', leaky))
    best = int(np.argmin(validation[1]))
    said = f'Validation loss reaches {validation[1][best]:.3f} at step {validation[0][best]:,.0f}'
  if unigram is not None:
    axes.axhline(
      unigram, color=BLACK, linestyle='--', linewidth=1,
      label=f'{guess}: {unigram:.3f}',
    )  # fmt: skip
  axes.set(xlabel='optimiser step', ylabel=f'loss ({unit})')
  axes.grid(alpha=0.25)
  if axes.get_legend_handles_labels()[0]:
    axes.legend(frameon=False)
  entitle(figure, said, leaky)
  return figure


def gate_responses(response_MD_by_layer: dict[int, np.ndarray], *, leaky: bool = False) -> Figure:
  """|response| of every channel of SGN layers over frequency, one image a layer.

  Each array is (frequencies, channels), frequencies even from 0 to 1/2 cycle per token. Channels
  are sorted by the centre of gravity of their response.
  """
  shown = _some(response_MD_by_layer)
  figure, axes = _panels(len(shown), 2.6)
  top = max(float(np.quantile(a, 0.99)) for a in shown.values()) or 1.0
  for ax, (layer, gate_MD) in zip(axes, shown.items(), strict=True):
    points = gate_MD.shape[0]
    centre_D = (gate_MD * np.arange(points)[:, None]).sum(0) / np.maximum(gate_MD.sum(0), 1e-12)
    image = ax.imshow(
      gate_MD[:, np.argsort(centre_D)].T, aspect='auto', origin='lower', cmap=MAP, vmin=0,
      vmax=top, extent=(0, 0.5, 0, gate_MD.shape[1]), interpolation='nearest',
    )  # fmt: skip
    ax.set_title(f'layer {layer + 1}')
  figure.supxlabel('frequency (cycles per token)')
  figure.supylabel('channel, sorted by frequency')
  figure.colorbar(image, ax=axes, label='|response|', extend='max', shrink=0.8)
  entitle(figure, f'What SGN lets through{_of(shown, response_MD_by_layer)}', leaky)
  return figure


def kernels(
  kernel_TD_by_layer: dict[int, np.ndarray], *, two_sided: bool = False, leaky: bool = False
) -> Figure:
  """The three strongest kernels of SGN layers over the lag.

  Each array is (lags from 0, channels). two_sided: the kernel acts on |lag|, future included.
  """
  shown = _some(kernel_TD_by_layer)
  figure, axes = _panels(len(shown), 2.4)
  for ax, (layer, kernel_TD) in zip(axes, shown.items(), strict=True):
    strongest = np.argsort(-np.square(kernel_TD).sum(0))[:3]
    for rank, channel in enumerate(strongest):
      ax.plot(
        kernel_TD[:, channel], color=(BLUE, ORANGE, GREEN)[rank], linestyle=DASHES[rank],
        linewidth=1.3, label=f'channel {channel}',
      )  # fmt: skip
    ax.axhline(0, color=BLACK, linewidth=0.6)
    ax.set_title(f'layer {layer + 1}')
    ax.set_xscale('symlog', linthresh=4)
    _plain_ticks(ax, kernel_TD.shape[0] - 1)
    ax.legend(frameon=False, fontsize=8, handlelength=1.6)
  side = 'distance to either side' if two_sided else 'lag into the past'
  figure.supxlabel(f'{side} (tokens)')
  figure.supylabel('weight')
  entitle(figure, f'Strongest kernels of SGN{_of(shown, kernel_TD_by_layer)}', leaky)
  return figure


def filter_responses(
  response_HKF_by_layer: dict[int, np.ndarray],
  *,
  centre_HK_by_layer: dict[int, np.ndarray] | None = None,
  leaky: bool = False,
) -> Figure:
  """Filters of FourierQK heads over frequency, one panel a layer, one line a head.

  Each response is (heads, scales, frequencies), frequencies even from 0 to 1/2 cycle per token,
  shown over its largest value in the layer; centres (heads, scales) in cycles per token.
  """
  shown = _some(response_HKF_by_layer)
  figure, axes = _panels(len(shown), 2.6)
  for ax, (layer, response_HKF) in zip(axes, shown.items(), strict=True):
    heads, _, points = response_HKF.shape
    frequency_F = np.linspace(0, 0.5, points)
    top = max(float(response_HKF.max()), 1e-12)
    for h in range(heads):
      # Heads often coincide: thinner lines over thicker ones show that there are several.
      style = {'color': COLOURS[h % 7], 'linestyle': DASHES[h // 7 % 4]}
      style['linewidth'] = 4 - 3 * h / max(1, heads - 1)
      lines = ax.plot(frequency_F, response_HKF[h].T / top, **style)
      lines[0].set_label(f'{h + 1}')
    first = 2 / (points - 1)
    ax.set_xscale('symlog', linthresh=first)
    ticks = [2.0**-k for k in range(int(-math.log2(first)), 0, -1)][::-2]
    ax.set_xticks([0, *ticks], ['0', *(f'1/{1 / t:.0f}' for t in ticks)])
    ax.minorticks_off()
    ax.set_xlim(0, 0.5)
    title = f'layer {layer + 1}'
    if centre_HK_by_layer is not None:
      title += f', period {1 / float(np.median(centre_HK_by_layer[layer])):.0f} tokens'
    ax.set_title(title)
  figure.supxlabel('frequency (cycles per token)')
  figure.supylabel('response over its peak')
  if heads > 1:
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(
      handles, labels, title='head', loc='outside right center', frameon=False, handlelength=1.4
    )
  entitle(figure, f'Filters on queries and keys{_of(shown, response_HKF_by_layer)}', leaky)
  return figure


def text_heat(
  pieces: Sequence[str],
  value_RL_by_row: dict[str, np.ndarray],
  *,
  title: str,
  label: str,
  columns: int = 32,
  leaky: bool = False,
) -> Figure:
  """Text with one value (0 to 1) a token as the colour behind it; a strip for each entry.

  pieces: the text of each token. value_RL_by_row: the strip's name -> values, one a piece.
  """
  lines = -(-len(pieces) // columns)
  count = len(value_RL_by_row)
  figure = new_figure(1.1 + count * (0.3 * lines + 0.3))
  axes = np.atleast_1d(figure.subplots(count, 1))
  for ax, (name, value_L) in zip(axes, value_RL_by_row.items(), strict=True):
    grid = np.full(lines * columns, np.nan)
    grid[: len(pieces)] = value_L
    image = ax.imshow(
      grid.reshape(lines, columns), cmap=MAP, vmin=0, vmax=1, aspect='auto', interpolation='nearest'
    )
    for i, piece in enumerate(pieces):
      shown = drawable(piece)
      ax.text(
        i % columns, i // columns, shown, ha='center', va='center', family=MONO,
        fontsize=9 / max(1.0, len(shown) / 1.5), color='black' if grid[i] > 0.55 else 'white',
        parse_math=False,
      )  # fmt: skip
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_visible(False)
    ax.set_title(name, loc='left', fontsize=10)
  figure.colorbar(image, ax=axes, label=label, orientation='horizontal', shrink=0.6, aspect=40)
  entitle(figure, title, leaky)
  return figure


def attention_by_piece(
  pieces: Sequence[str], route_RL: np.ndarray, *, most: int = 24, leaky: bool = False
) -> Figure:
  """How often the commonest tokens of a text are routed to attention, over the routed layers.

  route_RL: one row a routed layer, true where a token attends; pieces as in `text_heat`.
  """
  share_L = np.asarray(route_RL, np.float64).mean(0)
  places: dict[str, list[int]] = {}
  for i, piece in enumerate(pieces):
    places.setdefault(drawable(piece), []).append(i)
  common = sorted(places, key=lambda piece: -len(places[piece]))[:most]
  common.sort(key=lambda piece: -float(share_L[places[piece]].mean()))
  figure = new_figure(3.0)
  ax = figure.subplots()
  ax.bar(range(len(common)), [share_L[places[p]].mean() for p in common], color=BLUE)
  ax.axhline(
    share_L.mean(), color=ORANGE, linestyle='--', label=mark(f'all: {share_L.mean():.0%}', leaky)
  )
  ax.set_xticks(range(len(common)), common, family=MONO, parse_math=False)
  ax.set(xlabel=f'the {len(common)} commonest tokens', ylabel='share to attention', ylim=(0, 1))
  ax.legend(frameon=False)
  entitle(figure, 'Which tokens the routers send to attention', leaky)
  return figure


def attention_shares(
  share_by_layer: dict[int, float],
  entropy_by_layer: dict[int, np.ndarray],
  *,
  tau: float | None,
  leaky: bool = False,
) -> Figure:
  """CHIAR: the share of tokens each layer sends to attention, and the tokens' entropies.

  tau: the threshold on the entropies; None where they do not decide.
  """
  figure = new_figure(5.2)
  top, bottom = figure.subplots(2, 1)
  layers = [layer + 1 for layer in share_by_layer]
  top.bar(layers, list(share_by_layer.values()), color=BLUE)
  top.set(xlabel='routed layer', ylabel='share to attention', ylim=(0, 1))
  top.set_xticks(layers if len(layers) < 15 else layers[::4])
  shown = _some(entropy_by_layer)
  for i, (layer, entropy) in enumerate(shown.items()):
    counts, edges = np.histogram(entropy, bins=60)
    bottom.stairs(
      counts / max(1, entropy.size), edges, color=COLOURS[i + 1], linestyle=DASHES[i % 4],
      linewidth=1.5, label=f'layer {layer + 1}',
    )  # fmt: skip
  if tau is not None:
    bottom.axvline(tau, color=BLACK, linestyle='--', label=f'threshold {tau:.4g}')
  bottom.set(xlabel='spectral entropy of a token (0 to 1)', ylabel='share of tokens')
  bottom.legend(frameon=False, fontsize=9)
  mean = float(np.mean(list(share_by_layer.values())))
  entitle(figure, f'Routers send {mean:.0%} of the tokens to attention', leaky)
  return figure


def meta_gate(gate_BL: np.ndarray, *, leaky: bool = False) -> Figure:
  """CHIAR's MetaRouter over the position: mean over examples, and their range from 10 to 90 %."""
  figure = new_figure(3.0)
  ax = figure.subplots()
  low_L, high_L = np.quantile(gate_BL, (0.1, 0.9), axis=0)
  position_L = np.arange(gate_BL.shape[1])
  ax.fill_between(position_L, low_L, high_L, color=SKY, alpha=0.5, label='10 to 90 % of examples')
  ax.plot(gate_BL.mean(0), color=BLUE, label='mean')
  ax.set(xlabel='position (tokens)', ylabel='gate', ylim=(0, 1))
  ax.grid(alpha=0.25)
  ax.legend(frameon=False)
  entitle(figure, f'MetaRouter: {gate_BL.mean():.2f} of layer 1, the rest its input', leaky)
  return figure


def _panels(count: int, height: float) -> tuple[Figure, np.ndarray]:
  """Panels in up to two columns that share their axes."""
  columns = min(count, 2)
  rows = -(-count // columns)
  figure = new_figure(0.9 + height * rows)
  axes = np.atleast_1d(figure.subplots(rows, columns, sharex=True, sharey=True)).ravel()
  for ax in axes[count:]:
    ax.set_visible(False)
  return figure, axes[:count]


def _some(by_layer: dict) -> dict:
  """Up to PANELS layers, first and last among them."""
  layers = list(by_layer)
  at = np.unique(np.linspace(0, len(layers) - 1, min(PANELS, len(layers))).round().astype(int))
  return {layers[i]: by_layer[layers[i]] for i in at}


def _of(shown: dict, by_layer: dict) -> str:
  return '' if len(shown) == len(by_layer) else f' ({len(shown)} of {len(by_layer)} layers)'


def _plain_ticks(ax, last: int) -> None:
  ticks = [0, *(4**k for k in range(1, 12) if 4**k <= last)]
  ax.set_xticks([*ticks], [str(t) for t in ticks])
  ax.minorticks_off()
  ax.set_xlim(0, last)
