"""The claims of FourierQK about the centres that training finds."""

from collections.abc import Mapping, Sequence

import jax
import numpy as np
from ml_collections import ConfigDict

from sgnjax import config as config_lib
from sgnjax.analysis.claims.claim import FAILS, HOLDS, UNDECIDED, Finding
from sgnjax.analysis.claims.fourier_qk_runs import FILE, filtered, full
from sgnjax.analysis.claims.lab import Changes, Lab
from sgnjax.analysis.claims.trial import Run, Trial
from sgnjax.train.checkpoint import load_params
from sgnjax.train.log import mark
from sgnjax.train.optim import schedule

PLACE, NEAR = 4.1, 0.6  # bins: where the paper's centres end, and how near is there


def reach(config: ConfigDict) -> float:
  """By what factor Adam can move a centre at most: a step moves its logarithm by about lr."""
  rate = schedule(config)
  return float(np.exp(np.sum(np.asarray(rate(np.arange(config.train.steps))))))


def centres(run: Run) -> np.ndarray:
  """Learned centres in bins of the context: (layers, H)."""
  _, params, *_ = load_params(run.workdir, run.config.train.steps)
  found = [
    np.asarray(leaf, np.float64)
    for path, leaf in jax.tree_util.tree_flatten_with_path(params)[0]
    if path[-1].key == 'log_centre'
  ]
  return np.exp(np.concatenate(found))[..., 0] * run.config.model.context


def _starts(context: int) -> Mapping[str, Changes]:
  """The frequency ablation's learned filter, from two places."""
  starts = {'from 4': (4.0,), 'from 16': (16.0,)}
  return {name: filtered(norm='l2', bins=bins) for name, bins in starts.items()}


def _learned(lab: Lab, names: Sequence[str]) -> tuple[Trial, dict[str, np.ndarray]]:
  """The trial, and all centres of each arm: (seeds, layers, H)."""
  arms = _starts(lab.size.context)
  trial = lab.trial({n: arms[n] for n in names}, seeds=(3, 3), file=FILE)
  return trial, {n: np.stack([centres(run) for run in trial.arms[n]]) for n in names}


def learned_frequency(lab: Lab) -> Finding:
  trial, found = _learned(lab, ('from 4', 'from 16'))
  mean, other = found['from 4'].mean(), found['from 16'].mean()
  leaky, config = mark(trial.arms['from 4'][0].leaky), trial.arms['from 4'][0].config
  paper = reach(config_lib.load(config_lib.CONFIGS / f'{FILE}.py'))
  said = 'the place is that of the start, not a finding' if abs(other - 16) < 4 else 'it moves'
  stays, free = abs(mean - PLACE) < NEAR, reach(config) > 1 + NEAR / PLACE
  return trial.finding(
    (HOLDS if free else UNDECIDED) if stays else FAILS,
    f'From bin 4 centres end at {mean:.2f} on average ({found["from 4"].min():.2f} to '
    f'{found["from 4"].max():.2f}){leaky}; from bin 16 at {other:.2f}{leaky}: {said}. Adam moves a '
    f'centre by a factor of about {reach(config):.2f} at most in these steps, {paper:.2f} in the '
    "paper's 5,000.",
    trial.table(),
    decision=full(_starts),
  )


def _ratio(values_N: np.ndarray) -> float:
  """The median ratio of neighbours of sorted centres."""
  ordered_N = np.sort(values_N)
  return float(np.median(ordered_N[1:] / ordered_N[:-1]))


def dyadic(lab: Lab) -> Finding:
  trial, found = _learned(lab, ('from 4',))
  centre_RLH = found['from 4']
  layers = float(np.mean([_ratio(c_LH.mean(1)) for c_LH in centre_RLH]))
  heads = float(np.mean([_ratio(c_LH.mean(0)) for c_LH in centre_RLH]))
  span = float(np.mean(centre_RLH.max((1, 2)) / centre_RLH.min((1, 2))))
  run = trial.arms['from 4'][0]
  leaky, most = mark(run.leaky), reach(run.config) ** 2
  near = any(1.6 < ratio < 2.5 for ratio in (layers, heads))
  return trial.finding(
    HOLDS if near else UNDECIDED if most < 2 else FAILS,
    f'Sorted centres of layers follow each other by a factor of {layers:.3f}{leaky}, those of '
    f'heads by {heads:.3f}{leaky} (dyadic: 2); the largest is {span:.2f}{leaky} times the '
    f'smallest. All start at one bin, and Adam could have parted two by a factor of {most:.1f}.',
    trial.table(),
    decision=full(lambda context: {'from 4': _starts(context)['from 4']}),
  )
