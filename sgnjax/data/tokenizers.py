"""Tokenizers of characters, bytes and words, and the choice among all; saved as JSON with a
checkpoint, which is then usable on its own."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Protocol

import numpy as np
from ml_collections import ConfigDict

from sgnjax.errors import UserError, check_choice


class Tokenizer(Protocol):
  """What every tokenizer offers: text to int32 ids and back, the vocabulary's size, a JSON form.

  end: the token that is set after a document among others; None where there is none.
  """

  kind: str
  vocab_size: int
  end: int | None

  def encode(self, text: str) -> np.ndarray: ...

  def encode_batch(self, texts: list) -> list[np.ndarray]: ...

  def decode(self, ids) -> str: ...

  def to_json(self) -> dict: ...


class CharTokenizer:
  """One token per Unicode character; ids follow the sorted vocabulary."""

  kind = 'char'
  end = None

  def __init__(self, characters: str):
    """`characters`: any text; its distinct characters are the vocabulary."""
    self.characters = ''.join(sorted(set(characters)))
    self.vocab_size = len(self.characters)
    self._codes = _codepoints(self.characters)
    # Code point -> id; -1 is no character of the vocabulary, as is anything above the table.
    self._ids = np.full(int(self._codes.max(initial=0)) + 2, -1, np.int32)
    self._ids[self._codes] = np.arange(self.vocab_size, dtype=np.int32)

  def encode(self, text: str) -> np.ndarray:
    """Ids (N,) int32 of N characters. Raises UserError that names the first unknown character."""
    codes = _codepoints(text)
    ids = self._ids[np.minimum(codes, len(self._ids) - 1)]
    unknown = np.flatnonzero(ids < 0)
    if unknown.size:
      at = int(unknown[0])
      raise UserError(
        f'character {text[at]!r} (U+{codes[at]:04X}) at position {at:,} is not among the '
        f'{self.vocab_size} characters of this vocabulary; leave it out, or train with '
        'data.tokenizer=byte, which knows every text'
      )
    return ids

  def encode_batch(self, texts: list) -> list[np.ndarray]:
    return [self.encode(text) for text in texts]

  def decode(self, ids) -> str:
    """The text of ids (N,). Raises IndexError for an id outside the vocabulary."""
    ids = np.asarray(ids, np.int64)
    if ids.min(initial=0) < 0:
      raise IndexError(f'id {ids.min()} is not a token')  # NumPy would count from the end
    return self._codes[ids].tobytes().decode('utf-32-le', errors='surrogatepass')

  def to_json(self) -> dict:
    return {'kind': self.kind, 'characters': self.characters}

  @classmethod
  def from_json(cls, tree: dict) -> 'CharTokenizer':
    return cls(tree['characters'])


class ByteTokenizer:
  """One token per byte, of UTF-8 where the text is a str; the vocabulary is the 256 bytes."""

  kind = 'byte'
  vocab_size = 256
  end = None

  def encode(self, text: str | bytes) -> np.ndarray:
    """Ids (N,) int32 of N bytes."""
    raw = text.encode('utf-8', errors='surrogatepass') if isinstance(text, str) else text
    return np.frombuffer(raw, np.uint8).astype(np.int32)

  def encode_batch(self, texts: list) -> list[np.ndarray]:
    return [self.encode(text) for text in texts]

  def decode(self, ids) -> str:
    """The text of ids (N,); what is not UTF-8 becomes U+FFFD. Raises ValueError for a wrong id."""
    return bytes(np.asarray(ids).tolist()).decode('utf-8', errors='replace')

  def to_json(self) -> dict:
    return {'kind': self.kind}

  @classmethod
  def from_json(cls, tree: dict) -> 'ByteTokenizer':
    return cls()


class WordTokenizer:
  """One token per word between white space, and `<eos>` for each end of line, as in PTB.

  Words outside the vocabulary are `<unk>`. Decoding sets a space before each token, as the files of
  PTB and WikiText are written, so that these come back as they were.
  """

  kind = 'word'
  UNKNOWN, END = '<unk>', '<eos>'

  def __init__(self, words: Iterable[str]):
    """`words`: the vocabulary, in the order of the ids; holds `<unk>` and `<eos>`."""
    self.words = list(words)
    self.vocab_size = len(self.words)
    self._ids = {word: i for i, word in enumerate(self.words)}
    self._unknown, self.end = self._ids[self.UNKNOWN], self._ids[self.END]

  @classmethod
  def of(cls, texts: Iterable[str], most: int | None = None) -> 'WordTokenizer':
    """The `most` (None: all) most frequent words of the texts; where equal, the first by name."""
    counts = Counter()
    for text in texts:
      counts.update(cls._split(text))
    words = [w for w in counts if w not in (cls.UNKNOWN, cls.END)]
    words.sort(key=lambda word: (-counts[word], word))
    return cls([cls.UNKNOWN, cls.END, *(words if most is None else words[: most - 2])])

  @classmethod
  def _split(cls, text: str) -> list[str]:
    return text.replace('\n', f' {cls.END} ').split()

  def encode(self, text: str) -> np.ndarray:
    """Ids (N,) int32 of N words and ends of line."""
    words = self._split(text)
    get, unknown = self._ids.get, self._unknown
    return np.fromiter((get(word, unknown) for word in words), np.int32, len(words))

  def encode_batch(self, texts: list) -> list[np.ndarray]:
    return [self.encode(text) for text in texts]

  def decode(self, ids) -> str:
    """The text of ids (N,). Raises IndexError for an id outside the vocabulary."""
    ids = np.asarray(ids, np.int64)
    if ids.min(initial=0) < 0:
      raise IndexError(f'id {ids.min()} is not a token')
    return ''.join(' \n' if i == self.end else f' {self.words[i]}' for i in ids.tolist())

  def to_json(self) -> dict:
    return {'kind': self.kind, 'words': self.words}

  @classmethod
  def from_json(cls, tree: dict) -> 'WordTokenizer':
    return cls(tree['words'])


def _bpe(tree: dict) -> Tokenizer:
  from sgnjax.data.subwords import BPETokenizer

  return BPETokenizer.from_json(tree)


def _unigram(tree: dict) -> Tokenizer:
  from sgnjax.data.subwords import UnigramTokenizer

  return UnigramTokenizer.from_json(tree)


# Kind -> the tokenizer of a JSON tree. Those of subwords load the library that does their work.
KINDS: dict[str, Callable[[dict], Tokenizer]] = {
  'char': CharTokenizer.from_json,
  'byte': ByteTokenizer.from_json,
  'word': WordTokenizer.from_json,
  'gpt2': _bpe,
  'bpe': _bpe,
  'unigram': _unigram,
}


class NoTokens:
  """In a tokenizer's place where the data are no text."""

  kind, vocab_size = 'none', 0

  def to_json(self) -> dict:
    return {'kind': self.kind}


def check_kind(kind: str) -> None:
  """Raises UserError unless there is a tokenizer of this kind."""
  check_choice('data.tokenizer', kind, KINDS)


def make(kind: str, text: str | bytes) -> Tokenizer:
  """The char, byte or word tokenizer of a text. Raises UserError for another kind."""
  check_choice('data.tokenizer', kind, ('char', 'byte', 'word'))
  if kind == 'word':
    return WordTokenizer.of([text])
  return CharTokenizer(text) if kind == 'char' else ByteTokenizer()


def for_texts(
  config: ConfigDict, training: Callable[[], Iterable], every: Callable[[], Iterable]
) -> Tokenizer:
  """The tokenizer that `config.data` names, for the texts of the train split and of all splits.

  A file at `data.tokenizer_path` is taken as it is. Else characters are those of all splits, as the
  papers take them, so that validation holds no unknown one; words are those of the train split, the
  `data.vocab_size` most frequent. Raises UserError for an unknown kind and for a missing file.
  """
  data = config.data
  check_kind(data.tokenizer)
  given = data.tokenizer_path
  if data.tokenizer == 'gpt2' and (given is None or Path(given).expanduser().is_dir()):
    from sgnjax.data.subwords import gpt2

    return gpt2(given)
  if given is not None:
    return read(given, data.tokenizer)
  if data.tokenizer == 'char':
    return CharTokenizer(''.join(set().union(*map(set, every()))))
  if data.tokenizer == 'byte':
    return ByteTokenizer()
  if data.tokenizer == 'word':
    if data.vocab_size is not None and data.vocab_size < 3:
      raise UserError(f'data.vocab_size={data.vocab_size}: expected at least 3 words')
    return WordTokenizer.of(training(), data.vocab_size)
  raise UserError(
    f'data.tokenizer={data.tokenizer} needs data.tokenizer_path=FILE; --job=tokenizer trains one '
    'on the text of the config and writes tokenizer.json into its workdir'
  )


def read(path: str, kind: str) -> Tokenizer:
  """The tokenizer of this kind that a run or `--job=tokenizer` wrote. Raises UserError."""
  try:
    tree = json.loads(Path(path).expanduser().read_text(encoding='utf-8'))
    found = tree['kind']
  except OSError as error:
    raise UserError(f"data.tokenizer_path '{path}': {error.strerror}") from None
  except (ValueError, KeyError, TypeError):
    raise UserError(
      f"data.tokenizer_path '{path}' is not a tokenizer.json that a run or --job=tokenizer wrote"
    ) from None
  if found != kind:
    raise UserError(
      f"data.tokenizer_path '{path}' holds a tokenizer of kind {found}; set data.tokenizer={found}"
    )
  return from_json(tree)


def from_json(tree: dict) -> Tokenizer | NoTokens:
  """The inverse of `to_json`. Raises UserError for an unknown kind."""
  if tree == NoTokens().to_json():
    return NoTokens()
  check_kind(tree['kind'])
  return KINDS[tree['kind']](tree)


# Between a visible character and a space no tokenizer has a token across: where texts are cut.
_CUT = re.compile(r'(?<=[!-~\w])(?=[ \n])')


def chunks(text: str | bytes, size: int = 2**16) -> Iterator[str | bytes]:
  """The text in pieces of about `size`, whose tokens one after another are those of the text."""
  start = 0
  while len(text) - start > size:
    if isinstance(text, bytes):
      end = start + size
      while end < len(text) and text[end] & 0xC0 == 0x80:  # inside a UTF-8 character
        end += 1
    else:
      found = _CUT.search(text, start + size)
      end = found.start() if found else len(text)
    yield text[start:end]
    start = end
  if start < len(text) or not text:
    yield text[start:]


def _codepoints(text: str) -> np.ndarray:
  """Unicode code points (N,) uint32; lone surrogates, as from a shell's bad bytes, included."""
  return np.frombuffer(text.encode('utf-32-le', errors='surrogatepass'), np.dtype('<u4'))
