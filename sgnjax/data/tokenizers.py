"""Tokenizers of characters and of bytes, saved as JSON with a checkpoint."""

from typing import Protocol

import numpy as np

from sgnjax.errors import UserError, check_choice


class Tokenizer(Protocol):
  """What every tokenizer offers: text to int32 ids and back, the vocabulary's size, a JSON form."""

  vocab_size: int

  def encode(self, text: str) -> np.ndarray: ...

  def decode(self, ids) -> str: ...

  def to_json(self) -> dict: ...


class CharTokenizer:
  """One token per Unicode character; ids follow the sorted vocabulary."""

  kind = 'char'

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
        f'character {text[at]!a} (U+{codes[at]:04X}) at position {at:,} is not among the '
        f'{self.vocab_size} characters of this vocabulary; leave it out, or train with '
        'data.tokenizer=byte, which knows every text'
      )
    return ids

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

  def encode(self, text: str | bytes) -> np.ndarray:
    """Ids (N,) int32 of N bytes."""
    raw = text.encode('utf-8', errors='surrogatepass') if isinstance(text, str) else text
    return np.frombuffer(raw, np.uint8).astype(np.int32)

  def decode(self, ids) -> str:
    """The text of ids (N,); what is not UTF-8 becomes U+FFFD. Raises ValueError for a wrong id."""
    return bytes(np.asarray(ids).tolist()).decode('utf-8', errors='replace')

  def to_json(self) -> dict:
    return {'kind': self.kind}

  @classmethod
  def from_json(cls, tree: dict) -> 'ByteTokenizer':
    return cls()


KINDS = {kind.kind: kind for kind in (CharTokenizer, ByteTokenizer)}


def check_kind(kind: str) -> None:
  """Raises UserError unless there is a tokenizer of this kind."""
  check_choice('data.tokenizer', kind, KINDS)


def make(kind: str, text: str | bytes) -> Tokenizer:
  """The tokenizer of this kind for the whole `text`, all splits together.

  The papers take their vocabulary from the whole text, so that validation holds no unknown
  character. Raises UserError for an unknown kind.
  """
  check_kind(kind)
  return CharTokenizer(text) if kind == 'char' else ByteTokenizer()


def from_json(tree: dict) -> Tokenizer:
  """The inverse of `to_json`. Raises UserError for an unknown kind."""
  check_kind(tree['kind'])
  return KINDS[tree['kind']].from_json(tree)


def _codepoints(text: str) -> np.ndarray:
  """Unicode code points (N,) uint32; lone surrogates, as from a shell's bad bytes, included."""
  return np.frombuffer(text.encode('utf-32-le', errors='surrogatepass'), np.dtype('<u4'))
