"""Colours, sheets and letters that all pictures share.

Colours are those of Okabe and Ito and the map `cividis`: colour-blind eyes tell them apart and grey
print keeps in order. Figures are narrow, so that their letters stay readable on a telephone.
"""

import functools
from pathlib import Path

from matplotlib import font_manager
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ft2font import FT2Font
from matplotlib.ticker import LogLocator, NullLocator

BLACK, ORANGE, SKY, GREEN, BLUE, RED, PURPLE = COLOURS = (
  '#000000', '#E69F00', '#56B4E9', '#009E73', '#0072B2', '#D55E00', '#CC79A7'
)  # fmt: skip
DASHES = ('-', '--', '-.', ':')
WIDTH = 6.4
MAP = 'cividis'
MONO = 'DejaVu Sans Mono'  # comes with matplotlib
VISIBLE = {'\n': '↵', ' ': '·', '\t': '→'}


def save(figure: Figure, path: str | Path) -> Path:
  """Writes the figure as PNG and returns its path."""
  path = Path(path)
  figure.savefig(path, format='png', dpi=150)
  return path


def new_figure(height: float) -> Figure:
  figure = Figure(figsize=(WIDTH, height), layout='constrained')
  figure.get_layout_engine().set(w_pad=0.1, h_pad=0.08)
  FigureCanvasAgg(figure)
  return figure


def plain_log(axis) -> None:
  """Numbers of a logarithmic axis as they are, `0.01`, without the letters of mathematics.

  Called when all is drawn: on less than two decades 2 and 5 are told beside 1.
  """
  low, high = axis.get_view_interval()
  if axis.get_transform().base == 10 and high < 100 * low:
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
  axis.set_major_formatter(lambda value, _: f'{value:g}')
  axis.set_minor_locator(NullLocator())


def mark(label: str, leaky: bool) -> str:
  return f'{label} LEAKY' if leaky else label


def entitle(figure: Figure, title: str, leaky: bool) -> None:
  figure.suptitle(mark(title, leaky), fontsize=12, fontweight='bold', color=RED if leaky else BLACK)


@functools.cache
def _glyphs() -> frozenset[int]:
  """Code points that the font of the text strips has."""
  return frozenset(FT2Font(font_manager.findfont(MONO)).get_charmap())


def drawable(piece: str) -> str:
  """A token's text with white space made visible and what the font lacks as a box."""
  shown = ''.join(VISIBLE.get(c, c) for c in piece)
  return ''.join(c if ord(c) in _glyphs() and c.isprintable() else '□' for c in shown)
