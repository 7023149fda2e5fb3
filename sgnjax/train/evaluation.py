"""The loss of a split: all of it in order, or a paper's random batches."""

import math
from collections.abc import Callable, Iterable
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh
from ml_collections import ConfigDict

from sgnjax.data import pipeline
from sgnjax.data.rows import unscored
from sgnjax.errors import UserError, check_choice
from sgnjax.parallel import feed
from sgnjax.parallel.mesh import row_shards
from sgnjax.train import objectives
from sgnjax.train.log import mark

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
  short = -len(next(iter(batch.values()))) % row_shards(mesh)
  if short:
    batch = {k: np.concatenate([v, np.repeat(v[-1:], short, 0)]) for k, v in batch.items()}
    batch = unscored(batch, slice(-short, None))
  return feed.place(batch, mesh)


def evaluate(
  config: ConfigDict,
  corpus: pipeline.Corpus,
  eval_step: Callable[[Any, dict], dict],
  params: Any,
  mesh: Mesh,
  step: int,
) -> dict:
  """The evaluation record of `params` (see `sgnjax.train.log`): sums, divided once."""
  split = config.eval.split
  found = jax.device_get(
    [eval_step(params, place(batch, mesh)) for batch in batches(config, corpus, step)]
  )
  objective = objectives.of(config)
  if not any(f['tokens'] for f in found):
    raise UserError(f'nothing of the {split} split is scored: give more of it')
  told = objective.tell(totals(found))
  record = {
    'step': step,
    'kind': 'evaluation',
    'split': split,
    'protocol': config.eval.protocol,
    f'{objective.unit}s': sum(int(f['tokens']) for f in found),
  }
  if config.data.task == 'classify':
    return record | told
  loss = told['loss']
  if config.data.task in ('mlm', 'recall'):
    return record | told | {'unigram': corpus.unigram_nats[split]}
  record |= {
    **_stride(config),
    **measures(loss, corpus.bytes_per_token[split]),
    'bits_per_character': bits(loss, corpus.characters_per_token[split]),
    'unigram': corpus.unigram_nats[split],
    'unigram_bits_per_byte': bits(corpus.unigram_nats[split], corpus.bytes_per_token[split]),
  }
  words_per_token = corpus.words_per_token.get(split)
  if config.data.tokenizer != 'word' and words_per_token:
    record['word_perplexity'] = perplexity(loss / words_per_token)
  return record


def interval(config: ConfigDict, corpus: Any, steps: list[dict], rate: dict) -> dict[str, float]:
  """Numbers of some steps together: loss and accuracy weighed by what was scored, others as means.

  steps: their metrics; rate: tokens a second, and more of that kind.
  """
  scored = max(sum(step['tokens'] for step in steps), 1)
  values = {
    key: math.fsum(step[key] * step['tokens'] for step in steps) / scored
    for key in ('loss', 'accuracy')
    if key in steps[-1]
  }
  if config.data.task == 'lm':
    values = measures(values['loss'], corpus.bytes_per_token['train'])
  values |= {key: steps[-1][key] for key in ('grad_norm', 'lr')}
  unit = f'{objectives.of(config).unit}s'
  values |= {key.replace('tokens', unit): value for key, value in rate.items()}
  for key in dict.fromkeys(key for step in steps for key in step):
    if key not in values and key != 'tokens':
      seen = [step[key] for step in steps if key in step]  # a mixture's step lacks some sets
      values[key] = math.fsum(seen) / len(seen)
  return {k: v for k, v in values.items() if v is not None and math.isfinite(v)}


def totals(found: list[dict]) -> dict[str, Any]:
  """Sums of all batches: scalars by `math.fsum`, vectors in float64."""
  return {
    key: math.fsum(float(f[key]) for f in found)
    if np.ndim(found[0][key]) == 0
    else np.sum([f[key] for f in found], axis=0, dtype=np.float64)
    for key in found[0]
  }


def _stride(config: ConfigDict) -> dict[str, int]:
  """Fresh tokens a window, where windows slide over one text."""
  if config.eval.protocol != 'full' or config.data.packing:
    return {}
  return {'stride': config.eval.stride or max(1, config.model.context // 2)}


def bits(nats: float, units_per_token: float) -> float:
  """Bits a byte or a character, from nats a token."""
  return nats / math.log(2) / units_per_token


def perplexity(nats: float) -> float | None:
  """Of nats a token or a word; None where it overflows."""
  return math.exp(nats) if nats < 700 else None


def measures(loss: float, bytes_per_token: float) -> dict[str, float | None]:
  """Loss in nats/token with its perplexity (None where it overflows) and bits a byte."""
  per_byte = bits(loss, bytes_per_token)
  return {'loss': loss, 'perplexity': perplexity(loss), 'bits_per_byte': per_byte}


def that_counts(config: ConfigDict, records: list[dict]) -> dict | None:
  """Of a run's records the evaluation that its result is: the last one, or the paper's best."""
  found = [r for r in records if r['kind'] == 'evaluation']
  if found and config.eval.protocol == 'paper' and config.eval.pick == 'best':
    return min(found, key=lambda r: r['loss'])
  return found[-1] if found else None


def describe(record: dict, leaky: bool) -> str:
  """An evaluation record as one or two lines, beside what a guess without looking would reach."""
  said = mark(leaky)
  if 'unigram_bits_per_byte' not in record:
    return _describe_answers(record, said)
  parts = [f'{record["loss"]:.4f} nats/token{said}']
  if record['perplexity'] is not None:
    parts.append(f'perplexity {record["perplexity"]:.3f}{said}')
  if record.get('word_perplexity') is not None:
    parts.append(f'{record["word_perplexity"]:.4g}{said} of words')
  parts.append(f'{record["bits_per_byte"]:.4f} bits/byte{said}')
  if 'bits_per_character' in record:
    parts.append(f'{record["bits_per_character"]:.4f} bits/character{said}')
  return (
    f'{record["split"]} at step {record["step"]}: {", ".join(parts)}, {record["tokens"]:,} tokens\n'
    f'  token frequencies alone: {record["unigram"]:.4f} nats/token, '
    f'{record["unigram_bits_per_byte"]:.4f} bits/byte'
  )


def _describe_answers(record: dict, said: str) -> str:
  """The same of masked tokens, of classes and of numbers."""
  units = {'masked_tokens': 'masked token', 'asked_tokens': 'asked token'}
  unit = next((said for key, said in units.items() if key in record), 'example')
  scored = f'{record[f"{unit}s".replace(" ", "_")]:,} {unit}s'
  unit = f'nats/{unit}'
  guess = ''
  if 'majority' in record:
    guess = f'the most frequent class alone: {record["majority"]:.2%}, classes by their '
    guess += f'frequencies {record["entropy"]:.4f} {unit}'
  elif 'variance' in record:
    unit, guess = 'squared error', f'the mean alone: {record["variance"]:.4f} squared error'
  elif 'unigram' in record:
    guess = f'token frequencies alone: {record["unigram"]:.4f} {unit}'
  parts = [f'accuracy {record["accuracy"]:.2%}{said}'] if 'accuracy' in record else []
  parts.append(f'{record["loss"]:.4f} {unit}{said}')
  parts += [f'{k} {record[k]:.4f}{said}' for k in ('f1', 'matthews', 'pearson') if k in record]
  return f'{record["split"]} at step {record["step"]}: {", ".join(parts)}, {scored}\n  {guess}'
