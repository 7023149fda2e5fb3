"""What a row of a batch is: any row of a split by its number. B: rows, L: context.

A target of -1 is not scored, and neither is a label of -1 (a class) or NaN (a number).
"""

import abc

import numpy as np

Batch = dict[str, np.ndarray]


class Rows(abc.ABC):
  """Rows of one split, `len` of them; `take` gives a batch of any of them.

  `examples` gives them one by one, before what changes an example; `stack` makes a batch of those.
  """

  @abc.abstractmethod
  def __len__(self) -> int: ...

  @abc.abstractmethod
  def take(self, rows: np.ndarray) -> Batch: ...

  def examples(self, rows: np.ndarray) -> list[Batch]:
    batch = self.take(rows)
    return [{key: value[i] for key, value in batch.items()} for i in range(len(rows))]

  def stack(self, examples: list[Batch]) -> Batch:
    return {key: np.stack([example[key] for example in examples]) for key in examples[0]}


class Windows(Rows):
  """Windows {'tokens', 'targets'} (B, L) int32 that start at the multiples of `stride`.

  Targets are one token later: `targets[:, j]` is the token after `tokens[:, j]`.
  """

  def __init__(self, tokens: np.ndarray, context: int, stride: int):
    self._tokens, self._context, self._stride = tokens, context, stride

  def __len__(self) -> int:
    return (len(self._tokens) - self._context - 1) // self._stride + 1

  def take(self, rows: np.ndarray) -> Batch:
    return windows(self._tokens, rows * self._stride, self._context)


class Sliding(Rows):
  """Windows that cover a text in order: each token but the first is scored exactly once.

  They advance by `stride` tokens, the last is shifted back to be full, and a target that an earlier
  window scores is -1.
  """

  def __init__(self, tokens: np.ndarray, context: int, stride: int):
    self._tokens, self._context = tokens, context
    last = len(tokens) - 1 - context
    self._starts = np.minimum(np.arange(-(-last // stride) + 1) * stride, last)
    # Targets of a window that an earlier one scores: up to where that one ends.
    self._scored = context - np.diff(self._starts, prepend=-context)

  def __len__(self) -> int:
    return len(self._starts)

  def take(self, rows: np.ndarray) -> Batch:
    batch = windows(self._tokens, self._starts[rows], self._context)
    old_BL = np.arange(self._context)[None, :] < self._scored[rows][:, None]
    return batch | {'targets': np.where(old_BL, np.int32(-1), batch['targets'])}


class SideBySide(Rows):
  """Windows {'tokens' (B, L) int32, 'mask' (B, L) bool} that hold each token of a text once.

  The last is shifted back to be full; mask: false at what an earlier window holds.
  """

  def __init__(self, tokens: np.ndarray, context: int):
    self._tokens, self._place = tokens, np.arange(context)
    self._starts = np.arange(0, len(tokens), context)

  def __len__(self) -> int:
    return len(self._starts)

  def take(self, rows: np.ndarray) -> Batch:
    first_B1 = self._starts[rows][:, None]
    at_BL = np.minimum(first_B1, len(self._tokens) - len(self._place)) + self._place[None, :]
    return {'tokens': self._tokens[at_BL].astype(np.int32), 'mask': at_BL >= first_B1}


def windows(tokens: np.ndarray, starts: np.ndarray, context: int) -> Batch:
  """The windows (B, L) at `starts` (B,) and their targets, one token later."""
  taken = tokens[starts[:, None] + np.arange(context + 1)[None, :]].astype(np.int32)
  return {
    'tokens': np.ascontiguousarray(taken[:, :-1]),
    'targets': np.ascontiguousarray(taken[:, 1:]),
  }


class Labelled(Rows):
  """A document a row, padded or cut to the context.

  {'tokens' (B, L) int32, 'mask' (B, L) bool, true at tokens, 'label' (B,) int32 or float32}.
  """

  def __init__(self, tokens: np.ndarray, ends: np.ndarray, labels: np.ndarray, context: int):
    self._tokens, self._ends, self._labels, self._context = tokens, ends, labels, context

  def __len__(self) -> int:
    return len(self._ends)

  def take(self, rows: np.ndarray) -> Batch:
    starts = np.where(rows > 0, self._ends[rows - 1], 0)
    lengths = np.minimum(self._ends[rows] - starts, self._context)
    place = np.arange(self._context)[None, :]
    mask_BL = place < lengths[:, None]
    at_BL = np.where(mask_BL, starts[:, None] + place, 0)
    tokens_BL = np.where(mask_BL, self._tokens[at_BL], 0).astype(np.int32)
    return {'tokens': tokens_BL, 'mask': mask_BL, 'label': self._labels[rows]}


class Packed(Rows):
  """Documents packed into rows: none is cut that fits into a row, none sees another.

  {'tokens', 'targets', 'segments', 'positions' (B, L) int32, 'mask' (B, L) bool}. segments: 1, 2,
  ... along a row, 0 where there is padding. positions: from 0 in each segment. The last token of a
  document is a target alone. A document longer than a row goes on in another one, as a segment of
  its own without what was before it.
  """

  def __init__(self, tokens: np.ndarray, ends: np.ndarray, context: int):
    self._tokens, self._context = tokens, context
    starts = np.concatenate([[0], ends[:-1]]).astype(np.int64)
    self._start, self._length, self._first = pack(starts, np.asarray(ends) - starts - 1, context)

  def __len__(self) -> int:
    return len(self._first) - 1

  def take(self, rows: np.ndarray) -> Batch:
    shape = (len(rows), self._context)
    batch = {k: np.zeros(shape, np.int32) for k in ('tokens', 'segments', 'positions')}
    batch['targets'] = np.full(shape, -1, np.int32)
    for i, row in enumerate(rows):
      column = 0
      for segment, piece in enumerate(range(self._first[row], self._first[row + 1]), 1):
        start, length = self._start[piece], self._length[piece]
        text = self._tokens[start : start + length + 1]
        here = slice(column, column + length)
        batch['tokens'][i, here], batch['targets'][i, here] = text[:-1], text[1:]
        batch['segments'][i, here] = segment
        batch['positions'][i, here] = np.arange(length)
        column += length
    return batch | {'mask': batch['segments'] > 0}


def pack(
  starts: np.ndarray, lengths: np.ndarray, context: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Pieces of documents sorted into rows of `context`: best fit, the longest first.

  Gives start and length (P,) of each piece, row by row, and the first piece of each row (R + 1,).
  Empty documents are left out. Deterministic.
  """
  whole = np.maximum(lengths, 0) // context
  document = np.repeat(np.arange(len(lengths)), whole)
  number = np.arange(len(document)) - np.repeat(np.cumsum(whole) - whole, whole)
  rest = np.maximum(lengths, 0) % context
  left = np.flatnonzero(rest)
  left = left[np.argsort(-rest[left], kind='stable')]
  start = np.concatenate([starts[document] + number * context, (starts + whole * context)[left]])
  length = np.concatenate([np.full(len(document), context), rest[left]])
  row = np.arange(len(start))
  open_rows: list[list[int]] = [[] for _ in range(context + 1)]  # by the space that they have left
  spaces = 0  # bit s: there is an open row of space s
  made = len(document)
  for piece, size in enumerate(rest[left].tolist(), len(document)):
    fitting = spaces >> size
    if fitting:
      space = size + (fitting & -fitting).bit_length() - 1
      chosen = open_rows[space].pop()
      if not open_rows[space]:
        spaces &= ~(1 << space)
    else:
      space, chosen = context, made
      made += 1
    row[piece] = chosen
    if space > size:
      open_rows[space - size].append(chosen)
      spaces |= 1 << (space - size)
  order = np.argsort(row, kind='stable')
  first = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=made))]).astype(np.int64)
  return start[order].astype(np.int64), length[order].astype(np.int64), first


def unscored(batch: Batch, rows: slice) -> Batch:
  """The batch, these rows of it not scored."""
  for key in ('targets', 'label'):
    if key in batch:
      batch[key] = batch[key].copy()
      batch[key][rows] = np.nan if batch[key].dtype.kind == 'f' else -1
  return batch


class InOrder:
  """All rows once, in batches of one shape: the last repeats its last row, not scored."""

  def __init__(self, rows: Rows, batch: int):
    self._rows, self._batch = rows, batch

  def __len__(self) -> int:
    return -(-len(self._rows) // self._batch)

  def __iter__(self):
    for first in range(0, len(self._rows), self._batch):
      rows = np.minimum(np.arange(first, first + self._batch), len(self._rows) - 1)
      yield unscored(self._rows.take(rows), slice(len(self._rows) - first, None))
