"""Weights of another run as a start (`init_from`): what fits is taken, and the rest is said."""

from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from ml_collections import ConfigDict

from sgnjax.models import DECODERS
from sgnjax.train.checkpoint import load_params
from sgnjax.train.optim import path_of

VOCABULARY = {'embedding': 0, 'head': 1}  # and the axis that its tokens lie on


def start_from(config: ConfigDict, tokenizer: Any, params: Any) -> tuple[Any, list[str]]:
  """`params` with what the best checkpoint of `config.init_from` has for them, and what to print.

  Same path and shape: taken. Position tables of another context: the rows that both have; the rest
  stay as drawn. SGN gates of another context: resampled to the same frequencies. Embedding and head
  of another tokenizer are not taken; between a language model and an encoder, which has tokens of
  its own behind the text's, those of the text are. Raises UserError where there is no checkpoint.
  """
  old_config, old_params, old_tokenizer, step = load_params(config.init_from)
  old = {path_of(p): leaf for p, leaf in jax.tree_util.tree_leaves_with_path(old_params)}
  same_tokens = old_tokenizer.to_json() == tokenizer.to_json()
  whole, changed, missing = [], [], []

  def choose(key_path, leaf):
    path = path_of(key_path)
    source = old.pop(path, None)
    if source is None:
      missing.append(f'{path} (not there)')
      return leaf
    if path in VOCABULARY and not same_tokens:
      missing.append(f'{path} (another tokenizer)')
      return leaf
    others = path == 'embedding' and (old_config.data.task in DECODERS) != (
      config.data.task in DECODERS
    )
    if source.shape == leaf.shape and not others:
      whole.append(path)
      value = source
    else:
      # Fetched whole: among several processes each may hold a part of it.
      fresh = multihost_utils.process_allgather(leaf, tiled=True)
      arrays = np.asarray(source), np.asarray(fresh)
      if path in VOCABULARY:
        value = _same_tokens(*arrays, tokenizer.vocab_size, axis=VOCABULARY[path])
      else:
        value = _resized(path, *arrays, old_config, config)
      if value is None:
        missing.append(f'{path} (shape {source.shape}, here {leaf.shape})')
        return leaf
      changed.append(f'{path} {source.shape} -> {leaf.shape}')
    return jax.device_put(np.asarray(value, leaf.dtype), leaf.sharding)

  params = jax.tree_util.tree_map_with_path(choose, params)
  lines = [f'init_from {config.init_from}, step {step}: {len(whole)} arrays taken as they are']
  for what, names in (
    ('fitted to this model', changed),
    ('not taken, start fresh', missing),
    ('left over there', list(old)),
  ):
    if names:
      lines.append(f'  {what}: {", ".join(names)}')
  return params, lines


def _same_tokens(source, leaf, count: int, axis: int):
  """`leaf` with the first `count` rows or columns of `source`; None where the widths differ."""
  if source.shape[1 - axis] != leaf.shape[1 - axis]:
    return None
  kept = np.split(source, [count], axis)[0]
  return np.concatenate([kept, np.split(leaf, [count], axis)[1]], axis)


def _resized(path, source, leaf, old_config, config):
  """`source` for another context; None where it does not fit."""
  name = path.split('/')[-1]
  if source.ndim != leaf.ndim or source.shape[-1] != leaf.shape[-1]:
    return None
  if name == 'position':
    rows = min(source.shape[0], leaf.shape[0])
    return np.concatenate([source[:rows], leaf[rows:]])
  if name == 'gate' and source.shape[0] == leaf.shape[0]:
    ratio = old_config.model.context / config.model.context
    return np.stack([_resample(gate_ND, leaf.shape[1], ratio) for gate_ND in source])
  return None


def _resample(gate_ND: np.ndarray, points: int, ratio: float) -> np.ndarray:
  """Row k of the result is the gate at row `k * ratio`, linear between rows; ends are held."""
  rows = np.arange(gate_ND.shape[0])
  at = np.arange(points) * ratio
  return np.stack([np.interp(at, rows, column) for column in gate_ND.T], axis=1)
