"""Pictures of CHIAR-Former: what its router routes by."""

import collections
import re

import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from sgnjax.analysis.plots.panels import Curve, Panel, sheet
from sgnjax.data.sources import embedded
from sgnjax.ops.entropy import spectral_entropy, thresholds, white_entropy
from sgnjax.ops.width import orthogonal_matrix


def text_embeddings(width: int = 256, words: int = 1500) -> np.ndarray:
  """Embeddings of a text's commonest words: singular vectors of their shifted PMI, (words, width).

  Counts of neighbours up to four words away, in the English of Python itself. Source: Levy and
  Goldberg 2014, which show that skip-gram factorises the same matrix.
  """
  text = re.findall(r"[a-z']+", embedded().lower())
  known = [w for w, _ in collections.Counter(text).most_common(words)]
  number = {w: i for i, w in enumerate(known)}
  ids = np.asarray([number.get(w, len(known)) for w in text])
  count_WW = np.zeros((len(known) + 1,) * 2)
  for gap in range(1, 5):
    np.add.at(count_WW, (ids[:-gap], ids[gap:]), 1)
  count_WW = (count_WW + count_WW.T)[:-1, :-1]
  total_W = np.maximum(count_WW.sum(1), 1)
  ratio_WW = count_WW * total_W.sum() / np.outer(total_W, total_W)
  left, size, _ = np.linalg.svd(np.log(np.maximum(ratio_WW, 1)))
  return left[:, :width] * np.sqrt(size[:width])


def chiar_entropy(words: int = 1500) -> Figure:
  """CHIAR-Former: entropies of white noise and of text embeddings; tau of white noise by width."""
  width = 256
  embedding_WD = text_embeddings(width, words)
  vectors = {
    'white noise': np.random.default_rng(1).standard_normal((20_000, width)),
    'embeddings of words': embedding_WD,
    'the same, rotated': embedding_WD @ orthogonal_matrix(width),
  }
  edges = np.arange(0.8, 0.95, 0.003)
  curves = []
  for name, x_XD in vectors.items():
    entropy_X = np.asarray(spectral_entropy(jnp.asarray(x_XD, jnp.float32)))
    tau = np.mean(thresholds(entropy_X))
    share, _ = np.histogram(entropy_X, edges)
    curves.append(
      Curve(
        (edges[1:] + edges[:-1]) / 2,
        share / len(x_XD),
        f'{name}\nτ = {tau:.3f}',
        width=4 - 1.4 * len(curves),
      )
    )
  widths = 2.0 ** np.arange(6, 13)
  white = Curve(widths, np.asarray([white_entropy(int(d)) for d in widths]), 'white noise')
  printed = Curve(np.asarray([256, 1024]), np.asarray([0.860, 0.8954]), 'τ of the paper', taps=True)
  ticks = (widths, [f'{d:.0f}' for d in widths])
  return sheet(
    'CHIAR-Former: what spectral entropy says of a token',
    [
      [Panel('width 256', 'spectral entropy (0 to 1)', 'share of vectors', curves,
             xlim=(0.82, 0.92))],
      [Panel('mean entropy of white noise', 'width D (channels)', 'spectral entropy',
             [white, printed], xlim=(60, 4200), ylim=(0.8, 0.93), scale='log', ticks=ticks)],
    ],
    height=2.2,
  )  # fmt: skip
