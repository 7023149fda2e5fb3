"""Tokens of documents, kept in memory or as memory-mapped files that processes share.

An entry is named by its content, its tokenizer and this format; it is written beside and renamed
into place, so that a reader sees a whole one or none.
"""

import contextlib
import hashlib
import json
import os
import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from ml_collections import ConfigDict

from sgnjax.data.sources import Documents, Text
from sgnjax.data.tokenizers import Tokenizer, chunks
from sgnjax.errors import UserError

FORMAT = 1
LARGE = 2**23  # bytes of text from which tokens are kept on the disk
END = '\n'  # after a document among others, where a tokenizer has no end of its own
GROUP = 2**21  # bytes of text that are tokenized at a time
SAY_EVERY = 5.0  # seconds


@dataclass(frozen=True)
class Tokens:
  """A split as tokens.

  ids: (N,) int32, or uint16 where the vocabulary allows it. ends: (D,) where each document ends.
  labels: (D,) or None. counts: (V,) of each token. text_bytes, characters, words: of the text;
  words as white space cuts them, with an end of line as one.
  """

  ids: np.ndarray
  ends: np.ndarray
  labels: np.ndarray | None
  counts: np.ndarray
  text_bytes: int
  characters: int
  words: int
  key: str


class Mapped(np.memmap):
  """A whole file as an array; what is taken of it is a plain array, and a pickle of it a path."""

  def __getitem__(self, index):
    return np.asarray(super().__getitem__(index))

  def __reduce__(self):
    return Mapped, (self.filename, self.dtype, 'r')


def folder(config: ConfigDict) -> Path:
  """Where entries lie: `data.cache_dir`, or the user's cache folder."""
  if config.data.cache_dir is not None:
    return Path(config.data.cache_dir).expanduser()
  root = os.environ.get('XDG_CACHE_HOME')
  return (Path(root) if root else Path.home() / '.cache') / 'sgnjax' / 'tokens'


def tokenize(config: ConfigDict, documents: Documents, tokenizer: Tokenizer, name: str) -> Tokens:
  """The tokens of a split, from the disk where they have been made before.

  Texts under 8 MB stay in memory, unless `data.cache_dir` is set. Raises UserError for a folder
  that cannot be written.
  """
  key = _key(documents.key, tokenizer)
  if documents.size < LARGE and config.data.cache_dir is None:
    return _in_memory(documents, tokenizer, name, key)
  entry = folder(config) / key
  with _writing('tokens', entry):
    if not entry.exists():
      _write(entry, documents, tokenizer, name)
  return _open(entry, key)


def remembered(config: ConfigDict, size: int, what: str, make: Callable[[], dict]) -> dict:
  """What `make` gives, JSON, kept under `what` where the text that it is made of is large."""
  if size < LARGE and config.data.cache_dir is None:
    return make()
  path = folder(config) / f'{hashlib.sha256(f"{FORMAT} {what}".encode()).hexdigest()[:24]}.json'
  with _writing('a vocabulary', path):
    if not path.exists():
      # Named as no other: processes of several machines may share a folder and a process number.
      beside = path.with_suffix(f'.{uuid.uuid4().hex}')
      beside.write_text(json.dumps(make()), encoding='utf-8')
      beside.replace(path)
    return json.loads(path.read_text(encoding='utf-8'))


def _key(content: str, tokenizer: Tokenizer) -> str:
  vocabulary = json.dumps(tokenizer.to_json(), sort_keys=True)
  return hashlib.sha256(f'{FORMAT} {content} {vocabulary}'.encode()).hexdigest()[:24]


@contextlib.contextmanager
def _writing(what: str, entry: Path) -> Iterator[None]:
  """Alone with an entry, in a folder that can be written; else UserError."""
  try:
    entry.parent.mkdir(parents=True, exist_ok=True)
    with _alone(entry):
      yield
  except OSError as error:
    raise UserError(
      f"cannot keep {what} in '{entry.parent}': {error.strerror or error}; set "
      'data.cache_dir=DIR to a folder that can be written'
    ) from None


@contextlib.contextmanager
def _alone(entry: Path) -> Iterator[None]:
  """One process at a time makes an entry; the system lets go of the lock when it dies."""
  try:
    import fcntl
  except ImportError:  # no such locks here: two processes may both do the work, and one is kept
    yield
    return
  with open(entry.with_suffix('.lock'), 'w') as file:
    with contextlib.suppress(OSError):  # nor on some network file systems
      fcntl.flock(file, fcntl.LOCK_EX)
    yield


def _end(tokenizer: Tokenizer) -> np.ndarray:
  """What is set after a document among others: the tokenizer's own end, else an end of line."""
  if tokenizer.end is not None:
    return np.array([tokenizer.end], np.int32)
  try:
    return tokenizer.encode(END)
  except UserError:
    raise UserError(
      'an end of line is set after each document, and it is not among the '
      f'{tokenizer.vocab_size} characters of this vocabulary; train with data.tokenizer=byte, '
      'which knows every text'
    ) from None


def _groups(documents: Documents) -> Iterator[tuple[list[Text], list[float | str | None]]]:
  """Texts of about GROUP bytes together, each with its label, or 'more' where a text goes on."""
  texts, labels, size = [], [], 0
  for text, label in documents.read():
    pieces = list(chunks(text))
    for number, piece in enumerate(pieces, 1):
      texts.append(piece)
      labels.append(label if number == len(pieces) else 'more')
      size += len(piece)
      if size >= GROUP:
        yield texts, labels
        texts, labels, size = [], [], 0
  if texts:
    yield texts, labels


class _Parts:
  """Documents tokenized group by group; what is counted on the way."""

  def __init__(self, documents: Documents, tokenizer: Tokenizer, name: str):
    self.documents, self.tokenizer, self.name = documents, tokenizer, name
    self.dtype = np.uint16 if tokenizer.vocab_size <= 2**16 else np.int32
    self.counts = np.zeros(tokenizer.vocab_size, np.int64)
    self.ends: list[int] = []
    self.labels: list[float] = []
    self.text_bytes = self.characters = self.words = self.total = 0

  def __iter__(self) -> Iterator[np.ndarray]:
    end = _end(self.tokenizer) if self.documents.separate else np.zeros(0, np.int32)
    progress = _Progress(self.name, self.documents.size)
    for texts, labels in _groups(self.documents):
      ids: list[np.ndarray] = []
      for text, found, label in zip(texts, self.tokenizer.encode_batch(texts), labels, strict=True):
        self._count(text)
        ids.append(found)
        self.total += len(found)
        if label != 'more':
          ids.append(end)
          self.total += len(end)
          self.ends.append(self.total)
          self.labels.append(np.nan if label is None else label)
      joined = np.concatenate(ids)
      self.counts += np.bincount(joined, minlength=len(self.counts))
      progress.at(self.text_bytes)
      yield joined.astype(self.dtype)

  def _count(self, text: Text) -> None:
    raw = text if isinstance(text, bytes) else text.encode('utf-8', errors='surrogatepass')
    self.text_bytes += len(raw)
    self.characters += len(raw.decode(errors='replace') if isinstance(text, bytes) else text)
    self.words += len(text.split()) + raw.count(b'\n')

  def rest(self) -> dict:
    labelled = self.documents.labels is not None
    kind = np.int32 if self.documents.labels == 'class' else np.float32
    return {
      'ends': np.array(self.ends, np.int64),
      'labels': np.array(self.labels, kind) if labelled else None,
      'counts': self.counts,
    }

  def numbers(self) -> dict:
    return {k: getattr(self, k) for k in ('text_bytes', 'characters', 'words')}


def _in_memory(documents, tokenizer, name, key) -> Tokens:
  parts = _Parts(documents, tokenizer, name)
  ids = list(parts)
  joined = np.concatenate([np.zeros(0, parts.dtype), *ids])
  return Tokens(ids=joined, **parts.rest(), **parts.numbers(), key=key)


def _write(entry: Path, documents: Documents, tokenizer: Tokenizer, name: str) -> None:
  """Makes an entry; interrupted or failing, it leaves nothing."""
  beside = Path(tempfile.mkdtemp(prefix=f'{entry.name}.', dir=entry.parent))
  try:
    parts = _Parts(documents, tokenizer, name)
    with open(beside / 'ids.bin', 'wb') as file:
      for ids in parts:
        ids.tofile(file)
    for what, array in parts.rest().items():
      if array is not None:
        np.save(beside / f'{what}.npy', array)
    numbers = parts.numbers() | {'dtype': np.dtype(parts.dtype).name, 'of': name}
    (beside / 'numbers.json').write_text(json.dumps(numbers) + '\n')
    beside.chmod(0o755)
    try:
      beside.rename(entry)
    except OSError:
      if not entry.exists():  # another process was first
        raise
  finally:
    shutil.rmtree(beside, ignore_errors=True)


def _open(entry: Path, key: str) -> Tokens:
  numbers = json.loads((entry / 'numbers.json').read_text())
  dtype = numbers.pop('dtype')
  numbers.pop('of')
  whole = (entry / 'ids.bin').stat().st_size
  ids = Mapped(entry / 'ids.bin', dtype, 'r') if whole else np.zeros(0, dtype)
  labels = entry / 'labels.npy'
  return Tokens(
    ids=ids,
    ends=np.load(entry / 'ends.npy'),
    labels=np.load(labels) if labels.exists() else None,
    counts=np.load(entry / 'counts.npy'),
    **numbers,
    key=key,
  )


class _Progress:
  """Says how far a long text is, at what rate, and how long it takes from there."""

  def __init__(self, name: str, size: int):
    self.name, self.size = name, size
    self.start = self.said = time.monotonic()

  def at(self, done: int) -> None:
    now = time.monotonic()
    if now - self.said < SAY_EVERY:
      return
    self.said = now
    rate = done / (now - self.start)
    left = max(0, self.size - done) / rate
    share = f'{min(1, done / self.size):.0%} of {self.size / 1e6:,.0f} MB' if self.size else ''
    print(
      f'tokenizing {self.name}: {share}, {rate / 1e6:.1f} MB/s, '
      f'{int(left // 60)}:{int(left % 60):02d} left',
      file=sys.stderr,
      flush=True,
    )
