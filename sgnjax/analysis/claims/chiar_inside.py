"""The claims of CHIAR-Former on what trained layers do: routes, gates, embeddings."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sgnjax.analysis.capture import capture, windows
from sgnjax.analysis.claims.chiar_runs import (
  ENTROPY,
  ORTHOGONAL,
  PERMUTED,
  PUBLISHED,
  THREE,
  large,
  pick,
  setting,
  train,
  watched,
)
from sgnjax.analysis.claims.claim import FAILS, HOLDS, UNDECIDED, WITH_LEAK, Finding, Table
from sgnjax.analysis.claims.lab import Lab
from sgnjax.analysis.claims.trial import Difference, Run
from sgnjax.data import pipeline
from sgnjax.mixers.rbf import fourier_features
from sgnjax.ops.dct import dct
from sgnjax.ops.width import orthogonal_matrix
from sgnjax.train.checkpoint import load_params
from sgnjax.train.log import mark

FUNCTION = (
  'the a an of to in on at by for from with as into over under between through during about '
  'against within without and or but nor so yet if than that which who whom whose this these '
  'those it its he his him she her they their them we us our you your i my me is are was were be '
  'been being has have had do does did will would can could may might must shall should not no '
  'there when while where because after before until since although though both either each'
)


def looked(run: Run, count: int = 16) -> tuple[np.ndarray, Any, dict[str, np.ndarray]]:
  """Windows of the validation text, their tokenizer, and what the layers show on them."""
  config, params, tokenizer, _ = load_params(run.workdir, run.config.train.steps)
  corpus = pipeline.load(run.config, tokenizer)
  tokens_BL = windows(corpus.splits['validation'], config.model.context, count)
  return tokens_BL, tokenizer, capture(config, params, tokens_BL, vocab=tokenizer.vocab_size)[1]


def words(lab: Lab) -> Finding:
  trial = train(lab, pick(ENTROPY), seeds=(3, 3))
  shares = []  # (seeds, layers, function or content)
  for run in trial.arms[ENTROPY]:
    tokens_BL, tokenizer, debug = looked(run)
    word_W = [tokenizer.decode([i]).strip() for i in range(tokenizer.vocab_size)]
    function_W = np.asarray([w.lower() in FUNCTION.split() for w in word_W])
    content_W = ~function_W & np.asarray([w.isalpha() and len(w) > 2 for w in word_W])
    routes = [np.asarray(debug[name], bool) for name in sorted(debug) if name.startswith('route/')]
    shares.append([[r[kind[tokens_BL]].mean() for kind in (function_W, content_W)] for r in routes])
  share_SLK = np.asarray(shares)
  found = Difference(tuple(float(d) for d in (share_SLK[..., 0] - share_SLK[..., 1]).mean(1)))
  function, content = share_SLK.mean((0, 1))
  rows = tuple(
    (str(layer + 2), *(f'{share:.1%}' for share in pair))
    for layer, pair in enumerate(share_SLK.mean(0))
  )
  return trial.finding(
    found.less(),
    f'{function:.0%} of function words and {content:.0%} of other words attend in the routed '
    f'layers; difference {found}. Below 0 it is as the paper says.',
    Table('Share that attends', ('layer', 'function words', 'other words'), rows),
    setting=setting(),
    decision=large(ENTROPY),
  )


def rbf_weights(width: int = 256, features: int = 64, gamma: float = 1.0) -> float:
  """The largest weight that a normed random token gives to another one, in float64."""
  rng = np.random.default_rng(0)
  x_LD = rng.standard_normal((128, width))
  x_LD = (x_LD - x_LD.mean(-1, keepdims=True)) / x_LD.std(-1, keepdims=True)
  omega_DR = math.sqrt(2 * gamma) * rng.standard_normal((width, features))
  with jax.enable_x64(True):
    phi_LF = fourier_features(jnp.asarray(x_LD)[None], jnp.asarray(omega_DR))[0]
    weights_LL = np.array(jax.nn.softmax(phi_LF @ phi_LF.T))
  np.fill_diagonal(weights_LL, 0)
  return float(weights_LL.max())


def collapse(lab: Lab) -> Finding:
  trial = train(lab, pick(THREE), seeds=(3, 3))
  share_ST = np.asarray([watched(run, 'rbf_share').mean(1) for run in trial.arms[THREE]])
  middle, end = share_ST[:, share_ST.shape[1] // 2].mean(), share_ST[:, -1]
  still = end.mean() < middle - 0.01  # it goes on falling
  return trial.finding(
    HOLDS if end.max() < 0.05 else UNDECIDED if still else FAILS,
    f'The RBF operator has {end.mean():.1%} of the gates at the end, {middle:.1%} half-way and a '
    f'third at the start; held where all seeds are below 5 %. Whatever it gets, it mixes nothing: '
    f'of two normed tokens of width 256, one gives the other at most {rbf_weights():.0e} of its '
    'weight, so that a router which leaves it out has discovered nothing about text.',
    setting=setting('; masked RBF, soft router; less than an epoch'),
    decision=large(THREE),
  )


def meta_gate(lab: Lab) -> Finding:
  trial = train(lab, pick(ENTROPY, PUBLISHED), seeds=(3, 3))
  gate = {
    name: np.asarray([watched(run, 'meta_gate')[:, 0] for run in found])
    for name, found in trial.arms.items()
  }
  end = {name: float(g_ST[:, -1].mean()) for name, g_ST in gate.items()}
  middle = {name: float(g_ST[:, g_ST.shape[1] // 2].mean()) for name, g_ST in gate.items()}
  near = {name: abs(value - 0.22) <= 0.05 for name, value in end.items()}
  settled = all(abs(end[name] - middle[name]) < 0.01 for name in end)
  verdict = HOLDS if near[ENTROPY] else WITH_LEAK if near[PUBLISHED] else UNDECIDED
  if verdict == UNDECIDED and settled:
    verdict = FAILS
  leaky = mark(trial.arms[PUBLISHED][0].leaky)
  rows = tuple(
    (name, f'{middle[name]:.3f}{said}', f'{end[name]:.3f}{said}')
    for name, said in ((ENTROPY, ''), (PUBLISHED, leaky))
  )
  return trial.finding(
    verdict,
    f'From 0.5 it moves to {end[ENTROPY]:.3f} in the causal form and to {end[PUBLISHED]:.3f}'
    f'{leaky} in the published one; near is within 0.05 of 0.22, settled is within 0.01 over the '
    'second half.',
    Table('Mean gate', ('form', 'half-way', 'end'), rows),
    setting=setting(),
    decision=large(ENTROPY, PUBLISHED),
  )


def toeplitz_share(cov_DD: np.ndarray) -> float:
  """Share of what varies beside the diagonal that the means along the diagonals hold."""
  diagonals = [np.diagonal(cov_DD, lag) for lag in range(1, len(cov_DD))]
  mean = np.concatenate(diagonals).mean()  # the same in every order of the channels
  held = sum(len(d) * (d.mean() - mean) ** 2 for d in diagonals)
  return float(held / sum(np.sum((d - mean) ** 2) for d in diagonals))


def coding_gain(variance_D: np.ndarray) -> float:
  """Log of arithmetic over geometric mean of the variances of coefficients."""
  return float(np.log(variance_D.mean()) - np.log(variance_D).mean())


def basis_report(cov_DD: np.ndarray, draws: int = 200) -> dict[str, float]:
  """Of a covariance over the width: how Toeplitz it is and what the DCT gains, against chance."""
  width = len(cov_DD)
  with jax.enable_x64(True):
    dct_DD = np.asarray(dct(jnp.eye(width, dtype=jnp.float64))).T

  def gain(basis_DD, cov_DD):
    return coding_gain(np.einsum('kn,nm,km->k', basis_DD, cov_DD, basis_DD, optimize=True))

  rng = np.random.default_rng(0)
  orders = [rng.permutation(width) for _ in range(draws)]
  permuted = [cov_DD[np.ix_(order, order)] for order in orders]
  best = coding_gain(np.linalg.eigvalsh(cov_DD))
  return {
    'toeplitz': toeplitz_share(cov_DD),
    'toeplitz, permuted': float(np.quantile([toeplitz_share(c) for c in permuted], 0.95)),
    'DCT': gain(dct_DD, cov_DD) / best,
    'DCT, permuted': float(np.quantile([gain(dct_DD, c) for c in permuted], 0.95)) / best,
    'random basis': gain(orthogonal_matrix(width), cov_DD) / best,
  }


def embedding(run: Run) -> np.ndarray:
  """The trained embeddings of the words of a run, in float64."""
  _, params, tokenizer, _ = load_params(run.workdir, run.config.train.steps)
  return np.asarray(params['embedding'], np.float64)[: tokenizer.vocab_size]


def toeplitz(lab: Lab) -> Finding:
  trial = train(lab, pick(ENTROPY, ORTHOGONAL, PERMUTED), against=ENTROPY)
  reports = [basis_report(np.cov(embedding(run).T)) for run in trial.arms[ENTROPY]]
  mean = {key: float(np.mean([report[key] for report in reports])) for key in reports[0]}
  near = all(report['DCT'] >= 0.9 for report in reports)
  cause = all(report['toeplitz'] > report['toeplitz, permuted'] for report in reports)
  found = [trial.difference(ENTROPY, name) for name in (ORTHOGONAL, PERMUTED)]
  worth = all(difference.less() == HOLDS for difference in found)
  fits = near and cause
  rows = tuple(
    (name, *(f'{report[name]:.1%}' for report in reports), f'{mean[name]:.1%}') for name in mean
  )
  head = ('of the best gain, or of the energy', *(f'seed {i}' for i in range(len(reports))), 'mean')
  return trial.finding(
    HOLDS if fits and worth else UNDECIDED if fits or worth else FAILS,
    f'Of the gain of the best basis for its embeddings the DCT has {mean["DCT"]:.0%}, a random one '
    f'{mean["random basis"]:.0%}. Means along diagonals hold {mean["toeplitz"]:.1%} of how the '
    f'covariance varies; of random orders of channels one in twenty has over '
    f'{mean["toeplitz, permuted"]:.1%}. DCT minus random basis {found[0]}, minus permuted channels '
    f'{found[1]} nats. '
    'Near-optimal is 90 % of the gain.',
    Table('Covariance of trained embeddings', head, rows),
    trial.table(ENTROPY),
    setting=setting(),
    decision=large(ENTROPY, ORTHOGONAL, PERMUTED),
  )
