"""Masked language modelling, and padding as a token: ids behind a tokenizer's own.

`vocab` stands for a masked token, `vocab + 1` for padding that the layers read; `models.Encoder`
has rows for both.
"""

from dataclasses import dataclass

import numpy as np

from sgnjax.data.rows import Batch, Rows
from sgnjax.data.steps import generator

RANDOM, KEPT = 0.1, 0.1  # of the tokens asked for; the rest is masked


@dataclass(frozen=True)
class Masking:
  """Asks for `rate` of the real tokens of an example (an `Augment`).

  {'tokens', 'targets' (L,), further keys as they are}: targets are -1 where nothing is asked. Of
  the tokens asked for, 80 % are masked, 10 % are any of the vocabulary, 10 % stay.
  Source: BERT (Devlin et al. 2019), section 3.1, with independent draws.
  """

  vocab: int
  rate: float

  def __call__(self, example: Batch, generator: np.random.Generator) -> Batch:
    tokens_L = example['tokens']
    asked_L = generator.random(len(tokens_L)) < self.rate
    what_L = generator.random(len(tokens_L))
    other_L = generator.integers(0, self.vocab, len(tokens_L), np.int32)
    if 'mask' in example:
      asked_L &= example['mask']
    shown_L = np.where(what_L < RANDOM, other_L, np.int32(self.vocab))
    shown_L = np.where(asked_L & (what_L < 1 - KEPT), shown_L, tokens_L)
    return example | {'tokens': shown_L, 'targets': np.where(asked_L, tokens_L, np.int32(-1))}


class FixedMasks(Rows):
  """Rows of a split for evaluation: what is asked of a row depends on its number alone.

  keep_mask: whether the rows' mask tells padding, and not just what is never asked.
  """

  def __init__(self, rows: Rows, masking: Masking, keep_mask: bool):
    self._rows, self._masking, self._keep_mask = rows, masking, keep_mask

  def __len__(self) -> int:
    return len(self._rows)

  def take(self, rows: np.ndarray) -> Batch:
    examples = zip(rows, self._rows.examples(rows), strict=True)
    batch = self._rows.stack([self._masking(e, generator(int(row))) for row, e in examples])
    if not self._keep_mask:
      del batch['mask']
    return batch


class ReadPadding(Rows):
  """Rows without their mask: padding is the token `vocab + 1`, which layers read as any other."""

  def __init__(self, rows: Rows, vocab: int):
    self._rows, self._padding = rows, np.int32(vocab + 1)

  def __len__(self) -> int:
    return len(self._rows)

  def take(self, rows: np.ndarray) -> Batch:
    batch = self._rows.take(rows)
    mask_BL = batch.pop('mask')
    return batch | {'tokens': np.where(mask_BL, batch['tokens'], self._padding)}
