"""The claims of EGA that the parameters of trained models decide."""

import jax
import numpy as np

from sgnjax.analysis.capture import capture, windows
from sgnjax.analysis.claims.claim import FAILS, HOLDS, UNDECIDED, Finding
from sgnjax.analysis.claims.lab import Changes, Lab, arm, larger
from sgnjax.analysis.claims.trial import Run, Trial
from sgnjax.data import pipeline
from sgnjax.train.checkpoint import load_params
from sgnjax.train.log import mark


def _alone(lab: Lab, keys: Changes, seeds: int = 3) -> tuple[Trial, tuple[Run, ...], str]:
  """The trial of one arm, its runs, and what marks their numbers where they see the future."""
  trial = lab.trial({'it': keys}, seeds=(seeds, seeds))
  runs = trial.arms['it']
  return trial, runs, mark(runs[0].leaky)


def _weights(run: Run):
  """At its last step."""
  return load_params(run.workdir, run.config.train.steps)[1]


def _leaf(params, *names: str) -> np.ndarray:
  """All numbers of the parameters whose last name is one of these, in float64, flat."""
  found = [
    np.ravel(np.asarray(leaf, np.float64))
    for path, leaf in jax.tree_util.tree_flatten_with_path(params)[0]
    if path[-1].key in names
  ]
  return np.concatenate(found)


def _spread(values: np.ndarray) -> str:
  return f'{values.mean():.3f} +- {values.std():.3f} over layers and heads'


def morlet_product(lab: Lab) -> Finding:
  trial, runs, leaky = _alone(lab, arm('ega-morlet'))
  params = [_weights(run) for run in runs]
  products = np.concatenate(
    [np.exp(_leaf(p, 'log_omega0') + _leaf(p, 'log_sigma')) for p in params]
  )
  moved = float(np.max(np.abs(products - 5)))
  return trial.finding(
    FAILS if moved < 0.5 else UNDECIDED,
    f'It starts at 5, which is also the bound below which it is clamped, and ends at '
    f'{_spread(products)}{leaky}; the largest move is {moved:.3f}{leaky}. It stayed where the '
    f'largest move is below 0.5: a number that stays at its start is not found by training.',
    decision=larger('shakespeare_ega', [arm('ega-morlet')]),
  )


def threshold(lab: Lab) -> Finding:
  trial, runs, leaky = _alone(lab, arm('ega-published'))
  taus = np.concatenate([_leaf(_weights(run), 'tau') for run in runs])
  above = [np.mean(_shown(run, 'gate') > 0.5) for run in runs]  # g > 1/2 where z > tau
  return trial.finding(
    HOLDS if abs(taus.mean() - 0.35) < 0.05 and abs(np.mean(above) - 0.36) < 0.05 else UNDECIDED,
    f'tau ends at {_spread(taus)}{leaky} (start 0, the paper 0.35); {np.mean(above):.0%}{leaky} of '
    f'tokens are above it (the paper 36 %). After {lab.size.steps} steps it may still move.',
    decision=larger('shakespeare_ega', [arm('ega-published')]),
  )


def _shown(run: Run, key: str) -> np.ndarray:
  """A debug array of all layers on windows of the validation text, stacked."""
  config, params, tokenizer, _ = load_params(run.workdir, run.config.train.steps)
  corpus = pipeline.load(run.config, tokenizer)
  tokens_BL = windows(corpus.splits['validation'], config.model.context)
  _, debug = capture(config, params, tokens_BL, vocab=tokenizer.vocab_size)
  return np.stack([np.asarray(debug[name]) for name in sorted(debug) if name.startswith(f'{key}/')])


def scale_weights(lab: Lab) -> Finding:
  trial, runs, leaky = _alone(lab, arm('ega-published-4'))
  weights = []
  for run in runs:
    logits_XS = _leaf(_weights(run), 'scale_logits').reshape(-1, 4)
    odds_XS = np.exp(logits_XS - logits_XS.max(-1, keepdims=True))
    weights.append(odds_XS / odds_XS.sum(-1, keepdims=True))
  mean_S = np.concatenate(weights).mean(0)
  off = float(np.max(np.abs(mean_S - 0.25)))
  return trial.finding(
    HOLDS if off < 0.05 else FAILS,
    f'Means over layers and heads: {", ".join(f"{w:.3f}" for w in mean_S)}{leaky} (the paper: '
    f'0.226, 0.253, 0.260, 0.260). They start equal; largest distance from a quarter '
    f'{off:.3f}{leaky}, near is below 0.05.',
    decision=larger('shakespeare_ega', [arm('ega-published-4')]),
  )


def _directions(run: Run) -> tuple[np.ndarray, np.ndarray]:
  """Of each layer the gates' directions (N, H, D), and the inputs' second moments (N, D, D)."""
  params = _weights(run)
  hidden_NBLD = _shown(run, 'hidden')
  layers, _, _, width = hidden_NBLD.shape
  w_NHD = _leaf(params, 'w_gate').reshape(layers, -1, width)
  # A layer's gate reads the LayerNorm of what the layer before gave.
  x_NTD = hidden_NBLD[:-1].reshape(layers - 1, -1, width).astype(np.float64)
  x_NTD = x_NTD - x_NTD.mean(-1, keepdims=True)
  x_NTD /= np.sqrt(np.mean(x_NTD**2, -1, keepdims=True) + 1e-5)
  return w_NHD[1:], x_NTD


def alignment(lab: Lab) -> Finding:
  trial, runs, leaky = _alone(lab, arm('ega-published'))
  shares, chance = [], []
  for run in runs:
    w_NHD, x_NTD = _directions(run)
    for w_HD, x_TD in zip(w_NHD, x_NTD, strict=True):
      _, vectors = np.linalg.eigh(np.cov(x_TD.T))
      cosine_H = np.abs(w_HD @ vectors[:, -1]) / np.linalg.norm(w_HD, axis=-1)
      shares += cosine_H.tolist()
      chance.append(np.sqrt(2 / (np.pi * len(vectors))))  # mean |cos| of a random direction
  mean, random = float(np.mean(shares)), float(np.mean(chance))
  return trial.finding(
    HOLDS if mean > 0.5 else FAILS if mean < 2 * random else UNDECIDED,
    f'|cos| of w and the leading principal component of its input: {mean:.3f}{leaky} on average, '
    f'largest {max(shares):.3f}{leaky}; a random direction has {random:.3f}.',
    setting='layers from the second on, gains of the norm left out',
    decision=larger('shakespeare_ega', [arm('ega-published')]),
  )


def energy(lab: Lab) -> Finding:
  """What the gate's number has to do with energy, on a trained model's own inputs."""
  trial, runs, leaky = _alone(lab, arm('ega-published'), seeds=1)
  correlations, spread = [], []
  for w_HD, x_TD in zip(*_directions(runs[0]), strict=True):
    total_T = np.sum(x_TD**2, -1)
    spread.append(float(total_T.std() / total_T.mean()))
    projected_TH = x_TD @ w_HD.T
    for e_T in projected_TH.T:
      correlations.append(abs(np.corrcoef(e_T, e_T**2)[0, 1]))
  return trial.finding(
    HOLDS if max(spread) < 0.02 else FAILS,
    f'Behind LayerNorm the energy of a token, in any orthonormal basis, is the width: its spread '
    f'is {max(spread):.0e} of its mean. `e = w.x` is a signed projection; its size correlates with '
    f'its square by {np.mean(correlations):.2f}{leaky} on average. The gate selects a direction.',
    setting='gains of the norm left out',
  )
