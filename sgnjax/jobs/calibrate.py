"""CHIAR's routing thresholds, from the spectral entropies of real tokens.

As released: percentiles over the embeddings of the tokens of a text, each as often as it occurs.
Deeper layers see other vectors, so their entropies stand beside.
"""

import datetime
import functools
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from sgnjax.analysis.capture import windows
from sgnjax.audit.report import aligned
from sgnjax.data import pipeline
from sgnjax.errors import UserError
from sgnjax.jobs.language import check_same_model
from sgnjax.mixers.chiar import Routed
from sgnjax.models import build
from sgnjax.models.decoder import Decoder
from sgnjax.ops.entropy import spectral_entropy, thresholds, white_entropy
from sgnjax.train import checkpoint
from sgnjax.train.log import mark
from sgnjax.train.model import make_model

OCCURRENCES = 2**20  # tokens of the train split, at most, whose embeddings are measured
WINDOWS, ROWS = 32, 4  # of the train split, and how many at a time, for the routed layers
CHUNK = 4096  # rows of the table at a time: float64 and wide
# What a calibration may change of the model that a checkpoint was trained as.
FREE = tuple(f'model.chiar.{key}' for key in ('tau', 'calibrated', 'rate'))


class Calibration(NamedTuple):
  """Percentiles of entropies, their midpoint, and the share and mean of the tokens measured.

  share: of the tokens above the midpoint; high_share: above the upper percentile.
  """

  low: float
  high: float
  middle: float
  share: float
  high_share: float
  mean: float


def calibrate(entropy_N: np.ndarray) -> Calibration:
  """The thresholds that the published rule takes from these entropies."""
  low, high = thresholds(entropy_N)
  middle = (low + high) / 2
  above = (float(np.mean(entropy_N > tau)) for tau in (middle, high))
  return Calibration(low, high, middle, *above, float(np.mean(entropy_N)))


def embedding_entropy(table_VD: np.ndarray, ids_N: np.ndarray, **scaling) -> np.ndarray:
  """Entropy of each token's embedding, float64 (N,). scaling: basis and released."""
  rows_U, back_N = np.unique(ids_N, return_inverse=True)
  found = []
  with jax.enable_x64(True):
    entropy = jax.jit(functools.partial(spectral_entropy, **scaling))
    for start in range(0, len(rows_U), CHUNK):
      rows_RD = np.asarray(table_VD[rows_U[start : start + CHUNK]], np.float64)
      found.append(np.asarray(entropy(jnp.asarray(rows_RD))))
  return np.concatenate(found)[back_N]


def layer_entropy(model: Decoder, params: Any, tokens_BL: np.ndarray) -> dict[int, np.ndarray]:
  """Entropies at each routed layer, by its number counted from 0."""

  @jax.jit
  def run(params, tokens_BL):
    debug = model.apply({'params': params}, tokens_BL).aux.debug
    return {key: value for key, value in debug.items() if key.startswith('entropy/')}

  parts = [
    jax.device_get(run(params, jnp.asarray(tokens_BL[i : i + ROWS], jnp.int32)))
    for i in range(0, len(tokens_BL), ROWS)
  ]
  return {
    int(key.split('/')[1]): np.concatenate([part[key].ravel() for part in parts]).astype(np.float64)
    for key in parts[0]
  }


def run(config: ConfigDict, workdir: str | Path) -> int:
  """Prints percentiles, shares and the lines for a config; writes nothing.

  The weights are those of the workdir's best checkpoint, or without one the initial ones of the
  config's seed. Raises UserError where no layer routes, and where the checkpoint is another model's
  or another text's.
  """
  config = config.copy_and_resolve_references().unlock()
  config.model.chiar.calibrated = None  # what a new calibration replaces
  corpus = pipeline.load(config)
  model = make_model(config, corpus.tokenizer)
  if not any(isinstance(block.make(parent=None), Routed) for _, block in model.layers()):
    raise UserError(f"no layer of model.mixer='{config.model.mixer}' routes: expected 'chiar'")
  params, origin = _weights(config, workdir, model, corpus)
  model = build(config, vocab=corpus.tokenizer.vocab_size, capture=True)
  mixers = (block.make(parent=None) for _, block in model.layers())
  mixer = next(mixer for mixer in mixers if isinstance(mixer, Routed))
  tokens_N = corpus.splits['train']
  ids_N = tokens_N[:: -(-len(tokens_N) // OCCURRENCES)]
  scaling = {'basis': mixer.basis, 'released': mixer.released}
  found = calibrate(embedding_entropy(np.asarray(params['embedding']), ids_N, **scaling))
  by_layer = layer_entropy(model, params, windows(tokens_N, config.model.context, WINDOWS))
  name = 'released' if mixer.released else mixer.basis
  text = f'train split of {corpus.source}'
  print(f'{text}: {len(ids_N):,} tokens, {len(np.unique(ids_N)):,} of them distinct')
  print(f"{origin}; coefficients '{name}'\n")
  print('\n'.join(_embeddings(found, config.model.width)))
  print('\n'.join(['', *_layers(by_layer, found, mixer, mark(not model.causal))]))
  print('\n'.join(['', *_lines(found, mixer, name, f'{origin}, {text}')]))
  return 0


def _weights(config, workdir, model, corpus) -> tuple[Any, str]:
  """Parameters, and a phrase that says which. Takes the trained thresholds over into the config."""
  if not checkpoint.committed(workdir):
    tokens_BL = jnp.zeros((1, config.model.context), jnp.int32)
    params = jax.jit(model.init)(jax.random.key(config.seed), tokens_BL)['params']
    return params, f'initial weights of seed {config.seed} (no checkpoint in {workdir})'
  trained, params, tokenizer, step = checkpoint.load_params(workdir)
  check_same_model(workdir, trained, config, 'calibrate', FREE)
  if corpus.tokenizer.to_json() != tokenizer.to_json():
    raise UserError(
      f"the text ({corpus.source}) has another vocabulary than that of workdir '{workdir}'"
    )
  for key in ('tau', 'tau_low', 'rate'):  # its layers see what its own routes make of the text
    config.model.chiar[key] = trained.model.chiar[key]
  return params, f'weights of {workdir} at step {step}'


def _embeddings(found: Calibration, width: int) -> list[str]:
  rows = [
    ('entropy of the embeddings', ''),
    ('mean', f'{found.mean:.4f}'),
    (f'mean of white noise at width {width}', f'{white_entropy(width):.4f}'),
    ('33rd percentile', f'{found.low:.4f}'),
    ('67th percentile', f'{found.high:.4f}'),
    ('midpoint', f'{found.middle:.4f}'),
    ('share above the midpoint', f'{found.share:.1%}'),
    ('share above the 67th percentile', f'{found.high_share:.1%}'),
  ]
  return aligned(rows, right=(1,))


def _layers(by_layer, found: Calibration, mixer: Routed, leaky: str) -> list[str]:
  """One line a routed layer, and the rate that a random router of these weights would need."""
  tau = found.high if mixer.rbf else found.middle
  rows = [('routed layer', 'mean', '33rd', '67th', 'midpoint', f'above {tau:.4f}', 'above tau')]
  for layer, entropy_N in by_layer.items():
    here = calibrate(entropy_N)
    numbers = (f'{value:.4f}' for value in (here.mean, here.low, here.high, here.middle))
    above = (f'{np.mean(entropy_N > edge):.1%}' for edge in (tau, mixer.tau))
    rows.append((f'{layer + 1}{leaky}', *numbers, *above))
  rate = float(np.mean([np.mean(entropy_N > mixer.tau) for entropy_N in by_layer.values()]))
  note = f'tau: the {mixer.tau:.4f} that these weights route by'
  if mixer.router == 'threshold':
    note += f'; a random router of equal rate{leaky}: c.model.chiar.rate = {rate:.4f}'
  return [*aligned(rows, right=range(1, 7)), note]


def _lines(found: Calibration, mixer: Routed, name: str, origin: str) -> list[str]:
  lines = ['for the config:']
  if mixer.rbf:
    lines.append(f'  c.model.chiar.tau_low = {found.low:.4f}')
  lines.append(f'  c.model.chiar.tau = {found.high if mixer.rbf else found.middle:.4f}')
  lines.append(f"  c.model.chiar.calibrated = '{name}'")
  today = datetime.date.today().isoformat()
  return [*lines, f'for its docstring: tau calibrated on {today}: {origin}.']
