"""Where a figure was measured, and by what code."""

import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import jax


def machine(devices: int | None = None) -> dict[str, Any]:
  """Device (so many of it; None: all), machine and versions, to stand in a record."""
  count = jax.device_count() if devices is None else devices
  return {
    'device': f'{count} x {jax.devices()[0].device_kind}',
    'machine': f'{platform.machine()}, {os.cpu_count()} processors',
    'versions': {'python': platform.python_version(), 'jax': jax.__version__},
  }


def in_words(found: dict[str, Any]) -> str:
  """A record's entries of `machine` on one line."""
  versions = ', '.join(f'{name} {value}' for name, value in found['versions'].items())
  return f'{found["device"]}; {found["machine"]}; {versions}'


def origin(start: dict[str, Any]) -> str:
  """A line of a run's starts.jsonl in words: machine, versions, and the code."""
  code = f'commit {start["commit"]}' if start['commit'] else 'installed without its history'
  return f'{in_words(start)}; code: {code}'


def commit() -> str | None:
  """The commit of this code, and whether files differ from it; None outside a clone."""
  here = Path(__file__)

  def git(*words: str) -> str:
    words = ('git', *words)
    done = subprocess.run(words, cwd=here.parent, capture_output=True, text=True, check=True)
    return done.stdout.strip()

  try:
    git('ls-files', '--error-unmatch', here.name)  # installed below a clone of something else
    changed = git('status', '--porcelain', '--untracked-files=no', ':/sgnjax', ':/configs')
    return git('rev-parse', '--short', 'HEAD') + (' with changes' if changed else '')
  except (OSError, subprocess.CalledProcessError):
    return None
