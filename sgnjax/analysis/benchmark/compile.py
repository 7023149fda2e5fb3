"""How long until the first step, with and without programs compiled before."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

import jax
from jax.experimental.compilation_cache import compilation_cache

from sgnjax import config as config_lib
from sgnjax.analysis import layout
from sgnjax.analysis.benchmark.page import Row
from sgnjax.analysis.benchmark.settings import Settings
from sgnjax.errors import UserError
from sgnjax.parallel.mesh import make_mesh

ROOT = Path(__file__).parents[3]


def starts(
  settings: Settings,
  *,
  names: Sequence[str] = ('softmax', 'sgn'),
  warm: int = 2,
  **sizes: int,
) -> Iterator[Row | str]:
  """Cold and warm start

  Seconds from the start of the command `--job=train` to the record of its first step, in a process
  of its own: with an empty folder for compiled programs, and again with what that run left."""
  del settings
  sizes = {'layers': 6, 'heads': 8, 'width': 256, 'context': 256} | sizes
  for name in names:
    with tempfile.TemporaryDirectory() as folder:
      seconds = [_first_step(Path(folder), number, name, sizes) for number in range(1 + warm)]
    cold, again = seconds[0], median(seconds[1:])
    yield {
      'mixer': name,
      'cold, s': cold,
      'warm, s': again,
      'warm / cold': again / cold,
      'aim': 0.5,
    }
  shape = f'{sizes["layers"]} layers, width {sizes["width"]}, context {sizes["context"]}'
  yield f'{shape}; the audit before the first step is among it.'


def _first_step(folder: Path, number: int, name: str, sizes: dict[str, int]) -> float:
  """Starts a run, and ends it when its first record is there. Raises UserError where none comes."""
  workdir = folder / f'run-{number}'
  flags = [f'--config.model.{key}={value}' for key, value in sizes.items()]
  flags += [f'--config.train.{key}' for key in ('log_every=1', 'batch=16', 'progress=false')]
  environment = {k: v for k, v in os.environ.items() if k != 'JAX_COMPILATION_CACHE_DIR'}
  start = time.monotonic()
  with (folder / 'said').open('w+') as said:
    process = subprocess.Popen(
      [
        *(sys.executable, '-m', 'sgnjax', f'--workdir={workdir}'),
        *(f'--config={config_lib.CONFIGS / "quickstart.py"}', f'--config.model.mixer={name}'),
        *('--config.mesh.data=1', *flags),
      ],
      env=environment | {'XDG_CACHE_HOME': str(folder / 'cache')},
      stdout=said,
      stderr=said,
      cwd=ROOT,
    )
    records = workdir / 'metrics.jsonl'
    try:
      while not (records.is_file() and '\n' in records.read_text()):
        if process.poll() is not None:
          said.seek(0)
          raise UserError(f'a run that was to be timed ended before its first step:\n{said.read()}')
        time.sleep(0.01)
      seconds = time.monotonic() - start
      assert json.loads(records.read_text().splitlines()[0])['step'] == 1
    finally:
      process.send_signal(signal.SIGKILL)
      process.wait()
  return seconds


def layers(
  settings: Settings, *, counts: Sequence[int] = (3, 28), overrides: Sequence[str] = ()
) -> Iterator[Row | str]:
  """Compile time against the layers

  The training step of configs/chiar_400m.py, layers in one scan, traced and compiled for one device
  here, nothing run and nothing taken from a cache."""
  del settings
  found = {}
  for count in counts:
    changes = [f'model.layers={count}', 'mesh.fsdp=1', 'train.batch=8', *overrides]
    config = config_lib.load(config_lib.CONFIGS / 'chiar_400m.py', changes)
    start = time.perf_counter()
    lowered = layout.lower(config, make_mesh(config))
    traced = time.perf_counter() - start
    with _no_cache():
      lowered.compile()
    found[count] = time.perf_counter() - start
    yield {
      'layers': count,
      'traced, s': traced,
      'compiled, s': found[count] - traced,
      'both, s': found[count],
      f'/ {counts[0]} layers': found[count] / found[counts[0]],
    }


@contextlib.contextmanager
def _no_cache():
  """Compiled programs are not taken from the disk inside."""
  was = jax.config.jax_enable_compilation_cache
  jax.config.update('jax_enable_compilation_cache', False)
  compilation_cache.reset_cache()  # what JAX decided once, it would keep
  try:
    yield
  finally:
    jax.config.update('jax_enable_compilation_cache', was)
    compilation_cache.reset_cache()


SECTIONS = {'starts': starts, 'layers': layers}
