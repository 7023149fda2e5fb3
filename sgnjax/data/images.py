"""Images with one label each: scikit-learn's digits, plain files, or TFDS, without TensorFlow."""

import hashlib
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from ml_collections import ConfigDict
from PIL import Image

from sgnjax.data import prepared
from sgnjax.data.image_files import Pairs, digits, from_files
from sgnjax.data.rows import Batch, Rows
from sgnjax.data.sources import check, held_out
from sgnjax.data.tokenizers import NoTokens
from sgnjax.errors import UserError


class Kind(NamedTuple):
  """A set of images.

  mean, std: of the pixels, 0 to 1, of all its training images, one of each channel. mirrored:
  whether a mirrored image is of the same class. zoomed: whether these are photographs of many
  sizes, of which a part shows the class too.
  """

  classes: int
  mean: tuple[float, ...]
  std: tuple[float, ...]
  mirrored: bool = False
  zoomed: bool = False


# Means and deviations are constants, so that a part of a set, or its test images alone, are scaled
# as the whole is. digits: of all its images, there being no split. MNIST, CIFAR: of the published
# 60,000 and 50,000 training images. ImageNet: the constants that Torch's models are trained with.
SETS = {
  'digits': Kind(10, (0.3053,), (0.3759,)),
  'mnist': Kind(10, (0.1307,), (0.3081,)),
  'cifar10': Kind(10, (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616), True),
  'cifar100': Kind(100, (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762), True),
  'imagenet2012': Kind(1000, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225), True, True),
}
RESIZED = 256 / 224  # shorter side over the crop that is taken from its centre, as for ImageNet


@dataclass(frozen=True)
class Records(Sequence):
  """Images as they lie in a TFDS source, and their labels."""

  source: Any

  def __len__(self) -> int:
    return len(self.source)

  def __getitem__(self, number: int) -> tuple[bytes, int]:
    example = self.source[number]
    return example['image'], int(example['label'])


@dataclass(frozen=True)
class _Chosen(Sequence):
  """Some of a sequence."""

  pairs: Sequence
  numbers: np.ndarray

  def __len__(self) -> int:
    return len(self.numbers)

  def __getitem__(self, number: int) -> tuple[Any, int]:
    return self.pairs[int(self.numbers[number])]


@dataclass(frozen=True)
class Images:
  """Pairs of an image and its label, one of `classes`, of each split.

  An image is uint8 (H, W, C), or bytes that are decoded when it is read. shape: of those of a
  batch. source: a phrase that says where they came from. identity: names the set, its sizes and,
  where they are in memory, its pixels.
  """

  splits: dict[str, Sequence[tuple[Any, int]]]
  kind: Kind
  shape: tuple[int, int, int]
  source: str
  identity: str
  tokenizer: NoTokens = field(default_factory=NoTokens)

  @property
  def classes(self) -> int:
    return self.kind.classes


class Pictures(Rows):
  """{'image' (B, H, W, C) float32, 'label' (B,) int32}.

  Pixels have the mean 0 and the deviation 1 of each channel over the set (`Kind`). `examples` are
  whole images, uint8, for what changes them; `stack` cuts what is not of the shape (`fit`).
  """

  def __init__(self, pairs: Sequence[tuple[Any, int]], shape: tuple[int, int, int], kind: Kind):
    self._pairs, self._shape = pairs, shape
    mean, std = (np.array(numbers, np.float32) for numbers in (kind.mean, kind.std))
    # Of a whole line of pixels: NumPy is slow along an axis of three channels.
    self._scale, self._offset = (np.tile(a, shape[1]) for a in (1 / (255 * std), mean / std))

  def __len__(self) -> int:
    return len(self._pairs)

  def examples(self, rows: np.ndarray) -> list[Batch]:
    found = (self._pairs[int(row)] for row in rows)
    return [{'image': decode(i, self._shape[2]), 'label': np.int32(label)} for i, label in found]

  def stack(self, examples: list[Batch]) -> Batch:
    image_BHWC = np.stack([fit(example['image'], self._shape) for example in examples])
    line_BHX = image_BHWC.reshape(*image_BHWC.shape[:2], -1) * self._scale
    line_BHX -= self._offset
    return {
      'image': line_BHX.reshape(image_BHWC.shape),
      'label': np.stack([example['label'] for example in examples]),
    }

  def take(self, rows: np.ndarray) -> Batch:
    return self.stack(self.examples(rows))


def decode(image: Any, channels: int) -> np.ndarray:
  """An image as uint8 (H, W, C). Raises UserError for bytes that are none."""
  if isinstance(image, np.ndarray):
    return image
  try:
    with Image.open(io.BytesIO(image)) as opened:
      found = np.asarray(opened.convert('L' if channels == 1 else 'RGB'))
  except OSError:
    raise UserError(
      f'an image of {len(image):,} bytes is broken, or none that Pillow reads'
    ) from None
  return found.reshape(*found.shape[:2], channels)


def picture(image: np.ndarray) -> Image.Image:
  """Pillow's form of uint8 (H, W, 1 or 3)."""
  return Image.fromarray(image[:, :, 0] if image.shape[2] == 1 else image)


def fit(image: np.ndarray, shape: tuple[int, int, int]) -> np.ndarray:
  """uint8 of `shape`: the shorter side scaled to 256/224 of it, and the centre cut out."""
  if image.shape == shape:
    return image
  high, wide = shape[:2]
  scale = RESIZED * max(high / image.shape[0], wide / image.shape[1])
  size = (round(image.shape[1] * scale), round(image.shape[0] * scale))
  left, top = (size[0] - wide) // 2, (size[1] - high) // 2
  resized = picture(image).resize(size, Image.Resampling.BICUBIC)
  return np.asarray(resized.crop((left, top, left + wide, top + high))).reshape(shape)


def load(config: ConfigDict) -> Images:
  """The images that `config.data` names.

  Without a validation split, `data.validation` of the train split is one (`held_out`); where files
  hold test images alone, these are cut so. `data.image_size`: images of another size are
  scaled and cut to squares. Raises UserError as `sources.load`, and for images of different sizes
  without a size.
  """
  data = config.data
  if data.task != 'classify':
    raise UserError(f'data.name={data.name} holds images: set data.task=classify')
  check(config)
  if data.name == 'digits':
    splits, origin = {'train': digits()}, "scikit-learn's digits"
  elif data.path is not None:
    splits, origin = from_files(data.name, data.path), f"{data.name} of '{data.path}'"
    classes = SETS[data.name].classes
    for split, pairs in splits.items():
      wrong = pairs.labels[~np.isin(pairs.labels, np.arange(classes))]
      if wrong.size:
        raise UserError(f'{origin}: {split} has a label of {wrong[0]}, and {classes} classes')
  else:
    splits, origin = _from_tfds(data.name, data.dir)
  if 'train' not in splits:
    splits, origin = {'train': splits['test']}, f'{origin}, test images alone'
  if 'validation' not in splits:
    pairs = splits['train']
    held = held_out(len(pairs), data.validation)
    splits['train'] = _Chosen(pairs, np.flatnonzero(~held))
    splits['validation'] = _Chosen(pairs, np.flatnonzero(held))
  if not all(map(len, splits.values())):
    raise UserError(f'{origin}: too few images for data.validation={data.validation}')
  kind, size = SETS[data.name], data.image_size
  channels = len(kind.mean)
  first = decode(splits['train'][0][0], channels).shape
  if first[2] != channels:
    raise UserError(f'{origin} has images of {first}, and {data.name} has {channels} channels')
  if size is not None and size < 1:
    raise UserError(f'data.image_size={size}: expected at least 1')
  if size is None and data.name == 'imagenet2012':
    raise UserError('the images of imagenet2012 differ in size: set data.image_size=224, say')
  return Images(
    splits=splits,
    kind=kind,
    shape=first if size is None else (size, size, channels),
    source=origin,
    identity=_identity(f'{data.name} {data.validation}', splits),
  )


def _identity(name: str, splits: dict[str, Sequence]) -> str:
  digest = hashlib.sha256(name.encode())
  for split, pairs in splits.items():
    digest.update(f'{split} {len(pairs)}'.encode())
    while isinstance(pairs, _Chosen):
      pairs = pairs.pairs
    if isinstance(pairs, Pairs):
      digest.update(pairs.labels.tobytes())
      for image in pairs.images:
        digest.update(image)
  return digest.hexdigest()


def _from_tfds(name: str, folder: str | None) -> tuple[dict[str, Sequence], str]:
  import tensorflow_datasets as tfds

  builder = prepared.ready(name, folder)
  splits = {}
  for split in ('train', 'validation', 'test'):
    if split in builder.info.splits:
      source = builder.as_data_source(split=split, decoders={'image': tfds.decode.SkipDecoding()})
      if int(source[0]['label']) >= 0:  # those of ImageNet's test images are secret
        splits[split] = Records(source)
  return splits, f'TFDS {builder.info.full_name}'
