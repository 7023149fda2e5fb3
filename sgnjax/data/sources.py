"""Where texts come from: Python itself, files, or TFDS. Nothing here uses a network.

A text is `str`, or `bytes` as they lie on the disk when `data.tokenizer` is byte.
"""

import ast
import difflib
import hashlib
import os
import sysconfig
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from ml_collections import ConfigDict

from sgnjax.errors import UserError, check_choice

Text = str | bytes
Example = tuple[Text, float | None]  # a document and its label

# Standard-library files rich in English, present since Python 3.11 and on every platform.
# fmt: off
MODULES = (
  'bdb', 'codecs', 'collections', 'configparser', 'difflib', 'doctest', 'fractions', 'ftplib',
  'imaplib', 'inspect', 'ipaddress', 'json', 'logging', 'optparse', 'os', 'pdb', 'pickletools',
  'random', 're', 'shutil', 'smtplib', 'socketserver', 'ssl', 'statistics', 'subprocess',
  'tarfile', 'threading', 'traceback', 'typing', '_pyio',
)
# fmt: on


@dataclass(frozen=True)
class Documents:
  """The documents of a split, read anew each time that they are asked for.

  key: names their content. size: bytes, about, for the progress. separate: they are texts of their
  own, with an end between them; otherwise parts of one text. labels: what a label is, 'class' or
  'number'; None where there are none.
  """

  read: Callable[[], Iterable[Example]]
  key: str
  size: int
  separate: bool = False
  labels: str | None = None

  @classmethod
  def of(cls, examples: Sequence[Example], **options) -> 'Documents':
    """Documents in memory."""
    digest, size = hashlib.sha256(), 0
    for text, label in examples:
      raw = text.encode('utf-8', errors='surrogatepass') if isinstance(text, str) else text
      digest.update(b'%d %r ' % (len(raw), str(label).encode()))
      digest.update(raw)
      size += len(raw)
    return cls(lambda: examples, digest.hexdigest(), size, **options)

  def texts(self) -> Iterable[Text]:
    return (text for text, _ in self.read())


class Source(NamedTuple):
  """The documents of each split, and a phrase that says where they came from.

  classes: how many labels there are; None for texts without, or with numbers for labels.
  """

  splits: dict[str, Documents]
  origin: str
  classes: int | None = None


def names() -> list[str]:
  """What `data.name` may be."""
  from sgnjax.data import images, recall
  from sgnjax.data.sets import SETS

  return ['embedded', 'text', *SETS, *images.SETS, *recall.SETS]


def labelled(name: str) -> bool:
  """Whether the documents or images of a set have labels."""
  from sgnjax.data import images
  from sgnjax.data.sets import SETS

  return name in images.SETS or (name in SETS and SETS[name].label is not None)


def of_tfds(name: str) -> bool:
  """Whether a set is read by TFDS."""
  from sgnjax.data import images
  from sgnjax.data.sets import PLAIN_ONLY, SETS

  return name in {*SETS, *images.SETS} - {*PLAIN_ONLY, 'digits'}


def check(config: ConfigDict) -> None:
  """Raises UserError for a share outside (0, 1), and a path or slice that nothing would read."""
  from sgnjax.data.sets import SETS

  data = config.data
  if not 0 < data.validation < 1:
    raise UserError(f'data.validation={data.validation}: expected a share between 0 and 1')
  if data.path is not None and data.name in ('embedded', 'digits'):
    other = 'data.name=text' if data.name == 'embedded' else 'another data.name'
    raise UserError(
      f"data.name={data.name} reads no file, and data.path is '{data.path}': set {other}, or unset "
      'data.path'
    )
  sliced = data.name in SETS and not SETS[data.name].whole and data.path is None
  if data.slice is not None and not sliced:
    raise UserError(
      f'data.slice={data.slice} is of texts that TFDS reads document by document, and '
      f'data.name={data.name}{"" if data.path is None else " of data.path"} is not: unset it'
    )


def load(config: ConfigDict) -> Source:
  """The documents that `config.data` names, as splits 'train', 'validation' and perhaps others.

  A text without parts of its own is cut: the validation split is its last `data.validation`,
  counted in characters (in bytes for the byte tokenizer). This holds for tiny_shakespeare too: TFDS
  cuts it 90/5/5, while the papers train on the first 90 % and validate on the rest, so its three
  parts are joined first and cut again; the default 0.1 gives the papers' int(0.9 * 1,115,394) =
  1,003,854 characters. A set of documents without a validation split takes `data.validation`
  of its train documents: TFDS's last, which TFDS has shuffled; of plain files, `held_out`.

  A local text must be UTF-8 but for the byte tokenizer; a byte-order mark is dropped, CRLF becomes
  LF. For the byte tokenizer the bytes stay as they are.

  Raises UserError: unknown name, missing or empty file, invalid UTF-8, a share outside (0, 1).
  """
  from sgnjax.data import sets

  data = config.data
  check_choice('data.name', data.name, names())
  if data.name not in ('embedded', 'text') and data.name not in sets.SETS:
    raise UserError(f'data.name={data.name} holds images, and a text is asked for')
  check(config)
  raw = data.tokenizer == 'byte'
  if data.name == 'embedded':
    pieces, origin = [('embedded', embedded().encode())], 'English of the Python standard library'
  elif data.name == 'text':
    pieces, origin = read_texts(data.path), f"text of '{data.path}'"
  elif data.path is not None:
    return sets.from_files(data.name, data.path, data.validation, raw=raw)
  else:
    return sets.from_tfds(data.name, data.dir, data.validation, data.slice, raw=raw)
  return cut([(piece if raw else decode(name, piece)) for name, piece in pieces],
             data.validation, origin)  # fmt: skip


def held_out(count: int, share: float) -> np.ndarray:
  """Which of `count` examples are validation: always the same ones, in no order of theirs."""
  held = np.zeros(count, bool)
  held[np.random.default_rng(0).permutation(count)[: count - int((1 - share) * count)]] = True
  return held


def cut(texts: Sequence[Text], share: float, origin: str) -> Source:
  """The parts of one text as splits: the last `share` of all of it is validation."""
  total = sum(map(len, texts))
  if not total:
    raise UserError(f'{origin} is empty; data.path should name a file or folder that holds text')
  left = int((1 - share) * total)
  splits: dict[str, list[Example]] = {'train': [], 'validation': []}
  for text in texts:
    for split, part in (('train', text[:left]), ('validation', text[left:])):
      if part:
        splits[split].append((part, None))
    left = max(0, left - len(text))
  return Source({split: Documents.of(found) for split, found in splits.items()}, origin)


def decode(name: str, raw: bytes) -> str:
  """The text of a file's bytes. Raises UserError that names the byte which is not UTF-8."""
  try:
    return raw.decode('utf-8-sig').replace('\r\n', '\n')
  except UnicodeDecodeError as error:
    # The decoder counts from behind a byte-order mark; the user counts from the start of the file.
    offset = error.start + (3 if raw.startswith(b'\xef\xbb\xbf') else 0)
    raise UserError(
      f"'{name}' is not UTF-8: byte 0x{raw[offset]:02x} at offset {offset:,}; convert it "
      '(iconv -t UTF-8), or set data.tokenizer=byte, which reads bytes as they are'
    ) from None


def read_texts(given: str | None) -> list[tuple[str, bytes]]:
  """The file at `given`, or the *.txt files of that folder in sorted order, with their names."""
  if not given:
    raise UserError('data.name=text needs data.path=FILE or FOLDER')
  path = Path(os.path.expanduser(given))
  if not os.path.exists(path):  # Path.exists() raises for a folder that may not be entered
    try:
      names = os.listdir(path.parent)
    except OSError:
      names = []
    close = difflib.get_close_matches(path.name, sorted(names), n=1, cutoff=0.5)
    hint = f"; did you mean '{path.parent / close[0]}'?" if close else ''
    raise UserError(f"data.path '{given}' does not exist{hint}")
  files = [path]
  if path.is_dir():
    files = sorted(f for f in path.glob('*.txt') if f.is_file())
    if not files:
      raise UserError(
        f"folder '{given}' holds no .txt file; name a file, or rename its texts to .txt"
      )
  try:
    return [(str(f), f.read_bytes()) for f in files]
  except OSError as error:
    raise UserError(f"cannot read '{error.filename}': {error.strerror}") from None


def embedded() -> str:
  """CPython's own English: the help topics and the docstrings of `MODULES`, sorted by name.

  The topics quote one another and docstrings are inherited by copy, so each paragraph is kept once,
  where it first occurs: otherwise the train split would hold much of the validation split word for
  word. Its length differs by Python version. Sources are parsed, not imported. Raises UserError
  where a Python comes without these files.
  """
  library = Path(sysconfig.get_path('stdlib'))
  documents = {}
  try:
    from pydoc_data.topics import topics

    documents.update(topics)
    for name in MODULES:
      file = library / name / '__init__.py'
      file = file if file.is_file() else library / f'{name}.py'
      documents[f'{name}.py'] = _docstrings(file.read_text(encoding='utf-8'))
  except (ImportError, OSError) as error:
    raise UserError(
      f'this Python comes without the sources of its standard library ({error}); '
      'set data.name=text and data.path=FILE'
    ) from None
  seen = set()
  paragraphs = []
  for name in sorted(documents, key=lambda n: (n.strip('_').lower(), n)):
    for paragraph in documents[name].split('\n\n'):
      key = ' '.join(paragraph.split())
      if key and key not in seen:
        seen.add(key)
        paragraphs.append(paragraph.strip('\n'))
  return '\n\n'.join(paragraphs) + '\n'


def _docstrings(code: str) -> str:
  kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
  inside = (ast.stmt, ast.excepthandler, ast.match_case)  # expressions, most of a tree, define none
  nodes, waiting = [], [ast.parse(code)]
  while waiting:
    node = waiting.pop()
    if isinstance(node, kinds):
      nodes.append(node)
    waiting += [child for child in ast.iter_child_nodes(node) if isinstance(child, inside)]
  nodes.sort(key=lambda n: getattr(n, 'lineno', 0))
  return '\n\n'.join(filter(None, map(ast.get_docstring, nodes)))
