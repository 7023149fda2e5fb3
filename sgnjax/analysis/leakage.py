"""What two ways of looking for a leak say of a trained model: the shuffled gap, and the audit.

The shuffled gap is FourierQK's: the loss on one permutation of the validation stream's tokens minus
the loss in order. Its paper reads a gap above 4 nats as clean and one below 2 as leaky. It tells
how much the order of the text matters, and nothing of who sees whom.
"""

import dataclasses
import json
import math
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from sgnjax import audit
from sgnjax import config as config_lib
from sgnjax.analysis.capture import capture, windows
from sgnjax.audit.sizes import sizes
from sgnjax.data import pipeline
from sgnjax.errors import UserError
from sgnjax.models import build
from sgnjax.ops.filters import SURROGATES, coverage
from sgnjax.parallel.mesh import make_mesh, replicated
from sgnjax.train import objectives
from sgnjax.train.checkpoint import load_params
from sgnjax.train.evaluation import evaluate
from sgnjax.train.log import mark, write_atomically
from sgnjax.train.step import make_eval_step

FILE = 'leakage.json'
CLEAN, LEAKY = 4.0, 2.0  # nats of the gap, as the paper reads them
LONGEST = 512  # tokens of the audit of trained weights


def shuffled(tokens_N: np.ndarray, seed: int = 0) -> np.ndarray:
  """One permutation of the whole stream."""
  return np.random.default_rng(seed).permutation(tokens_N)


def reading(gap: float) -> str:
  """What the paper's rule says of a gap."""
  return 'clean' if gap > CLEAN else 'leaky' if gap < LEAKY else 'between'


def measure(workdir: Path) -> dict:
  """The record of a run's best checkpoint, which is written to leakage.json too.

  `loss`, `shuffled`, `gap` and its `reading`; `leaky`, `size` and `layer` of the audit of these
  weights; `changes`: by layer, the largest change at each place before the middle of a window when
  all tokens from there on are replaced; `surrogates`: the loss under each change of phases, and
  `coverage` of the filters, where there are filters over the sequence. Raises UserError for a run
  of another task than lm.
  """
  config, params, tokenizer, step = load_params(workdir)
  if config.data.task != 'lm':
    raise UserError(f"workdir '{workdir}' is of data.task={config.data.task}; a gap is of text")
  corpus = pipeline.load(config)
  if corpus.tokenizer.to_json() != tokenizer.to_json():
    raise UserError(f"the text ({corpus.source}) has another vocabulary than that of '{workdir}'")
  vocab, split = tokenizer.vocab_size, config.eval.split
  length = min(config.model.context, LONGEST)
  model = build(config, vocab=vocab)
  report = audit.audit(model, params, vocab=vocab, length=length)
  tokens_BL = windows(corpus.splits[split], length, 2).astype(np.int32)
  changes = sizes(model, params, tokens_BL, cut=length // 2, vocab=vocab)
  mixed = dataclasses.replace(
    corpus, splits=corpus.splits | {split: shuffled(corpus.splits[split])}
  )
  loss = _loss(config, corpus, params, step, vocab)
  found = {
    'name': workdir.resolve().name,
    'mixer': config.model.mixer,
    'form': config.model.form,
    'step': step,
    'split': split,
    'loss': loss,
    'shuffled': _loss(config, mixed, params, step, vocab),
    'leaky': report.leaky,
    'size': report.size,
    'layer': report.layer,
    'changes': {name: change_L.tolist() for name, change_L in changes.items()},
    'config_hash': config_lib.fingerprint(config),
  }
  found['gap'] = found['shuffled'] - loss
  found['reading'] = reading(found['gap'])
  if config.model.mixer == 'fourier_qk' and config.model.form == 'published':
    found |= _filters(config, corpus, params, tokens_BL, step, vocab)
  write_atomically(workdir / FILE, json.dumps(found) + '\n')
  return found


def _loss(config: ConfigDict, corpus, params, step: int, vocab: int) -> float:
  mesh = make_mesh(config)
  eval_step = make_eval_step(build(config, vocab=vocab), mesh, objectives.of(config).sums)
  placed = jax.device_put(jax.tree.map(np.asarray, params), replicated(mesh))
  return evaluate(config, corpus, eval_step, placed, mesh, step)['loss']


def _filters(config, corpus, params, tokens_BL, step, vocab) -> dict:
  """Phase surrogates, and the coverage of the trained filters: of each, and of all together."""
  found = {}
  for name in SURROGATES:
    changed = config.copy_and_resolve_references().unlock()
    changed.model.fourier_qk.surrogate = name
    found[name] = _loss(changed, corpus, params, step, vocab)
  _, debug = capture(config, params, tokens_BL, vocab=vocab)
  responses = [np.asarray(a, np.float32) for k, a in debug.items() if k.startswith('response/')]
  each = [np.asarray(coverage(jnp.asarray(a))) for a in responses]
  return {'surrogates': found, 'coverage': float(np.mean(each))}


def describe(found: dict) -> str:
  """The record as a few lines."""
  said = mark(found['leaky'])
  audited = f'LEAKY, {found["size"]:.1e} of the largest logit' if found['leaky'] else 'causal'
  lines = [
    f'{found["name"]}: {found["split"]} loss {found["loss"]:.4f}{said}, on shuffled text '
    f'{found["shuffled"]:.4f}{said}, gap {found["gap"]:.3f}{said} ({found["reading"]} by the '
    f"gap's rule); the audit: {audited}"
  ]
  worst = max((max(c, default=0.0), name) for name, c in found['changes'].items())
  if found['leaky'] and not math.isnan(worst[0]):
    lines.append(f'  largest change before the replaced tokens: {worst[0]:.1e}{said} ({worst[1]})')
  for name, loss in found.get('surrogates', {}).items():
    lines.append(f'  phases {name}: {loss:.4f}{said}')
  if 'coverage' in found:
    lines.append(
      f'  spectral coverage (bins at half the peak or more): {found["coverage"]:.1%}{said}'
    )
  return '\n'.join(lines)
