"""The loss of a split: all of it in order, or a paper's random batches."""

import math
from collections.abc import Callable, Iterable
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh
from ml_collections import ConfigDict

from sgnjax.data import pipeline
from sgnjax.errors import UserError, check_choice
from sgnjax.parallel import feed
from sgnjax.parallel.mesh import row_shards
from sgnjax.train.log import mark
from sgnjax.train.step import IGNORED

PROTOCOLS, PICKS = ('full', 'paper'), ('best', 'last')


def check_eval(config: ConfigDict) -> None:
  """Raises UserError for evaluation settings that cannot be."""
  check_choice('eval.protocol', config.eval.protocol, PROTOCOLS)
  check_choice('eval.pick', config.eval.pick, PICKS)
  for key in ('batch', 'batches'):
    if config.eval[key] < 1:
      raise UserError(f'eval.{key}={config.eval[key]}: expected at least 1')


def batches(config: ConfigDict, corpus: pipeline.Corpus, step: int) -> Iterable[dict]:
  """What `eval.protocol` scores at `step`: 'full' always the same, 'paper' fresh random windows."""
  if config.eval.protocol == 'full':
    return pipeline.eval_windows(config, corpus, config.eval.split)
  seed = config.seed + 1_000_003 * (step + 1)  # apart from those of neighbouring seeds
  return pipeline.random_batches(config, corpus, config.eval.split, config.eval.batches, seed)


def place(batch: dict[str, np.ndarray], mesh: Mesh) -> dict[str, jax.Array]:
  """A whole batch on the mesh, with unscored copies of its last row where devices need more rows.

  Among several processes each has read all of it, and puts down what its own devices hold.
  """
  short = -len(batch['tokens']) % row_shards(mesh)
  if short:
    batch = {k: np.concatenate([v, np.repeat(v[-1:], short, 0)]) for k, v in batch.items()}
    batch['targets'][-short:] = IGNORED
  return feed.place(batch, mesh)


def evaluate(
  config: ConfigDict,
  corpus: pipeline.Corpus,
  eval_step: Callable[[Any, dict], dict],
  params: Any,
  mesh: Mesh,
  step: int,
) -> dict:
  """The evaluation record of `params` (see `sgnjax.train.log`): sums over tokens, divided once."""
  split = config.eval.split
  found = jax.device_get(
    [eval_step(params, place(batch, mesh)) for batch in batches(config, corpus, step)]
  )
  tokens = sum(int(f['tokens']) for f in found)
  loss = math.fsum(float(f['loss_sum']) for f in found) / tokens
  record = {
    'step': step,
    'kind': 'evaluation',
    'split': split,
    'protocol': config.eval.protocol,
    'tokens': tokens,
    **measures(loss, corpus.bytes_per_token[split]),
    'unigram': corpus.unigram_nats[split],
    'unigram_bits_per_byte': bits(corpus.unigram_nats[split], corpus.bytes_per_token[split]),
  }
  if config.data.tokenizer == 'char':
    record['bits_per_character'] = bits(loss, corpus.characters_per_token[split])
  return record


def bits(nats: float, units_per_token: float) -> float:
  """Bits a byte or a character, from nats a token."""
  return nats / math.log(2) / units_per_token


def measures(loss: float, bytes_per_token: float) -> dict[str, float]:
  """Loss in nats/token with its perplexity (None where it overflows) and bits a byte."""
  perplexity = math.exp(loss) if loss < 700 else None
  return {'loss': loss, 'perplexity': perplexity, 'bits_per_byte': bits(loss, bytes_per_token)}


def describe(record: dict, leaky: bool) -> str:
  """An evaluation record as one or two lines, the frequencies of single tokens beside it."""
  said = mark(leaky)
  parts = [f'{record["loss"]:.4f} nats/token{said}']
  if record['perplexity'] is not None:
    parts.append(f'perplexity {record["perplexity"]:.3f}{said}')
  parts.append(f'{record["bits_per_byte"]:.4f} bits/byte{said}')
  if 'bits_per_character' in record:
    parts.append(f'{record["bits_per_character"]:.4f} bits/character{said}')
  return (
    f'{record["split"]} at step {record["step"]}: {", ".join(parts)}, {record["tokens"]:,} tokens\n'
    f'  token frequencies alone: {record["unigram"]:.4f} nats/token, '
    f'{record["unigram_bits_per_byte"]:.4f} bits/byte'
  )
