"""Pictures of the mechanisms before any training, by the functions that the mixers run.

`python -m sgnjax.analysis.gallery FOLDER` draws all of them.
"""

from collections.abc import Callable
from pathlib import Path

from matplotlib.figure import Figure

from sgnjax.analysis.gallery.chiar import chiar_entropy
from sgnjax.analysis.gallery.ega import ega_gates, ega_wavelets
from sgnjax.analysis.gallery.fourier_qk import (
  fourier_qk_kernels,
  fourier_qk_responses,
  fourier_qk_taps,
)
from sgnjax.analysis.gallery.sgn import bases, haar_kernels, sgn_kernels, sgn_operator
from sgnjax.analysis.plots.style import save

DRAWN: tuple[Callable[[], Figure], ...] = (
  sgn_kernels, sgn_operator, bases, haar_kernels, fourier_qk_responses, fourier_qk_kernels,
  fourier_qk_taps, chiar_entropy, ega_wavelets, ega_gates,
)  # fmt: skip


def mechanism_pictures(folder: str | Path) -> list[Path]:
  """Draws every picture into the folder, made if need be, as `<function's name>.png`."""
  folder = Path(folder)
  folder.mkdir(parents=True, exist_ok=True)
  return [save(draw(), folder / f'{draw.__name__}.png') for draw in DRAWN]
