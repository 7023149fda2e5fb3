"""Where the text comes from: Python itself, a file or folder, or TFDS. Nothing here uses a network.

A text is `str`, or `bytes` as they lie on the disk when `data.tokenizer` is byte.
"""

import ast
import contextlib
import difflib
import io
import os
import sysconfig
from pathlib import Path
from typing import NamedTuple

from ml_collections import ConfigDict

from sgnjax.errors import UserError, check_choice

Text = str | bytes

NAMES = ('embedded', 'text', 'tiny_shakespeare')

# Standard-library files rich in English, present since Python 3.11 and on every platform.
# fmt: off
MODULES = (
  'bdb', 'codecs', 'collections', 'configparser', 'difflib', 'doctest', 'fractions', 'ftplib',
  'imaplib', 'inspect', 'ipaddress', 'json', 'logging', 'optparse', 'os', 'pdb', 'pickletools',
  'random', 're', 'shutil', 'smtplib', 'socketserver', 'ssl', 'statistics', 'subprocess',
  'tarfile', 'threading', 'traceback', 'typing', '_pyio',
)
# fmt: on


class Source(NamedTuple):
  """The text of each split, and a phrase that says where it came from."""

  splits: dict[str, Text]
  origin: str


def load_text(config: ConfigDict) -> Source:
  """The text that `config.data` names, as splits 'train' and 'validation'.

  The validation split is the last `data.validation` of the whole text, counted in characters (in
  bytes for the byte tokenizer). This holds for tiny_shakespeare too: TFDS cuts it 90/5/5, while the
  papers train on the first 90 % and validate on the rest, so its three parts are joined first and
  cut again; the default 0.1 gives the papers' int(0.9 * 1,115,394) = 1,003,854 characters.

  A local text must be UTF-8 for the char tokenizer; a byte-order mark is dropped, CRLF becomes LF.
  For the byte tokenizer the bytes stay as they are.

  Raises UserError: unknown name, missing or empty file, invalid UTF-8, a share outside (0, 1).
  """
  data = config.data
  check_choice('data.name', data.name, NAMES)
  if not 0 < data.validation < 1:
    raise UserError(f'data.validation={data.validation}: expected a share between 0 and 1')
  if data.name == 'embedded':
    pieces, origin = [('embedded', embedded().encode())], 'English of the Python standard library'
  elif data.name == 'text':
    pieces, origin = _read(data.path), f"text of '{data.path}'"
  else:
    pieces, origin = tiny_shakespeare(data.dir), 'TFDS tiny_shakespeare 1.0.0'
  if data.tokenizer == 'byte':
    whole = b''.join(raw for _, raw in pieces)
  else:
    whole = ''.join(_decode(name, raw) for name, raw in pieces)
  if not whole:
    raise UserError(f'{origin} is empty; data.path should name a file or folder that holds text')
  cut = int((1 - data.validation) * len(whole))
  return Source({'train': whole[:cut], 'validation': whole[cut:]}, origin)


def _decode(name: str, raw: bytes) -> str:
  try:
    return raw.decode('utf-8-sig').replace('\r\n', '\n')
  except UnicodeDecodeError as error:
    # The decoder counts from behind a byte-order mark; the user counts from the start of the file.
    offset = error.start + (3 if raw.startswith(b'\xef\xbb\xbf') else 0)
    raise UserError(
      f"'{name}' is not UTF-8: byte 0x{raw[offset]:02x} at offset {offset:,}; convert it "
      '(iconv -t UTF-8), or set data.tokenizer=byte, which reads bytes as they are'
    ) from None


def _read(given: str | None) -> list[tuple[str, bytes]]:
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
  nodes = [n for n in ast.walk(ast.parse(code)) if isinstance(n, kinds)]
  nodes.sort(key=lambda n: getattr(n, 'lineno', 0))
  return '\n\n'.join(filter(None, map(ast.get_docstring, nodes)))


def tiny_shakespeare(folder: str | None) -> list[tuple[str, bytes]]:
  """The three parts of TFDS `tiny_shakespeare`, in order, read without TensorFlow.

  `folder` is TFDS's data_dir (None: its default). A set that is not prepared yet is prepared from
  `<data_dir>/downloads/manual/input.txt`, checksum enforced. Raises UserError where neither is
  there, at once and without trying a network: `prepare` does that.
  """
  builder = _builder(folder)
  shards = list(builder.data_path.glob('*.array_record*')) if builder.data_path.exists() else []
  if not shards:
    if builder.data_path.exists():
      raise UserError(
        f"'{builder.data_path}' holds tiny_shakespeare in a format that only TensorFlow reads; "
        'move that folder away, or name another data.dir'
      )
    (url, info), *_ = builder.url_infos.items()
    manual = builder.data_path.parents[1] / 'downloads' / 'manual' / info.filename
    if not manual.exists():
      raise UserError(
        f"tiny_shakespeare is not prepared in '{builder.data_path.parents[1]}': put {url} at "
        f"'{manual}',\nor run, where there is a network: "
        f'python -c "from sgnjax.data import sources; sources.prepare({folder!r})"'
      )
    prepare(folder)
    builder = _builder(folder)
  return [
    (split, bytes(builder.as_data_source(split=split)[0]['text']))
    for split in ('train', 'validation', 'test')
  ]


def prepare(folder: str | None) -> None:
  """Prepares TFDS `tiny_shakespeare` in `folder`: from the manual file if there, else by download.

  Raises UserError for a file that is not the one TFDS knows, no network, or a folder not writable.
  """
  import tensorflow_datasets as tfds
  from tensorflow_datasets.core.download.download_manager import NonMatchingChecksumError

  builder = _builder(folder)
  tfds.disable_progress_bar()
  try:
    with contextlib.redirect_stdout(io.StringIO()):
      builder.download_and_prepare()
  except NonMatchingChecksumError as error:
    (info,) = builder.url_infos.values()
    raise UserError(
      f"'{info.filename}' is not the file TFDS knows as tiny_shakespeare: expected {info.size:,} "
      f'bytes of SHA-256 {info.checksum[:12]}...; replace it in downloads/manual/'
    ) from error
  except OSError as error:
    raise UserError(
      f"cannot prepare tiny_shakespeare in '{builder.data_path.parents[1]}': {error}"
    ) from error


def _builder(folder: str | None):
  """TFDS's builder, except that the file is read without TensorFlow."""
  # Imported here: it takes half a second, and only this source needs it.
  import tensorflow_datasets as tfds
  from tensorflow_datasets.core.download import checksums
  from tensorflow_datasets.datasets.tiny_shakespeare import tiny_shakespeare_dataset_builder

  package = tfds.core.tfds_path('datasets/tiny_shakespeare')

  class TinyShakespeare(tiny_shakespeare_dataset_builder.Builder, skip_registration=True):
    name = 'tiny_shakespeare'
    pkg_dir_path = package
    url_infos = checksums.load_url_infos(package / 'checksums.tsv')

    def _split_generators(self, dl_manager):
      (url,) = self.url_infos
      text = dl_manager.download(url).read_text(encoding='utf-8')
      a = int(0.9 * len(text))
      b = a + int(0.5 * (len(text) - a))
      parts = {'train': text[:a], 'validation': text[a:b], 'test': text[b:]}
      return {split: self._generate_examples(split, part) for split, part in parts.items()}

  directory = Path(folder).expanduser() if folder else None
  return TinyShakespeare(data_dir=directory, file_format='array_record')
