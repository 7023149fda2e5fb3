"""An endless stream of batches, of which the number of the next step is the whole state."""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import grain
import numpy as np

from sgnjax.data.rows import Batch, Rows

# Of one example and a generator that depends on (seed, step, row) alone: the example, changed.
Augment = Callable[[Batch, np.random.Generator], Batch]
# Of some rows of a batch, the rows after them and a generator each: the rows, mixed with those.
Mix = Callable[[Batch, Batch, Sequence[np.random.Generator]], Batch]


def generator(*key: int) -> np.random.Generator:
  """Random numbers that these numbers alone decide."""
  return np.random.Generator(np.random.Philox(np.random.SeedSequence(key)))


@dataclass(frozen=True)
class Shuffled:
  """The batch of any step by its number: rows in an order that is shuffled anew each epoch.

  Row i of the global batch of step s is element s * batch + i of that order; this process reads
  `part` of the global batch. An epoch may end inside a batch.

  mix: row i with row i + 1 of the global batch (the last with row 0), which the shuffled order has
  put there; whoever reads row i reads the other one too.
  """

  rows: Rows
  seed: int
  batch: int
  part: range
  augment: Augment | None = None
  mix: Mix | None = None

  def __post_init__(self):
    # Grain seeds epoch e with seed + e: neighbouring seeds would share their epochs.
    seed = int(np.random.SeedSequence(self.seed).generate_state(1)[0])
    order = grain.MapDataset.range(len(self.rows)).shuffle(seed=seed).repeat()
    object.__setattr__(self, '_order', order)

  def __getitem__(self, step: int) -> Batch:
    if self.mix is None:
      return self._read(step, self.part)
    others = [(row + 1) % self.batch for row in self.part]
    needed = sorted({*self.part, *others})
    batch = self._read(step, needed)
    mine, theirs = (
      {key: value[np.searchsorted(needed, rows)] for key, value in batch.items()}
      for rows in (self.part, others)
    )
    return self.mix(mine, theirs, [generator(self.seed, step, row, 1) for row in self.part])

  def _read(self, step: int, rows: Sequence[int]) -> Batch:
    """These rows of the global batch of a step."""
    order, start = self._order, step * self.batch
    chosen = np.array([order[start + i] for i in rows])
    if self.augment is None:
      return self.rows.take(chosen)
    examples = zip(rows, self.rows.examples(chosen), strict=True)
    return self.rows.stack(
      [self.augment(e, generator(self.seed, step, row)) for row, e in examples]
    )


@dataclass(frozen=True)
class _From:
  """Steps from `first` on, as Grain reads them."""

  batches: Any
  first: int = 0

  def __len__(self) -> int:
    return sys.maxsize - self.first

  def __getitem__(self, number: int):
    return self.batches[self.first + number]


class Steps:
  """Iterates over batches by step, read ahead by threads or by worker processes.

  The state is the number of the next step, whatever the threads and workers are.
  """

  def __init__(self, batches: Any, *, threads: int, workers: int, prefetch: int):
    self._source = _From(batches)
    self._threads, self._workers, self._prefetch = threads, workers, prefetch
    self._iterator: Iterator | None = None
    self._next = 0

  def __iter__(self) -> 'Steps':
    return self

  def __next__(self) -> Any:
    if self._iterator is None:
      self._iterator = self._start()
    found = next(self._iterator)
    self._next += 1
    return found

  def _start(self) -> Iterator:
    threads = 0 if self._workers else self._threads
    ahead = max(self._prefetch, threads) if threads else 0
    steps = grain.MapDataset.source(replace(self._source, first=self._next)).to_iter_dataset(
      grain.ReadOptions(num_threads=threads, prefetch_buffer_size=ahead)
    )
    if self._workers:
      from absl import flags

      if not flags.FLAGS.is_parsed():  # Grain sends the flags to its workers
        flags.FLAGS.mark_as_parsed()
      each = max(1, self._prefetch // self._workers)
      steps = steps.mp_prefetch(
        grain.MultiprocessingOptions(num_workers=self._workers, per_worker_buffer_size=each)
      )
    return iter(steps)

  def get_state(self) -> dict[str, int]:
    return {'next_index': self._next}

  def set_state(self, state: dict[str, int]) -> None:
    self.close()
    self._next = state['next_index']

  def close(self) -> None:
    """Ends what reads ahead; a later `next` goes on where it was."""
    if self._iterator is not None and hasattr(self._iterator, 'close'):
      self._iterator.close()
    self._iterator = None


def part(rows: slice | None, batch: int) -> range:
  """The rows of the global batch that a slice means; None: all."""
  return range(*(slice(None) if rows is None else rows).indices(batch))
