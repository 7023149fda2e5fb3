"""Recall tasks: sequences in which some tokens can be known from what stood far before alone.

A row is one example of the context's length. Symbols are drawn from a seed, so that a set is the
same for everybody; only the tokens that a task asks for are scored.

`recall/copying`: `DATA` different symbols scattered in filler, then an arrow after which they are
asked for in order, each answer standing before the next. Source: selective copying, Gu and Dao,
"Mamba" (2023), section 3.1 and appendix E.1, whose symbols may repeat and whose answers are asked
all at once: the earlier answers are shown here, as a language model has them.

`recall/induction`: random symbols, among them once a trigger; at the end the trigger stands again,
and the symbol that came after it is asked for. Source: induction heads, ibid.

`recall/mqar`: pairs of a key and a value, then each key once more among filler, at distances from a
power law, where its value is asked for. Source: multi-query associative recall, Arora et al.,
"Zoology" (2023), section 3.2 and appendix E; keys are 16 here (their vocabulary is 8,192), the
exponent is that of their code, and filler takes the place of random tokens.
"""

import hashlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from ml_collections import ConfigDict

from sgnjax.data.rows import Batch, Rows
from sgnjax.data.tokenizers import WordTokenizer
from sgnjax.errors import UserError, check_choice

SIZES = {'train': 50_000, 'validation': 1_000, 'test': 1_000}
DATA, SYMBOLS = 8, 32  # of copying
ORDINARY = 16  # of induction
KEYS, POWER = 16, 0.01  # of mqar: keys, as many values, and the law's exponent plus 1
FILLER, ARROW, TRIGGER = '.', '>', '!'


class Made(NamedTuple):
  """Examples (N, L + 1) as numbers of words, and whether the token after each is asked (N, L)."""

  ids_NT: np.ndarray
  asked_NL: np.ndarray


class Task(NamedTuple):
  """words: behind the tokenizer's own two. shortest: context. answers: how many are possible."""

  words: tuple[str, ...]
  make: Callable[[np.random.Generator, int, int], Made]
  shortest: int
  answers: int


def _copying(rng: np.random.Generator, count: int, length: int) -> Made:
  """Words: filler, arrow, symbols."""
  symbols_ND = 2 + _distinct(rng, count, SYMBOLS, DATA)
  body = length - DATA
  ids_NT = np.zeros((count, length + 1), np.int64)
  places_ND = np.sort(_distinct(rng, count, body, DATA), axis=1)
  np.put_along_axis(ids_NT, places_ND, symbols_ND, axis=1)
  ids_NT[:, body] = 1
  ids_NT[:, body + 1 :] = symbols_ND
  return Made(ids_NT, np.broadcast_to(np.arange(length) >= body, (count, length)))


def _induction(rng: np.random.Generator, count: int, length: int) -> Made:
  """Words: trigger, ordinary symbols."""
  ids_NT = 1 + rng.integers(0, ORDINARY, (count, length + 1))
  # The first trigger stands before the last one's place, so that a symbol comes between them.
  at_N = rng.integers(0, length - 2, count)
  row_N = np.arange(count)
  ids_NT[row_N, at_N] = ids_NT[:, -2] = 0
  ids_NT[:, -1] = ids_NT[row_N, at_N + 1]
  return Made(ids_NT, np.broadcast_to(np.arange(length) == length - 1, (count, length)))


def _mqar(rng: np.random.Generator, count: int, length: int) -> Made:
  """Words: filler, keys, values."""
  pairs = min(KEYS, length // 8)
  keys_NP = 1 + _distinct(rng, count, KEYS, pairs)
  values_NP = 1 + KEYS + rng.integers(0, KEYS, (count, pairs))
  ids_NT = np.zeros((count, length + 1), np.int64)
  ids_NT[:, 0 : 2 * pairs : 2], ids_NT[:, 1 : 2 * pairs : 2] = keys_NP, values_NP
  slots = (length + 1 - 2 * pairs) // 2
  # The first of the slots in the order of exponential races are drawn without replacement.
  weight_S = np.arange(1.0, slots + 1) ** (POWER - 1)
  slot_NP = np.argsort(rng.exponential(size=(count, slots)) / weight_S, axis=1)[:, :pairs]
  at_NP = 2 * pairs + 2 * slot_NP
  np.put_along_axis(ids_NT, at_NP, keys_NP, axis=1)
  np.put_along_axis(ids_NT, at_NP + 1, values_NP, axis=1)
  asked_NL = np.zeros((count, length), bool)
  np.put_along_axis(asked_NL, at_NP, True, axis=1)
  return Made(ids_NT, asked_NL)


def _distinct(rng: np.random.Generator, count: int, among: int, size: int) -> np.ndarray:
  """`size` different numbers below `among` in random order, for each of `count` rows."""
  return np.argsort(rng.random((count, among)), axis=1)[:, :size]


def _words(kind: str, count: int) -> tuple[str, ...]:
  return tuple(f'{kind}{i}' for i in range(count))


SETS: dict[str, Task] = {
  'recall/copying': Task((FILLER, ARROW, *_words('s', SYMBOLS)), _copying, 2 * DATA + 1, SYMBOLS),
  'recall/induction': Task((TRIGGER, *_words('s', ORDINARY)), _induction, 4, ORDINARY),
  'recall/mqar': Task((FILLER, *_words('k', KEYS), *_words('v', KEYS)), _mqar, 16, KEYS),
}


class Asked(Rows):
  """Examples {'tokens', 'targets'} (B, L) int32; a target is -1 where nothing is asked."""

  def __init__(self, tokens: np.ndarray, targets: np.ndarray, context: int):
    """Both (N * L,), row after row."""
    self._tokens_NL = tokens.reshape(-1, context)
    self._targets_NL = targets.reshape(-1, context)

  def __len__(self) -> int:
    return len(self._tokens_NL)

  def take(self, rows: np.ndarray) -> Batch:
    return {
      'tokens': self._tokens_NL[rows].astype(np.int32),
      'targets': self._targets_NL[rows].astype(np.int32),
    }


class Found(NamedTuple):
  """A set: tokens and targets (N * L,) int16 of each split, and what they are compared by."""

  tokens: dict[str, np.ndarray]
  targets: dict[str, np.ndarray]
  unigram_nats: dict[str, float]
  tokenizer: WordTokenizer
  source: str
  identity: str


def check(config: ConfigDict) -> None:
  """Raises UserError where set and task do not belong together."""
  name, task = config.data.name, config.data.task
  if task == 'recall':
    check_choice('with data.task=recall, data.name', name, SETS)
  elif name in SETS:
    raise UserError(f'data.name={name} asks for some tokens alone: set data.task=recall')


def load(config: ConfigDict, sizes: dict[str, int] | None = None) -> Found:
  """The examples of `config.data.name` at the config's context, always the same ones.

  sizes: examples of each split (None: `SIZES`). Raises UserError for a context that is too short,
  and for keys that nothing would read.
  """
  name, length = config.data.name, config.model.context
  task = SETS[name]
  if length < task.shortest:
    raise UserError(f'{name} needs model.context={task.shortest} or more, got {length}')
  for key in ('path', 'slice'):
    if config.data[key] is not None:
      raise UserError(f'data.name={name} is made from a seed and reads no data.{key}: unset it')
  if config.data.packing:
    raise UserError(f'data.packing is of documents, and {name} has rows of one length')
  tokenizer = WordTokenizer([WordTokenizer.UNKNOWN, WordTokenizer.END, *task.words])
  own = tokenizer.vocab_size - len(task.words)
  tokens, targets = {}, {}
  for number, (split, count) in enumerate((sizes or SIZES).items()):
    made = task.make(np.random.default_rng([number, length]), count, length)
    ids_NT = (made.ids_NT + own).astype(np.int16)
    tokens[split] = ids_NT[:, :-1].reshape(-1)
    targets[split] = np.where(made.asked_NL, ids_NT[:, 1:], np.int16(-1)).reshape(-1)
  counts = 1 + np.bincount(targets['train'][targets['train'] >= 0], minlength=tokenizer.vocab_size)
  nats = np.log(counts.sum()) - np.log(counts)
  return Found(
    tokens,
    targets,
    {split: float(nats[found[found >= 0]].mean()) for split, found in targets.items()},
    tokenizer,
    f'{name} at {length} tokens',
    hashlib.sha256(
      b''.join(t.tobytes() for t in (*tokens.values(), *targets.values()))
    ).hexdigest(),
  )
