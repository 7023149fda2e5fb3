"""The claim of SGN that the parameters of trained models decide."""

import jax
import numpy as np

from sgnjax.analysis.capture import windows
from sgnjax.analysis.claims.claim import Finding, Table
from sgnjax.analysis.claims.lab import SEEDS, Lab, larger
from sgnjax.analysis.claims.sgn_runs import ARMS, PLAIN, PUBLISHED, all_of, of_forms
from sgnjax.analysis.claims.trial import Difference, Run
from sgnjax.data import pipeline
from sgnjax.ops.dct import dct
from sgnjax.train.checkpoint import load_params
from sgnjax.train.log import mark


def frequencies(lab: Lab) -> Finding:
  """Shares of the lowest quarter of the frequencies, in gates and in embeddings of text."""
  trial = lab.trial({PLAIN: ARMS[PLAIN], PUBLISHED: ARMS[PUBLISHED]}, seeds=(SEEDS[0], SEEDS[0]))
  gates, texts = {PLAIN: [], PUBLISHED: []}, []
  for name, runs in trial.arms.items():
    for run in runs:
      _, params, tokenizer, _ = load_params(run.workdir, run.config.train.steps)
      gates[name].append(_low(_gates(params)))
      if name == PLAIN:
        texts.append(_low(_embedded(run, params, tokenizer)))
  shares = {**gates, 'embeddings': texts}
  above = {name: Difference(tuple(0.25 - s for s in found)) for name, found in shares.items()}
  leaky = mark(trial.arms[PUBLISHED][0].leaky)
  verdict = of_forms(
    all_of([above[PLAIN].less(), above['embeddings'].less()]),
    above[PUBLISHED].less(),
    leaky=bool(leaky),
  )
  rows = tuple(
    (name, *(f'{s:.3f}' for s in found), f'{np.mean(found):.3f}') for name, found in shares.items()
  )
  return trial.finding(
    verdict,
    'Energy in the lowest quarter of the frequencies: '
    f'{np.mean(gates[PLAIN]):.1%} of causal gates, {np.mean(gates[PUBLISHED]):.1%}{leaky} of '
    f'published ones, {np.mean(texts):.1%} of embeddings along the text; 25 % is flat, as all '
    'gates start. Held where gates of the causal form and embeddings are above.',
    Table(
      'Share of the lowest quarter, by seed',
      ('of', *map(str, range(len(texts))), 'mean'),
      rows,
    ),
    setting='on characters of TinyShakespeare; plain gates stand for the '
    'interactions, which the paper does not measure',
    decision=larger('sgn_wikitext103', [ARMS[PLAIN], ARMS[PUBLISHED]]),
  )


def _gates(params) -> np.ndarray:
  """All gates of a model, frequencies first: (points, layers * D)."""
  leaves = [
    np.asarray(leaf, np.float64)
    for path, leaf in jax.tree_util.tree_flatten_with_path(params)[0]
    if path[-1].key == 'gate'
  ]
  points = leaves[0].shape[-2]
  return np.concatenate([np.moveaxis(leaf, -2, 0).reshape(points, -1) for leaf in leaves], 1)


def _embedded(run: Run, params, tokenizer) -> np.ndarray:
  """Spectrum of token embeddings along windows of the text, frequencies first, without the mean."""
  corpus = pipeline.load(run.config, tokenizer)
  tokens_BL = windows(corpus.splits['validation'], run.config.model.context, 16)
  e_BLD = np.asarray(params['embedding'], np.float32)[tokens_BL]
  spectrum_BLD = dct(e_BLD - e_BLD.mean((0, 1)), 1)
  return np.moveaxis(np.asarray(spectrum_BLD), 1, 0).reshape(e_BLD.shape[1], -1)


def _low(spectrum_PX: np.ndarray) -> float:
  """The share of energy in the lowest quarter of the points."""
  energy_P = np.sum(np.square(spectrum_PX), 1)
  at = len(energy_P) / 4
  whole = int(at)
  low = energy_P[:whole].sum() + (at - whole) * energy_P[whole]
  return float(low / energy_P.sum())
