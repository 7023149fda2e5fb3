"""Where a figure was measured."""

import os
import platform
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
