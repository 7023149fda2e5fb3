"""Prepares the TFDS set of the config: by download, or from the manual folder of its data.dir."""

from pathlib import Path

from ml_collections import ConfigDict

from sgnjax.data import prepared, sources
from sgnjax.errors import UserError, check_choice


def run(config: ConfigDict, workdir: Path) -> int:
  """Raises UserError where the config names no TFDS set, and within seconds without a network."""
  name = config.data.name
  check_choice('data.name', name, sources.names())
  if not sources.of_tfds(name):
    raise UserError(f'data.name={name} is not of TFDS: there is nothing to prepare')
  builder = prepared.prepare(name, config.data.dir)
  sizes = ', '.join(f'{split} {info.num_examples:,}' for split, info in builder.info.splits.items())
  print(f'{builder.info.full_name} lies in {builder.data_path}: {sizes} examples')
  return 0
