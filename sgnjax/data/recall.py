"""Recall tasks: sequences in which some tokens can be known from what stood far before alone.

A row is one example of the context's length. Symbols are drawn from a seed, so that a set is the
same for everybody; only the tokens that a task asks for are scored.

`recall/copying`: `DATA` different symbols scattered in filler, then an arrow after which they are
asked for in order, each answer standing before the next. Source: selective copying, Gu and Dao,
"Mamba" (2023), section 3.1 and appendix E.1, whose symbols may repeat and whose answers are asked
all at once: the earlier answers are shown here, as a language model has them.

`recall/induction`: different symbols in random order, again and again; from the second symbol of
the second round on each is asked for. Rounds are a quarter to a half of a row long and differ from
row to row, so that no fixed distance answers. Source: repeated random tokens, Olsson et al.,
"In-context Learning and Induction Heads" (2022).

`recall/mqar`: pairs of a key and a value, from two to a sixteenth of the row's length; then keys of
these at random, each before its value, which is asked for. Source: multi-query associative recall,
Arora et al., "Zoology" (2023), section 3.2; there rows have one number of pairs, a key is asked for
once, with random tokens between, and has a vocabulary of 8,192.
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
ORDINARY = 64  # of induction
KEYS = 16  # of mqar, and as many values
FILLER, ARROW = '.', '>'


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
  """Words: symbols."""
  most = min(ORDINARY, length // 2)
  round_N = rng.integers(max(2, length // 4), most + 1, count)
  symbols_NP = _distinct(rng, count, ORDINARY, most)
  place_T = np.arange(length + 1)
  ids_NT = np.take_along_axis(symbols_NP, place_T[None, :] % round_N[:, None], axis=1)
  return Made(ids_NT, place_T[None, :-1] >= round_N[:, None])


def _mqar(rng: np.random.Generator, count: int, length: int) -> Made:
  """Words: keys, values."""
  most = min(KEYS, length // 16)
  pairs_N1 = rng.integers(2, most + 1, (count, 1))
  keys_NP = _distinct(rng, count, KEYS, most)
  values_NP = KEYS + rng.integers(0, KEYS, (count, most))
  # Each once in order, then at random; a row of odd length ends with a value.
  slot_S = np.arange((length + 2) // 2)
  again_NS = rng.integers(0, pairs_N1, (count, len(slot_S)))
  which_NS = np.where(slot_S < pairs_N1, slot_S, again_NS)
  both_NS2 = np.stack([np.take_along_axis(a, which_NS, axis=1) for a in (keys_NP, values_NP)], -1)
  ids_NT = both_NS2.reshape(count, -1)[:, : length + 1]
  place_L = np.arange(length)
  return Made(ids_NT, (place_L >= 2 * pairs_N1) & (place_L % 2 == 0))


def _distinct(rng: np.random.Generator, count: int, among: int, size: int) -> np.ndarray:
  """`size` different numbers below `among` in random order, for each of `count` rows."""
  return np.argsort(rng.random((count, among)), axis=1)[:, :size]


def _words(kind: str, count: int) -> tuple[str, ...]:
  return tuple(f'{kind}{i}' for i in range(count))


SETS: dict[str, Task] = {
  'recall/copying': Task((FILLER, ARROW, *_words('s', SYMBOLS)), _copying, 2 * DATA + 1, SYMBOLS),
  'recall/induction': Task(_words('s', ORDINARY), _induction, 8, ORDINARY),
  'recall/mqar': Task((*_words('k', KEYS), *_words('v', KEYS)), _mqar, 32, KEYS),
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
