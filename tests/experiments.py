"""Small data sets for every config: cut from real files where these are, else TFDS's mock data."""

import json
import lzma
import os
from pathlib import Path
from types import SimpleNamespace

from ml_collections import ConfigDict

from sgnjax.data import images, listops, pipeline, sources
from sgnjax.data.sets import SETS

LINES = 400  # of a split
EXAMPLES = 64  # of a split that is mocked


class MockedBuilder:
  """What `prepared.ready` gives, with TFDS's random examples of a set's features.

  TFDS's own `mock_data` asks a builder for its features and splits; those of GLUE and C4 cannot be
  made without TensorFlow.
  """

  def __init__(self, name: str, data_dir: str | None):
    import tensorflow_datasets as tfds
    from tensorflow_datasets.testing.mocking import RandomFakeGenerator

    if name in images.SETS:
      size = 240 if name == 'imagenet2012' else 32
      features = {'image': tfds.features.Image(shape=(size, size, 3))}
      features['label'] = tfds.features.ClassLabel(num_classes=images.SETS[name].classes)
      parts = ('train', 'validation')
    else:
      found = SETS[name]
      features = {field: tfds.features.Text() for field in found.fields}
      if found.kind == 'class':
        features[found.label] = tfds.features.ClassLabel(num_classes=found.classes)
      parts = found.splits.values()
    self.examples = RandomFakeGenerator(tfds.features.FeaturesDict(features), EXAMPLES)
    splits = dict.fromkeys(parts, SimpleNamespace(num_examples=EXAMPLES, num_bytes=0))
    self.info = SimpleNamespace(full_name=f'{name} mocked', splits=splits)
    self.data_path = Path(name)

  def as_data_source(self, split: str, decoders=None):
    return [self.examples[i] for i in range(EXAMPLES)]


class Places:
  """Folders of plain files by the name of a set, made when they are first asked for."""

  def __init__(self, folder: Path):
    self.folder, self.corpora = folder, {}
    real = os.environ.get('SGNJAX_DATA')
    self.real = Path(real) if real else None

  def twin(self, config: ConfigDict) -> tuple[ConfigDict, pipeline.Corpus]:
    """The config with the small set in place of its own, and that set, read.

    A set that has no plain files, or none here, is left to `prepared.ready`.
    """
    config = config.copy_and_resolve_references().unlock()
    data = config.data
    data.threads, data.mixture = 0, ()
    if config.model.image is None:
      config.model.context = min(config.model.context, 32)
    data.path = self.path(data.name)
    if data.tokenizer == 'gpt2' and self.real:
      data.tokenizer_path = str(self.real / 'gpt2-bpe')
    key = (data.name, data.tokenizer, data.task)
    if key not in self.corpora:
      self.corpora[key] = pipeline.load(config)
    return config.lock(), self.corpora[key]

  def mixture(self, config: ConfigDict) -> ConfigDict:
    """The config with small sets in place of its own and of those of its mixture."""
    small = self.twin(config)[0].copy_and_resolve_references().unlock()
    entries = ((name, weight, self.path(name)) for name, weight in config.data.mixture)
    small.data.mixture, small.data.mixture_rate = tuple(entries), 1.0
    return small.lock()

  def path(self, name: str) -> str | None:
    if name == 'cifar10' and self.real is not None:
      return str(self.real / 'cifar10' / 'cifar10_tiny_400_100.npz')
    base = name.partition('/')[0]
    make = getattr(self, f'_{base}', None)
    if make is None:
      return None
    folder = self.folder / base
    if not folder.exists():
      folder.mkdir()
      make(folder)
    return str(folder)

  def _lines(self, name: str) -> list[str]:
    """The first lines of a real file, or lines of Python's own English."""
    if self.real is None:
      words = sources.embedded().split()[: 20 * LINES]
      return [' '.join(words[i : i + 20]) for i in range(0, len(words), 20)]
    path = self.real / name
    opened = lzma.open if path.suffix == '.xz' else open
    with opened(path, 'rt', encoding='utf-8') as file:
      return [line.rstrip('\n') for line, _ in zip(file, range(LINES), strict=False)]

  def _write(self, folder: Path, files: dict[str, str]) -> None:
    for name, source in files.items():
      text = ''.join(f'{line}\n' for line in self._lines(source))
      (folder / name).write_text(text, encoding='utf-8')

  def _tiny_shakespeare(self, folder):
    self._write(folder, {'input.txt': 'tinyshakespeare/input.txt'})

  def _ptb(self, folder):
    self._write(folder, {f'ptb.{s}.txt': f'ptb/ptb.{s}.txt' for s in ('train', 'valid', 'test')})

  def _wikitext2(self, folder):
    of = {'train': 'train.txt.xz', 'valid': 'valid.txt', 'test': 'test.txt'}
    self._write(folder, {f'wiki.{s}.tokens': f'wikitext-2/{file}' for s, file in of.items()})

  def _wikitext103(self, folder):
    of = {'train': 'valid', 'valid': 'valid', 'test': 'test'}
    files = {f'wiki.{s}.tokens': f'wikitext-103/wiki.{f}.tokens' for s, f in of.items()}
    self._write(folder, files)

  def _imdb_reviews(self, folder):
    for split in ('train', 'test'):
      if self.real is None:
        rows = [{'text': t, 'label': i % 2} for i, t in enumerate(self._lines(''))]
      else:
        rows = map(json.loads, self._lines(f'imdb/imdb.{split}.jsonl.xz'))
      lines = ''.join(f'{json.dumps(row)}\n' for row in rows)
      (folder / f'imdb.{split}.jsonl').write_text(lines, encoding='utf-8')

  def _list_ops(self, folder):
    examples = listops.generate()
    for split in ('train', 'val', 'test'):
      rows = [f'{value}\t{text}' for text, value in (next(examples) for _ in range(EXAMPLES))]
      lines = ['Target\tSource', *rows]
      (folder / f'basic_{split}.tsv').write_text('\n'.join(lines) + '\n')
