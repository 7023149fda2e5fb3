"""Training images changed at random, one by one, and MixUp of a batch's rows.

Each change is a function of (seed, step, row) alone (`steps.Shuffled`). Resampling and colours are
Pillow's. The papers name random crop, flip and colour jitter, and no strengths: those here are the
usual ones, named with their source.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from ml_collections import ConfigDict
from PIL import Image, ImageEnhance, ImageOps

from sgnjax.data import images
from sgnjax.data.rows import Batch
from sgnjax.errors import UserError, check_choice

LEVELS = ('none', 'light', 'papers')
MARGIN = 8  # a padded crop moves by up to side / 8: 4 pixels of 32, He et al. 2016, section 4.2
AREA, RATIO = (0.08, 1.0), (3 / 4, 4 / 3)  # of a zoomed crop: Szegedy et al. 2015, section 6
TRIES = 10
# Factors of brightness, contrast and saturation are 1 +- JITTER, as in Torch's ResNet training
# (Gross and Wilber 2016); hues turn by up to HUE of the circle, SimCLR's for CIFAR (Chen et al.
# 2020, appendix B.9).
JITTER, HUE = 0.4, 0.1


def check(config: ConfigDict) -> None:
  """Raises UserError for `data.augment` and `data.mixup` that cannot be."""
  data = config.data
  check_choice('data.augment', data.augment, LEVELS)
  if not 0 <= data.mixup < math.inf:
    raise UserError(f'data.mixup={data.mixup}: expected 0 (none) or more, 0.2 say')
  if data.name not in images.SETS:
    for key, none in (('augment', 'none'), ('mixup', 0.0)):
      if data[key] != none:
        raise UserError(
          f'data.{key}={data[key]} is of images, and data.name={data.name} is none: set '
          f'data.{key}={none}'
        )
  if data.mixup and config.train.batch < 2:
    raise UserError(f'data.mixup={data.mixup} mixes rows of a batch, and train.batch is 1')


def of(config: ConfigDict, found: images.Images) -> 'Change | None':
  """What `data.augment` does to an image of a set; None: nothing."""
  check(config)
  if config.data.augment == 'none':
    return None
  return Change(found.shape, found.kind, colour=config.data.augment == 'papers')


def mixing(config: ConfigDict, found: images.Images) -> 'MixUp | None':
  """What `data.mixup` does to a batch; None: nothing."""
  check(config)
  return MixUp(config.data.mixup, found.classes) if config.data.mixup else None


@dataclass(frozen=True)
class Change:
  """An image, uint8 (H, W, C) of any size, cropped to `shape`, mirrored, its colours changed.

  Crop: of a set of photographs (`kind.zoomed`) a random part of 8 to 100 % of the area, scaled; of
  others the image, moved by up to an eighth of its side, black where it was not. Mirrored: half the
  images, where `kind.mirrored` says that a class survives it. colour: brightness and contrast and,
  of colour images, saturation and hue, in random order (Howard 2013).
  """

  shape: tuple[int, int, int]
  kind: images.Kind
  colour: bool

  def __call__(self, example: Batch, generator: np.random.Generator) -> Batch:
    crop = _zoomed if self.kind.zoomed else _moved
    picture = crop(example['image'], self.shape, generator)
    if self.kind.mirrored and generator.random() < 0.5:
      picture = ImageOps.mirror(picture)
    if self.colour:
      picture = _jitter(picture, generator)
    return example | {'image': np.asarray(picture).reshape(self.shape)}


def _moved(image: np.ndarray, shape: tuple, generator: np.random.Generator) -> Image.Image:
  high, wide = shape[:2]
  left, top = (int(generator.integers(-(n // MARGIN), n // MARGIN + 1)) for n in (wide, high))
  picture = images.picture(images.fit(image, shape))
  return picture.crop((left, top, left + wide, top + high))  # black outside


def _zoomed(image: np.ndarray, shape: tuple, generator: np.random.Generator) -> Image.Image:
  picture, size = images.picture(image), (shape[1], shape[0])
  for _ in range(TRIES):
    area = picture.width * picture.height * generator.uniform(*AREA)
    ratio = math.exp(generator.uniform(*np.log(RATIO)))
    wide, high = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
    if 0 < wide <= picture.width and 0 < high <= picture.height:
      left = int(generator.integers(picture.width - wide + 1))
      top = int(generator.integers(picture.height - high + 1))
      box = (left, top, left + wide, top + high)
      return picture.resize(size, Image.Resampling.BILINEAR, box=box)
  return ImageOps.fit(picture, size, Image.Resampling.BILINEAR)  # of a strip: its centre


def _jitter(picture: Image.Image, generator: np.random.Generator) -> Image.Image:
  factors = 1 + generator.uniform(-JITTER, JITTER, 3)
  turn = generator.uniform(-HUE, HUE)
  changes = [
    lambda p: ImageEnhance.Brightness(p).enhance(factors[0]),
    lambda p: ImageEnhance.Contrast(p).enhance(factors[1]),
  ]
  if picture.mode == 'RGB':
    changes += [
      lambda p: ImageEnhance.Color(p).enhance(factors[2]),
      lambda p: turn_hues(p, turn),
    ]
  for number in generator.permutation(len(changes)):
    picture = changes[number](picture)
  return picture


def turn_hues(picture: Image.Image, turn: float) -> Image.Image:
  """An RGB picture, its hues turned by a share of the circle: a third makes red green."""
  hue, saturation, value = picture.convert('HSV').split()
  hue = hue.point([(i + round(256 * turn)) % 256 for i in range(256)])
  return Image.merge('HSV', (hue, saturation, value)).convert('RGB')


@dataclass(frozen=True)
class MixUp:
  """Rows mixed with others: `w x + (1 - w) x'` of images and of labels, w from Beta(alpha, alpha).

  'label' becomes shares of all classes, (B, classes) float32. Source: Zhang et al. 2018, section 2.
  """

  alpha: float
  classes: int

  def __call__(
    self, batch: Batch, other: Batch, generators: Sequence[np.random.Generator]
  ) -> Batch:
    weights = [generator.beta(self.alpha, self.alpha) for generator in generators]
    w_B = np.array(weights, np.float32)
    one_hot_KK = np.eye(self.classes, dtype=np.float32)
    label_BK = one_hot_KK[batch['label']], one_hot_KK[other['label']]
    return {
      'image': _between(batch['image'], other['image'], w_B),
      'label': _between(*label_BK, w_B),
    }


def _between(x: np.ndarray, y: np.ndarray, w_B: np.ndarray) -> np.ndarray:
  w = w_B.reshape(-1, *[1] * (x.ndim - 1))
  return w * x + (1 - w) * y
