"""Batches of tokens in an order that seed and step alone decide.

Targets are shifted here, never in a model: `targets[:, j]` is the token after `tokens[:, j]`. A
target of -1 is not scored. B: rows, L: context.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass

import grain
import numpy as np
from ml_collections import ConfigDict

from sgnjax.data import sources, tokenizers
from sgnjax.errors import UserError, check_choice

Batch = dict[str, np.ndarray]


@dataclass(frozen=True)
class Corpus:
  """Tokens (N,) int32 by split, with what their losses are compared by.

  bytes_per_token: UTF-8 bytes of a split's text over its tokens; nats per token over (ln 2 times
    this) are bits per byte.
  characters_per_token: the same for characters (an invalid byte counts as one).
  unigram_nats: cross-entropy, nats per token, of a split's tokens under the frequencies of the
    train split's tokens with one added to each count. A model that learnt anything is below it.
  source: a phrase that says where the text came from.
  """

  splits: dict[str, np.ndarray]
  bytes_per_token: dict[str, float]
  characters_per_token: dict[str, float]
  unigram_nats: dict[str, float]
  tokenizer: tokenizers.Tokenizer
  source: str


def load(config: ConfigDict) -> Corpus:
  """Reads and tokenizes the text that `config.data` names.

  Raises UserError for every wrong `data` key, and for a split shorter than context + 1 tokens.
  """
  tokenizers.check_kind(config.data.tokenizer)
  texts, origin = sources.load_text(config)
  whole = texts['train'][:0].join(texts.values())
  tokenizer = tokenizers.make(config.data.tokenizer, whole)
  splits = {split: tokenizer.encode(text) for split, text in texts.items()}
  least = config.model.context + 1
  if min(map(len, splits.values())) < least:
    lengths = ', '.join(f'{split} {len(ids):,}' for split, ids in splits.items())
    raise UserError(
      f'{origin} is too short: tokens {lengths}, and model.context={config.model.context} needs '
      f'{least:,} in each; lower model.context, give more text, or change data.validation'
    )
  counts = np.bincount(splits['train'], minlength=tokenizer.vocab_size) + 1
  nats = np.log(counts.sum()) - np.log(counts)
  return Corpus(
    splits=splits,
    bytes_per_token={s: len(_bytes(t)) / len(splits[s]) for s, t in texts.items()},
    characters_per_token={s: len(_characters(t)) / len(splits[s]) for s, t in texts.items()},
    unigram_nats={s: float(nats[ids].mean()) for s, ids in splits.items()},
    tokenizer=tokenizer,
    source=origin,
  )


def _bytes(text: sources.Text) -> bytes:
  return text.encode() if isinstance(text, str) else text


def _characters(text: sources.Text) -> str:
  return text if isinstance(text, str) else text.decode(errors='replace')


def train_iterator(
  config: ConfigDict, corpus: Corpus, *, rows: slice | None = None
) -> grain.DatasetIterator:
  """Endless batches {'tokens', 'targets'} (b, L) int32: these rows of the global ones (None: all).

  Windows start at the multiples of `data.stride` in the train split and are shuffled anew each
  epoch. Row i of the global batch of step s is element s * train.batch + i of that order, whatever
  rows are read here. An epoch may end inside a batch.

  The iterator's state (`get_state`, `set_state`) is the number of the next step; `data.threads`
  threads of this process read ahead (0: none). Raises UserError for a stride, batch or thread count
  out of range.
  """
  context, batch = config.model.context, _at_least(1, config, 'train.batch')
  stride, threads = _at_least(1, config, 'data.stride'), _at_least(0, config, 'data.threads')
  first, last, _ = (rows or slice(None)).indices(batch)
  tokens = corpus.splits['train']
  windows = (len(tokens) - context - 1) // stride + 1
  # Grain seeds epoch e with seed + e: neighbouring seeds would share their epochs.
  seed = int(np.random.SeedSequence(_at_least(0, config, 'seed')).generate_state(1)[0])
  order = grain.MapDataset.range(windows).shuffle(seed=seed).repeat()
  steps = _Steps(tokens, order, context, stride, batch, first, last - first)
  options = grain.ReadOptions(num_threads=threads, prefetch_buffer_size=4 * threads)
  return iter(grain.MapDataset.source(steps).to_iter_dataset(options))


@dataclass(frozen=True)
class _Steps:
  """This process's batch of any step, by the step's number."""

  tokens: np.ndarray
  order: grain.MapDataset
  context: int
  stride: int
  batch: int
  first: int
  rows: int

  def __len__(self) -> int:
    return sys.maxsize

  def __getitem__(self, step: int) -> Batch:
    start = step * self.batch + self.first
    windows = np.array([self.order[start + i] for i in range(self.rows)])
    return _shifted(self.tokens, windows * self.stride, self.context)


def random_batches(
  config: ConfigDict, corpus: Corpus, split: str, count: int, seed: int
) -> Iterator[Batch]:
  """The papers' evaluation: `count` batches of train.batch windows at uniformly random places.

  Yields {'tokens', 'targets'} (B, L) int32, every target scored, the same for the same seed. Raises
  UserError for an unknown split.
  """
  check_choice('split', split, corpus.splits)
  tokens, context = corpus.splits[split], config.model.context
  batch = _at_least(1, config, 'train.batch')
  generator = np.random.default_rng(seed)
  starts = generator.integers(0, len(tokens) - context, (count, batch))
  return (_shifted(tokens, row, context) for row in starts)


def eval_windows(config: ConfigDict, corpus: Corpus, split: str) -> 'EvalWindows':
  """The whole split in order, each token but the first scored exactly once.

  Windows advance by `eval.stride` tokens (None: half the context), so a scored token has at least
  context - stride tokens before it, but in the first window. Raises UserError for an unknown split
  or a stride or batch out of range.
  """
  check_choice('eval.split', split, corpus.splits)
  context = config.model.context
  stride = max(1, context // 2)
  if config.eval.stride is not None:
    stride = _at_least(1, config, 'eval.stride')
  if stride > context:
    raise UserError(
      f'eval.stride={stride} would skip tokens: expected 1 to model.context={context}'
    )
  return EvalWindows(corpus.splits[split], context, stride, _at_least(1, config, 'eval.batch'))


class EvalWindows:
  """Batches {'tokens', 'targets'} (eval.batch, L) int32 that cover a split in order.

  A target that an earlier window scored is -1. The last window is shifted back to be full; the last
  batch repeats its last row with nothing scored, so that all shapes are the same.
  """

  def __init__(self, tokens: np.ndarray, context: int, stride: int, batch: int):
    self._tokens, self._context, self._batch = tokens, context, batch
    last = len(tokens) - 1 - context
    self._starts = np.minimum(np.arange(-(-last // stride) + 1) * stride, last)
    # Targets of a window that an earlier one scored: up to where that one ended.
    self._scored = context - np.diff(self._starts, prepend=-context)

  def __len__(self) -> int:
    return -(-len(self._starts) // self._batch)

  def __iter__(self) -> Iterator[Batch]:
    for first in range(0, len(self._starts), self._batch):
      rows = np.minimum(np.arange(first, first + self._batch), len(self._starts) - 1)
      out = _shifted(self._tokens, self._starts[rows], self._context)
      scored = self._scored[rows]
      scored[len(self._starts) - first :] = self._context
      old_BL = np.arange(self._context)[None, :] < scored[:, None]
      yield {'tokens': out['tokens'], 'targets': np.where(old_BL, np.int32(-1), out['targets'])}


def _shifted(tokens: np.ndarray, starts: np.ndarray, context: int) -> Batch:
  """The windows (B, L) at `starts` (B,) and their targets, one token later."""
  window = tokens[starts[:, None] + np.arange(context + 1)[None, :]]
  return {
    'tokens': np.ascontiguousarray(window[:, :-1]),
    'targets': np.ascontiguousarray(window[:, 1:]),
  }


def _at_least(least: int, config: ConfigDict, key: str) -> int:
  value = config
  for part in key.split('.'):
    value = value[part]
  if value < least:
    raise UserError(f'{key}={value}: expected at least {least}')
  return value
