"""Weights as safetensors, with the config and the tokenizer beside them, and back."""

import json
import shutil
from pathlib import Path
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict

from sgnjax import config as config_lib
from sgnjax.data import tokenizers
from sgnjax.errors import UserError
from sgnjax.train.optim import path_of

WEIGHTS, CONFIG, TOKENIZER = 'weights.safetensors', 'config.json', 'tokenizer.json'


def flat(params: Any) -> dict[str, Any]:
  """`{'stack/group_0/...': array}` of a tree of dicts."""
  return {path_of(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(params)}


def nested(weights: dict[str, Any]) -> dict:
  """The inverse of `flat`."""
  tree: dict = {}
  for path, leaf in weights.items():
    *groups, last = path.split('/')
    node = tree
    for group in groups:
      node = node.setdefault(group, {})
    node[last] = leaf
  return tree


def _library():
  try:
    import safetensors.numpy
  except ImportError:
    raise UserError("safetensors is not installed: pip install 'sgnjax[export]'") from None
  return safetensors


def save(folder: str | Path, config: ConfigDict, params: Any, tokenizer: Any, step: int) -> Path:
  """Writes weights.safetensors, config.json and tokenizer.json; the path of the first.

  Parameters are stored under their paths, each as it is stacked in the model. Raises UserError
  where the folder cannot be written.
  """
  library, folder = _library(), Path(folder)
  arrays = {name: np.ascontiguousarray(leaf) for name, leaf in flat(params).items()}
  what = {'format': 'sgnjax', 'step': str(step), 'config_hash': config_lib.fingerprint(config)}
  try:
    folder.mkdir(parents=True, exist_ok=True)
    library.numpy.save_file(arrays, folder / WEIGHTS, metadata=what)
    (folder / CONFIG).write_text(json.dumps(config_lib.serialise(config), indent=2) + '\n')
    shutil.copymode(folder / CONFIG, folder / WEIGHTS)  # the library lets the owner alone read it
    (folder / TOKENIZER).write_text(json.dumps(tokenizer.to_json()) + '\n', encoding='utf-8')
  except OSError as error:
    raise UserError(f"folder '{folder}' cannot be written ({error.strerror or error})") from None
  return folder / WEIGHTS


def read(folder: str | Path) -> tuple[ConfigDict, Any, Any, int]:
  """`(config, params, tokenizer, step)` of what `save` wrote. Raises UserError."""
  library, folder = _library(), Path(folder)
  config = config_lib.stored(folder)
  try:
    with library.safe_open(folder / WEIGHTS, framework='numpy') as file:
      step = (file.metadata() or {}).get('step', '0')
      weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
  except (OSError, library.SafetensorError) as error:
    raise UserError(f"'{folder / WEIGHTS}' is no safetensors file ({error})") from None
  try:
    tokenizer = tokenizers.from_json(json.loads((folder / TOKENIZER).read_text(encoding='utf-8')))
  except (OSError, ValueError, KeyError, TypeError):
    raise UserError(f"'{folder / TOKENIZER}' is missing, or no tokenizer of sgnjax") from None
  return config, nested(weights), tokenizer, int(step)
