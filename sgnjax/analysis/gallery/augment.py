"""A picture of training images as a model sees them: as they are, changed at random, and mixed.

`python -m sgnjax.analysis.gallery.augment PICTURE.png [NAME=PATH ...]` draws scikit-learn's digits
and photographs, and then sets of plain files.
"""

import sys
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sgnjax.analysis.plots.style import entitle, new_figure, save
from sgnjax.data import images
from sgnjax.data.augment import Change, MixUp
from sgnjax.data.image_files import Pairs, digits, from_files
from sgnjax.data.rows import Batch
from sgnjax.data.steps import Shuffled
from sgnjax.errors import UserError, check_choice

COLUMNS = 8
ALPHA = 0.8


def augment(*sets: tuple[str, Sequence, tuple[int, int, int]]) -> Figure:
  """Some rows of sets (name, pairs, shape): as they are, data.augment=light, papers, and mixed.

  Under mixed ones stand their classes' shares. Pairs are cropped and scaled as the named set's.
  """
  figure = new_figure(0.5 + 3.1 * len(sets))
  every = figure.subplots(4 * len(sets), 1, squeeze=False)[:, 0].reshape(-1, 4)
  for (name, pairs, shape), axes in zip(sets, every, strict=True):
    kind = images.SETS[name]
    rows = images.Pictures(pairs, shape, kind)
    light, papers = (Change(shape, kind, colour) for colour in (False, True))
    shown = (
      ('none', None, None),
      ('light', light, None),
      ('papers', papers, None),
      (f'papers,\nmixup={ALPHA}', papers, MixUp(ALPHA, kind.classes)),
    )
    axes[0].set_title(f'as {name}, {shape[0]} x {shape[1]} pixels', fontsize=10)
    for ax, (label, change, mix) in zip(axes, shown, strict=True):
      batch = Shuffled(rows, 0, COLUMNS, range(COLUMNS), change, mix)[0]
      _strip(ax, batch, kind)
      ax.set_ylabel(label, fontsize=8, rotation=0, ha='right', va='center')
  entitle(figure, 'Training images under data.augment and data.mixup', False)
  return figure


def _strip(ax: Axes, batch: Batch, kind: images.Kind) -> None:
  """The images of a batch side by side, and of mixed ones the largest shares of classes."""
  pixels = np.clip(batch['image'] * np.array(kind.std) + np.array(kind.mean), 0, 1)
  gap = max(1, pixels.shape[1] // 12)
  tiles = np.pad(pixels, ((0, 0), (0, 0), (0, gap), (0, 0)), constant_values=1)
  strip = np.concatenate(list(np.broadcast_to(tiles, (*tiles.shape[:3], 3))), axis=1)
  ax.imshow(strip[:, :-gap], interpolation='nearest')
  ax.set_yticks([])
  ax.set_xticks([])
  for edge in ax.spines.values():
    edge.set_visible(False)
  if batch['label'].ndim == 2:
    places = np.arange(len(pixels)) * tiles.shape[2] + pixels.shape[2] / 2 - 0.5
    ax.set_xticks(places, [_shares(row) for row in batch['label']], fontsize=6)
    ax.tick_params(length=0)


def _shares(label_K: np.ndarray) -> str:
  most = [k for k in np.argsort(-label_K, kind='stable')[:2] if label_K[k] >= 0.005]
  return '\n'.join(f'{k}: {label_K[k]:.0%}' for k in most)


def photographs() -> Pairs:
  """scikit-learn's two, (427, 640, 3). Its digits say where the package is missing."""
  from sklearn.datasets import load_sample_images

  found = load_sample_images().images
  return Pairs(found, np.arange(len(found), dtype=np.int32))


def main(arguments: Sequence[str]) -> None:
  """Draws, and prints the path of the picture."""
  if not arguments or not all('=' in given for given in arguments[1:]):
    sys.exit('usage: python -m sgnjax.analysis.gallery.augment PICTURE.png [NAME=PATH ...]')
  try:
    sets = [('digits', digits(), (8, 8, 1)), ('imagenet2012', photographs(), (64, 64, 3))]
    for given in arguments[1:]:
      name, path = given.split('=', 1)
      check_choice('the set', name, ('mnist', 'cifar10', 'cifar100'))
      pairs = next(iter(from_files(name, path).values()))
      first = images.decode(pairs[0][0], len(images.SETS[name].mean))
      sets.append((name, pairs, first.shape))
  except UserError as error:
    sys.exit(str(error))
  print(save(augment(*sets), arguments[0]))


if __name__ == '__main__':
  main(sys.argv[1:])
