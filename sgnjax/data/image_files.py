"""Plain files of images: MNIST's, CIFAR's, arrays, archives of class folders; and the digits."""

import gzip
import importlib.util
import lzma
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sgnjax.errors import UserError

PICTURES = ('.png', '.jpg', '.jpeg')


@dataclass(frozen=True)
class Pairs(Sequence):
  """Images, uint8 (H, W, C) each or encoded bytes, and their labels (N,) int32, in memory."""

  images: Sequence[Any]
  labels: np.ndarray

  def __len__(self) -> int:
    return len(self.labels)

  def __getitem__(self, number: int) -> tuple[Any, int]:
    return self.images[number], int(self.labels[number])


def digits() -> Pairs:
  """scikit-learn's 1,797 images. Raises UserError without that package."""
  if importlib.util.find_spec('sklearn') is None:
    raise UserError(
      "data.name=digits is of scikit-learn: pip install 'sgnjax[vision]', or name other images"
    )
  from sklearn.datasets import load_digits

  found = load_digits()  # 8 x 8, of 0 to 16
  images = np.round(found.images * (255 / 16)).astype(np.uint8)[..., None]
  return Pairs(images, found.target.astype(np.int32))


def from_files(name: str, given: str) -> dict[str, Pairs]:
  """The splits in a folder, or in one file of it. Raises UserError where there are none."""
  path = Path(given).expanduser()
  if name == 'imagenet2012':
    raise UserError('imagenet2012 is not read from plain files: unset data.path')
  if not path.exists():
    raise UserError(f"data.path '{given}' does not exist")
  read = {'mnist': _idx, 'cifar10': _cifar(0), 'cifar100': _cifar(1)}[name]
  try:
    if path.is_file():
      found = _one_file(path)
    else:
      found = {split: read(path, split) for split in ('train', 'test')}
      found = {split: images for split, images in found.items() if images is not None}
  except (OSError, EOFError, ValueError, KeyError, lzma.LZMAError, zipfile.BadZipFile,
          tarfile.TarError) as error:  # fmt: skip
    raise UserError(f"cannot read {name} of '{given}': {error}") from None
  if not found:
    raise UserError(
      f"data.path '{given}' holds no {name}: expected its binary files (idx or .bin), or the path "
      'of an .npz file (x_train, y_train, x_test, y_test) or of a tar of SPLIT/CLASS/*.png'
    )
  return found


def _one_file(path: Path) -> dict[str, Pairs]:
  if path.suffix == '.npz':
    with np.load(path, allow_pickle=False) as arrays:
      return {
        split: Pairs(
          _pixels(arrays[f'x_{split}']), arrays[f'y_{split}'].reshape(-1).astype(np.int32)
        )
        for split in ('train', 'test')
        if f'x_{split}' in arrays
      }
  if not tarfile.is_tarfile(path):
    raise ValueError('neither an .npz file nor a tar')
  with tarfile.open(path) as archive:
    members = sorted(
      (m for m in archive.getmembers() if m.name.lower().endswith(PICTURES)), key=lambda m: m.name
    )
    parts = [member.name.split('/')[-3:-1] for member in members]
    for member, part in zip(members, parts, strict=True):
      if len(part) < 2:
        raise ValueError(f"'{member.name}' in it is not SPLIT/CLASS/NAME")
    classes = sorted({kind for _, kind in parts})
    found = {}
    for split in sorted({split for split, _ in parts}):
      own = [m for m, part in zip(members, parts, strict=True) if part[0] == split]
      labels = [classes.index(kind) for part, kind in parts if part == split]
      contents = [archive.extractfile(member).read() for member in own]
      found[split] = Pairs(contents, np.array(labels, np.int32))
  return found


def _pixels(images: np.ndarray) -> np.ndarray:
  """uint8 (N, H, W, C) of an array that may leave out a single channel."""
  if images.dtype != np.uint8 or images.ndim not in (3, 4):
    raise ValueError(f'{images.dtype} {images.shape}, expected uint8 (N, H, W) or (N, H, W, C)')
  return images[..., None] if images.ndim == 3 else images


def _bytes(folder: Path, name: str) -> bytes | None:
  for path, opener in ((folder / name, open), (folder / f'{name}.gz', gzip.open)):
    if path.exists():
      with opener(path, 'rb') as file:
        return file.read()
  return None


def _idx(folder: Path, split: str) -> Pairs | None:
  """MNIST: 16 bytes of header before the images, 8 before the labels."""
  stem = 'train' if split == 'train' else 't10k'
  images = _bytes(folder, f'{stem}-images-idx3-ubyte')
  labels = _bytes(folder, f'{stem}-labels-idx1-ubyte')
  if images is None or labels is None:
    return None
  count, high, wide = np.frombuffer(images, '>i4', 3, 4)
  pixels = np.frombuffer(images, np.uint8, offset=16).reshape(count, high, wide, 1)
  return Pairs(pixels, np.frombuffer(labels, np.uint8, offset=8).astype(np.int32))


def _cifar(coarse: int) -> Callable[[Path, str], Pairs | None]:
  """CIFAR: label bytes (100: a coarse one first), then a plane of 1,024 bytes for each colour."""
  files = {'train': [f'data_batch_{i}.bin' for i in range(1, 6)], 'test': ['test_batch.bin']}
  if coarse:
    files = {'train': ['train.bin'], 'test': ['test.bin']}

  def read(folder: Path, split: str) -> Pairs | None:
    def contents() -> Iterator[bytes]:
      for name in files[split]:
        found = _bytes(folder, name)
        if found is not None:
          yield found

    joined = b''.join(contents())
    if not joined:
      return None
    rows = np.frombuffer(joined, np.uint8).reshape(-1, 1 + coarse + 3072)
    pixels = rows[:, 1 + coarse :].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return Pairs(np.ascontiguousarray(pixels), rows[:, coarse].astype(np.int32))

  return read
