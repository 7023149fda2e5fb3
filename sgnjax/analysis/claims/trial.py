"""What trainings give: runs, differences of arms that are paired by seed, and verdicts on them."""

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from ml_collections import ConfigDict
from scipy import stats

from sgnjax import config as config_lib
from sgnjax.analysis.claims.claim import (
  FAILS,
  HOLDS,
  UNDECIDED,
  WITH_LEAK,
  Decision,
  Finding,
  Table,
)
from sgnjax.train.log import mark

SMALLER = 'smaller than the paper'  # how a setting of such runs begins
LEVEL = 0.95  # of a difference's confidence interval


class Size(NamedTuple):
  """A scale of the experiments on text; `steps` of `batch` windows of `context` tokens."""

  name: str
  layers: int
  width: int
  heads: int
  context: int
  batch: int
  steps: int
  lr: float = 1e-3

  def keys(self) -> dict[str, Any]:
    """Keys of a config of this size."""
    return {
      'model.layers': self.layers,
      'model.width': self.width,
      'model.heads': self.heads,
      'model.context': self.context,
      'model.dropout': 0.0,
      'model.scan_unroll': self.layers,
      'train.batch': self.batch,
      'train.steps': self.steps,
      'train.eval_every': self.steps,
      'train.checkpoint_every': self.steps,
      'optim.lr': self.lr,
      'optim.warmup': min(50, self.steps // 5),
      'eval.stride': self.context,
    }

  def __str__(self) -> str:
    return (
      f'{self.layers} layers, width {self.width}, {self.heads} heads, context {self.context}, '
      f'batch {self.batch}, {self.steps} steps'
    )


SIZES = (
  Size('tiny', 2, 64, 2, 64, 16, 200, 3e-3),
  Size('small', 3, 96, 3, 128, 16, 400, 2e-3),
  Size('middle', 4, 128, 4, 128, 32, 600),
  Size('large', 6, 256, 8, 256, 32, 1500),
)


@dataclass(frozen=True)
class Run:
  """A finished training: where it lies, what it is, and its last evaluation."""

  workdir: Path
  config: ConfigDict
  record: dict[str, Any]

  @property
  def loss(self) -> float:
    """Of the split that is evaluated, nats a token."""
    return self.record['loss']

  @property
  def leaky(self) -> bool:
    return bool(self.record.get('leaky'))

  def to_json(self) -> dict[str, Any]:
    return {
      'workdir': self.workdir.name,
      'hash': config_lib.fingerprint(self.config),
      'seed': self.config.seed,
      'loss': self.loss,
      'leaky': self.leaky,
    }


@dataclass(frozen=True)
class Difference:
  """Of the losses of two arms, first minus second, over the same seeds and batches."""

  seeds: tuple[float, ...]

  @property
  def mean(self) -> float:
    return float(np.mean(self.seeds))

  @functools.cached_property
  def interval(self) -> tuple[float, float]:
    """Of the mean, at `LEVEL`, by Student's t over seeds; infinite for one seed."""
    n = len(self.seeds)
    if n < 2:
      return -math.inf, math.inf
    half = stats.t.ppf((1 + LEVEL) / 2, n - 1) * np.std(self.seeds, ddof=1) / math.sqrt(n)
    return self.mean - float(half), self.mean + float(half)

  @property
  def tells(self) -> bool:
    """Whether the interval excludes 0."""
    low, high = self.interval
    return low > 0 or high < 0

  def less(self) -> str:
    """The verdict on `the first loss is the lower one`."""
    return (HOLDS if self.mean < 0 else FAILS) if self.tells else UNDECIDED

  def __str__(self) -> str:
    low, high = self.interval
    return f'{self.mean:+.4f} [{low:+.4f}, {high:+.4f}]'


@dataclass(frozen=True)
class Trial:
  """The runs of several arms over the same seeds."""

  arms: Mapping[str, tuple[Run, ...]]
  size: Size

  def difference(self, first: str, second: str) -> Difference:
    pairs = zip(self.arms[first], self.arms[second], strict=True)
    return Difference(tuple(a.loss - b.loss for a, b in pairs))

  def loss(self, arm: str) -> float:
    """The mean over seeds."""
    return float(np.mean([run.loss for run in self.arms[arm]]))

  def said(self, arm: str) -> str:
    """The mean loss, marked where the arm sees the future."""
    return f'{self.loss(arm):.4f}{mark(self.arms[arm][0].leaky)}'

  def table(self, against: str | None = None, title: str = 'Losses, nats a token') -> Table:
    """Losses of each arm by seed, and what each is below or above `against`."""
    head = ['arm', 'by seed', 'mean'] + ([f'minus {against} [95 %]'] if against else [])
    rows = []
    for arm, runs in self.arms.items():
      said = mark(runs[0].leaky)
      row = [arm, ' / '.join(f'{run.loss:.4f}{said}' for run in runs), self.said(arm)]
      if against:
        row.append('' if arm == against else f'{self.difference(arm, against)}{said}')
      rows.append(tuple(row))
    return Table(title, tuple(head), tuple(rows))

  @property
  def runs(self) -> tuple[dict[str, Any], ...]:
    return tuple(run.to_json() for runs in self.arms.values() for run in runs)

  @property
  def setting(self) -> str:
    seeds = len(next(iter(self.arms.values())))
    return f'{SMALLER}: {self.size}, {seeds} seed{"s" * (seeds > 1)}'

  def finding(
    self,
    verdict: str,
    said: str,
    *tables: Table,
    decision: Decision | None = None,
    setting: str = '',
  ) -> Finding:
    """What its runs say; setting: what differs from the paper beside the size."""
    return Finding(
      verdict,
      said,
      setting='; '.join(filter(None, [self.setting, setting])),
      tables=tables,
      runs=self.runs,
      decision=decision,
    )


def gain(trial: Trial, base: str, published: str | None, causal: Sequence[str]) -> str:
  """The verdict on `the mechanism is below the base`, from its published and its causal forms.

  Holds where one causal form's interval is below 0; with the leak, where only the published one's
  is and every causal one's is not; not decided where an interval that matters holds 0.
  """
  found = [trial.difference(name, base).less() for name in causal]
  if HOLDS in found:
    return HOLDS
  leaking = trial.difference(published, base).less() if published else FAILS
  if UNDECIDED in (leaking, *found):
    return UNDECIDED
  return WITH_LEAK if leaking == HOLDS else FAILS
