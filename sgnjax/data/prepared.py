"""TFDS sets, read as ArrayRecord without TensorFlow, and how they come to be on the disk."""

import contextlib
import importlib.util
import io
import os
import socket
import threading
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from sgnjax.errors import UserError

# Modules of TFDS's sets that register only when they are imported.
MODULES = {name: f'tensorflow_datasets.text.{name}' for name in ('c4', 'glue', 'super_glue')}
PATIENCE = 4  # seconds until a host that does not answer is given up
BEAM = ('c4',)


def builder(name: str, folder: str | None) -> Any:
  """The builder of a set, ours or TFDS's. folder: TFDS's data_dir (None: its default)."""
  # Imported here: it takes half a second, and only these sets need it.
  import tensorflow_datasets as tfds

  from sgnjax.data.builders import BUILDERS

  base, _, variant = name.partition('/')
  options = {
    'data_dir': Path(folder).expanduser() if folder else None,
    'file_format': 'array_record',
  }
  if base in BUILDERS:
    return BUILDERS[base](config=variant or None, **options)
  if base in MODULES:
    importlib.import_module(MODULES[base])
  try:
    return tfds.builder(name, **options)
  except ImportError as error:  # some of TFDS's sets name their types by TensorFlow's
    return _from_disk(name, folder, error)


def _from_disk(name: str, folder: str | None, error: ImportError) -> Any:
  """A set that lies prepared, without the builder that made it: its newest version."""
  import tensorflow_datasets as tfds
  from tensorflow_datasets.core.constants import DATA_DIR

  place = Path(folder or DATA_DIR).expanduser() / name
  versions = [path for path in place.glob('*.*.*') if list(path.glob('*.array_record*'))]
  if not versions:
    raise UserError(
      f"{name} is not prepared at '{place}', and TFDS makes it with TensorFlow:\n"
      f"pip install 'sgnjax[tensorflow]', then --job=prepare --config.data.name={name} where there "
      'is a network'
    ) from error
  newest = max(versions, key=lambda path: [int(part) for part in path.name.split('.')])
  return tfds.builder_from_directory(newest)


def ready(name: str, folder: str | None) -> Any:
  """The builder of a set that lies prepared in `folder`.

  One that is not is prepared, if what it is made from lies in `<data_dir>/downloads/manual/`, with
  sizes and checksums held. Raises UserError where neither is there, at once and without trying a
  network: `prepare` does that.
  """
  found = builder(name, folder)
  if _records(found):
    return found
  if found.data_path.exists():
    raise UserError(
      f"'{found.data_path}' holds {name} in a format that only TensorFlow reads; move that folder "
      'away, or name another data.dir'
    )
  lacking = _lacking(found)
  if lacking or name.partition('/')[0] in BEAM:
    raise UserError(_where_from(name, found, lacking))
  prepare(name, folder)
  return builder(name, folder)


def _records(found) -> list:
  return list(found.data_path.glob('*.array_record*')) if found.data_path.exists() else []


def data_dir(found) -> Path:
  """TFDS's data_dir of a builder."""
  return Path(found._data_dir_root)


def _manual(found) -> Path:
  return data_dir(found) / 'downloads' / 'manual'


def needed(found) -> dict[str, str | None]:
  """Files that a set is made from: name in the manual folder -> address, if it has one."""
  infos = found.url_infos or {}
  if hasattr(found, 'needed'):
    wanted = found.needed()
  else:
    url = getattr(found.builder_config, 'data_url', None)  # GLUE: a file for each of its tasks
    wanted = [url] if url in infos else list(infos)
  return {
    (infos[item].filename or item.rpartition('/')[2]) if item in infos else item: (
      item if item in infos else None
    )
    for item in wanted
  }


def _lacking(found) -> dict[str, str | None]:
  return {n: url for n, url in needed(found).items() if not (_manual(found) / n).exists()}


def _where_from(name: str, found, lacking: dict[str, str | None]) -> str:
  if name.partition('/')[0] in BEAM:
    return (
      f"{name} is not prepared in '{data_dir(found)}': TFDS makes it with Apache Beam on many "
      f'machines (tfds build {name} --file_format=array_record);\n'
      f"put the folder that it makes at '{found.data_path}'"
    )
  first, *others = lacking
  more = f' and {len(others)} more: {", ".join(others[:3])}' if others else ''
  address = lacking[first]
  return (
    f"{name} is not prepared in '{data_dir(found)}': put {address or first} at "
    f"'{_manual(found) / first}'{more},\n"
    f'or run, where there is a network: python launch/main.py --config=FILE --job=prepare '
    f'--config.data.name={name} --config.data.dir={data_dir(found)}'
  )


def prepare(name: str, folder: str | None) -> Any:
  """Prepares a set: from the manual folder where its files are there, else by download.

  Raises UserError within seconds where neither is possible; also for a file that is not the one
  TFDS knows, and for a folder that cannot be written.
  """
  import tensorflow_datasets as tfds
  from tensorflow_datasets.core.download.download_manager import NonMatchingChecksumError

  found = builder(name, folder)
  if _records(found):
    return found
  lacking = _lacking(found)
  absent = [n for n, url in lacking.items() if url is None]
  if absent or name.partition('/')[0] in BEAM:
    raise UserError(_where_from(name, found, dict.fromkeys(absent)))
  for host in sorted({urllib.parse.urlsplit(url).netloc for url in lacking.values()}):
    if not answers(host):
      raise UserError(
        f'{host} does not answer; without a network put these files into '
        f"'{_manual(found)}':\n" + ', '.join(str(url) for url in lacking.values())
      )
  tfds.disable_progress_bar()
  options = tfds.download.DownloadConfig(manual_dir=_manual(found))
  try:
    with contextlib.redirect_stdout(io.StringIO()), _extracting():
      found.download_and_prepare(download_config=options)
  except NonMatchingChecksumError as error:
    said = '; '.join(
      f'{info.filename}: {info.size:,} bytes of SHA-256 {info.checksum[:12]}...'
      for url, info in (found.url_infos or {}).items()
      if url in needed(found).values()
    )
    raise UserError(
      f'a file is not the one that is known as {name}: expected {said}; replace it in '
      f"'{_manual(found)}'"
    ) from error
  except ImportError as error:
    raise UserError(
      f"preparing {name} needs TensorFlow ({error}): pip install 'sgnjax[tensorflow]'"
    ) from error
  except OSError as error:
    raise UserError(f"cannot prepare {name} in '{data_dir(found)}': {error}") from error
  return builder(name, folder)


@contextlib.contextmanager
def _extracting() -> Iterator[None]:
  """Has TFDS open archives by Python itself where there is no TensorFlow.

  It takes two things of TensorFlow for that: to open a local file, and to call a path a text.
  """
  if importlib.util.find_spec('tensorflow') is not None:
    yield
    return
  from tensorflow_datasets.core.download import extractor

  before = extractor.tf
  extractor.tf = SimpleNamespace(
    compat=SimpleNamespace(as_text=os.fsdecode),
    io=SimpleNamespace(gfile=SimpleNamespace(GFile=open)),
  )
  try:
    yield
  finally:
    extractor.tf = before


def answers(host: str, port: int = 443) -> bool:
  """Whether a connection to `host` (or to the proxy that stands before it) opens in time.

  In a thread: looking up a name may hang for longer than any time-out of a socket.
  """
  proxy = urllib.request.getproxies().get('https')
  if proxy:
    parts = urllib.parse.urlsplit(proxy if '//' in proxy else f'//{proxy}')
    host, port = parts.hostname or host, parts.port or 80
  opened = threading.Event()

  def attempt():
    with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=PATIENCE):
      opened.set()

  thread = threading.Thread(target=attempt, daemon=True)
  thread.start()
  thread.join(PATIENCE)
  return opened.is_set()
