"""What the input pipeline gives, and what a step takes of it."""

import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from sgnjax.analysis.benchmark import scaffold, timing
from sgnjax.analysis.benchmark.page import Row
from sgnjax.analysis.benchmark.settings import Settings
from sgnjax.analysis.benchmark.step import Bare
from sgnjax.data.sources import embedded
from sgnjax.train import tasks

WORKERS = (0, 2)


def loader(
  settings: Settings,
  *,
  kinds: Sequence[str] | None = None,
  workers: Sequence[int] = WORKERS,
  seconds: float = 4.0,
  **sizes: Any,
) -> Iterator[Row | str]:
  """What the loader gives

  Batches of 16 x 256 tokens or 64 images of 32 x 32 x 3, read and thrown away, by threads
  (`data.workers=0`) or by worker processes, after those that were read ahead; beside it what a
  training step of the plain decoder or encoder takes (6 layers, width 256). Texts are the English
  inside Python itself, cut where documents are needed; images are noise, with crops, mirrors and
  colours as the papers name them."""
  with tempfile.TemporaryDirectory() as folder:
    made = _configs(Path(folder), sizes)
    for kind in kinds or made:
      unit, name, changes = made[kind]
      context = 64 if unit == 'images' else 256
      config = scaffold.config(name, context=sizes.get('context', context))
      config = config.copy_and_resolve_references().unlock()
      config.model.update({k: v for k, v in sizes.items() if k != 'context'})
      config.data.cache_dir = folder
      config.model.vocab = None
      for key, value in changes.items():
        group, leaf = key.split('.')
        config[group][leaf] = value
      sets = tasks.load(config)
      twin = config.copy_and_resolve_references().unlock()
      corpus = sets[config.data.name].corpus
      twin.model.vocab = None if unit == 'images' else corpus.tokenizer.vocab_size
      twin.model.classes = corpus.classes if config.data.task == 'classify' else None
      twin.data.mixture = ()
      took = timing.interleaved({'step': Bare(twin)}, settings.repeats, settings.seconds / 4)
      each = config.train.batch * (1 if unit == 'images' else config.model.context)
      row: Row = {'batches of': kind, 'unit': unit, 'a step takes, /s': each / took['step']}
      for count in workers:
        config.data.workers = count
        rate = each * _batches_a_second(config, sets, seconds)
        row[f'{count} workers, /s'] = rate
        row[f'{count} workers / step'] = rate * took['step'] / each
      yield row


def _batches_a_second(config: ConfigDict, sets: dict, seconds: float) -> float:
  batches = tasks.batches(config, sets, slice(0, config.train.batch))
  for _ in range(2 * config.data.prefetch):
    next(batches)
  start, count = time.perf_counter(), 0
  while (spent := time.perf_counter() - start) < seconds or not count:
    next(batches)
    count += 1
  return count / spent


def _configs(folder: Path, sizes: dict) -> dict[str, tuple[str, str, dict]]:
  """{kind: (unit, variant of the step, keys of the config)}; writes their files."""
  text = embedded()
  rng = np.random.default_rng(0)
  (folder / 'documents').mkdir()
  edges = np.sort(rng.choice(np.arange(200, len(text)), 400, replace=False))
  for number, (start, stop) in enumerate(zip([0, *edges], [*edges, len(text)], strict=True)):
    (folder / 'documents' / f'{number:04}.txt').write_text(text[start:stop], encoding='utf-8')
  lines = [' '.join(line.split()) for line in text.split('\n') if len(line) > 20]
  for part in ('train', 'dev', 'test'):
    labelled = (f'{number % 2} {line}\n' for number, line in enumerate(lines))
    (folder / f'stsa.binary.{part}').write_text(''.join(labelled), encoding='utf-8')
  count = 4000
  pixels, labels = rng.integers(0, 256, (count, 32, 32, 3), np.uint8), np.arange(count) % 10
  noise = {f'{what}_{split}': a for split in ('train', 'test')
           for what, a in (('x', pixels), ('y', labels))}  # fmt: skip
  np.savez(folder / 'noise.npz', **noise)
  sentences = {'data.name': 'sst2', 'data.path': str(folder), 'data.task': 'classify'}
  files = {'data.name': 'text', 'data.path': str(folder / 'documents')}
  return {
    'text, windows': ('tokens', 'softmax', {}),
    'packed documents': ('tokens', 'softmax', files | {'data.packing': True}),
    'mixture': ('tokens', 'softmax', {'data.mixture': (('sst2', 1.0, str(folder)),)}),
    'labelled text': ('tokens', 'softmax-bidirectional', sentences),
    'images, changed': (
      'images',
      'softmax-bidirectional',
      {
        'data.name': 'cifar10',
        'data.path': str(folder / 'noise.npz'),
        'data.task': 'classify',
        'data.augment': 'papers',
        'model.image': (32, 32, 3),
        'model.patch': 4,
        'model.context': 64,
        'train.batch': 64,
      },
    ),
  }


SECTIONS = {'loader': loader}
