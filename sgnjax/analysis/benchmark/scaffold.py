"""The model that most parts measure: a decoder of 6 layers, width 256, on random tokens."""

from typing import Any

from ml_collections import ConfigDict

from sgnjax import config as config_lib
from sgnjax.models.variants import variant

SIZES = {'layers': 6, 'heads': 8, 'width': 256, 'vocab': 65}
TOKENS = 16 * 256  # a step, where a context is no longer than that
FULL = {'fourier_qk.taps': 128, 'chiar.route_window': 128}  # named variants are small otherwise


def config(
  name: str, *, context: int, batch: int | None = None, dtype: str = 'float32', **changes: Any
) -> ConfigDict:
  """A named variant of models/variants.py at this size, on one device, without dropout.

  batch: None for `TOKENS` a step, or one row. changes: keys of config.model, in place of `SIZES`.
  """
  found = (
    config_lib.load(config_lib.CONFIGS / 'quickstart.py').copy_and_resolve_references().unlock()
  )
  found.mesh.data = 1
  found.train.batch = batch or max(1, TOKENS // context)
  found.model.update(SIZES | {'context': context, 'dtype': dtype, 'dropout': 0.0})
  full = {key: value for key, value in FULL.items() if value <= context}
  changes = full | changes
  found.model.update_from_flattened_dict({k: v for k, v in changes.items() if '.' not in k})
  found = variant(found, name).copy_and_resolve_references().unlock()
  found.model.update_from_flattened_dict({k: v for k, v in changes.items() if '.' in k})
  return found.lock()


def shape(**changes: Any) -> str:
  """'6 layers, width 256, 8 heads', of `SIZES` with these changes."""
  return '{layers} layers, width {width}, {heads} heads'.format(**SIZES | changes)


def words(config: ConfigDict) -> str:
  """'6 layers, width 256, 8 heads, batch 16 x 256 tokens, float32'."""
  m = config.model
  size = shape(layers=m.layers, width=m.width, heads=m.heads)
  return f'{size}, batch {config.train.batch} x {m.context:,} tokens, {m.dtype}'
