"""Where claims are tried: trainings that are paired by seed, kept, and never run twice."""

import json
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
from ml_collections import ConfigDict

from sgnjax import audit
from sgnjax import config as config_lib
from sgnjax.analysis import targets
from sgnjax.analysis.claims.claim import OPEN, Decision, Finding
from sgnjax.analysis.claims.trial import SIZES, Run, Size, Trial
from sgnjax.analysis.flops import flops
from sgnjax.models import build, count, example
from sgnjax.models.variants import VARIANTS
from sgnjax.train import loop
from sgnjax.train.checkpoint import committed
from sgnjax.train.log import duration, read_records, write_atomically

Changes = Mapping[str, Any]
SEEDS = (3, 5)  # a difference is asked of so many seeds, and of so many where three do not tell
SHARE = 0.4  # of a chip's peak that a prediction of cost counts on
# Files of a data set below the folder of real data.
PATHS = {
  'tiny_shakespeare': 'tinyshakespeare/input.txt',
  'ptb/char': 'ptb',
  'wikitext2': 'wikitext-2',
}


class OutOfBudgetError(Exception):
  """The next training would not end within the budget; nothing is lost."""


class StoppedError(Exception):
  """A signal ended a training, which is saved; number: of the signal."""

  def __init__(self, number: int | None):
    super().__init__(number)
    self.number = number


@dataclass
class Lab:
  """What claims train with.

  workdir: trainings are below it. data: folder of real data, or None for TFDS. size: of the runs
  on text. deadline: by `time.monotonic`, or None. only_finished: train nothing.
  """

  workdir: Path
  data: Path | None
  size: Size = SIZES[1]
  deadline: float | None = None
  only_finished: bool = False
  trained: int = field(default=0, init=False)
  audits: dict[str, audit.Report] = field(default_factory=dict, init=False, repr=False)

  def config(self, changes: Changes, *, file='shakespeare_softmax', size=None, seed=0):
    """The config of a run: a file of configs/, a size, changes, and where the text is."""
    keys = (size or self.size).keys() | dict(changes) | {'seed': seed}
    config = config_lib.load(config_lib.CONFIGS / f'{file}.py', _told(keys))
    if self.data and config.data.path is None and config.data.name in PATHS:
      config = config.unlock()
      config.data.path = str(self.data / PATHS[config.data.name])
      if config.data.name == 'tiny_shakespeare':
        config.data.name = 'text'
      config.lock()
    return config

  def train(self, config: ConfigDict) -> Run:
    """The run of this config, trained now or before. Raises OutOfBudgetError."""
    named = config.copy_and_resolve_references().unlock()
    if config.data.path is not None:  # where the text lies does not matter
      own = self.data is not None and Path(config.data.path).is_relative_to(self.data)
      named.data.path = None if own else Path(config.data.path).name
    named.data.mixture = tuple(entry[:2] for entry in config.data.mixture)
    workdir = self.workdir / 'trainings' / config_lib.fingerprint(named)
    if config.train.steps not in committed(workdir):
      self._afford(config)
      started, self.trained = time.monotonic(), self.trained + 1
      found = loop.train(config, workdir, audited=self._audit(config))
      if found['status'] != 'finished':
        raise StoppedError(found['signal'])
      self._learn(config, time.monotonic() - started)
      jax.clear_caches()
    found = [r for r in read_records(workdir) if r['kind'] == 'evaluation']
    return Run(workdir, config, found[-1])

  def trial(
    self,
    arms: Mapping[str, Changes],
    *,
    against: str | None = None,
    seeds: tuple[int, int] = SEEDS,
    size: Size | None = None,
    **keys,
  ) -> Trial:
    """Trains each arm on the same seeds: `seeds[0]` of them, and more until differences tell.

    against: the arm that the others are compared with; seeds are added, up to `seeds[1]`, while the
    interval of any difference holds 0. Raises OutOfBudgetError where not even one seed is there.
    """
    size, runs = size or self.size, {arm: [] for arm in arms}
    for seed in range(seeds[1]):
      try:
        one = {
          arm: self.train(self.config(changes, size=size, seed=seed, **keys))
          for arm, changes in arms.items()
        }
      except OutOfBudgetError:
        if seed == 0:
          raise
        break
      for arm, run in one.items():
        runs[arm].append(run)
      trial = Trial({arm: tuple(found) for arm, found in runs.items()}, size)
      others = [arm for arm in arms if arm != against]
      if seed + 1 >= seeds[0] and (
        against is None or all(trial.difference(arm, against).tells for arm in others)
      ):
        break
    return trial

  def once(self, name: str, make: Callable[[], Any]) -> Any:
    """A measured value, JSON, kept so that what was chosen by it is the same next time."""
    path = self.workdir / f'{name}.json'
    if not path.exists():
      path.parent.mkdir(parents=True, exist_ok=True)
      write_atomically(path, json.dumps(make()) + '\n')
    return json.loads(path.read_text())

  def _audit(self, config: ConfigDict) -> audit.Report:
    """Of a model once, whatever its seed and training."""
    key = json.dumps([config_lib.to_dict(config.model), config.data.task, config.allow_leak])
    if key not in self.audits:
      self.audits[key] = audit.gate(config, vocab=config.model.vocab)
    return self.audits[key]

  def _afford(self, config: ConfigDict) -> None:
    if self.only_finished:
      raise OutOfBudgetError
    if self.deadline is not None:
      seconds = self.predicted(config)
      if time.monotonic() + (seconds or 0) > self.deadline:
        raise OutOfBudgetError

  def predicted(self, config: ConfigDict) -> float | None:
    """Seconds that a training takes here, by the FLOPs a second of those before; None before any.

    The rate of the first training of a workdir is kept, so that the same budget is spent alike.
    """
    path = self.workdir / 'rate.json'
    if not path.exists():
      return None
    return work(config) / json.loads(path.read_text())['flops_per_second']

  def _learn(self, config: ConfigDict, seconds: float) -> None:
    path = self.workdir / 'rate.json'
    if not path.exists():
      write_atomically(path, json.dumps({'flops_per_second': work(config) / seconds}) + '\n')


def arm(name: str, **changes) -> dict[str, Any]:
  """Keys of a config that make its model the named variant; changes: further keys, `__` for a dot.

  A published form may leak: its numbers say LEAKY where the audit finds that it does.
  """
  keys = {f'model.{key}': value for key, value in VARIANTS[name].items()}
  keys |= {key.replace('__', '.'): value for key, value in changes.items()}
  return keys | ({'allow_leak': True} if keys.get('model.form') == 'published' else {})


def parameters(file: str, changes: Changes | None = None) -> int:
  """Of the model of a config, as the papers count them: without the padding of the vocabulary."""
  config = _with_vocab(config_lib.load(config_lib.CONFIGS / f'{file}.py', _told(changes or {})))
  model = build(config)
  return count(model, jax.eval_shape(model.init, jax.random.key(0), example(config))['params'])


def terms(file: str, changes: Changes, *, batch: int) -> dict[str, float]:
  """FLOPs by term of a forward pass of a config's model over its whole context."""
  config = _with_vocab(config_lib.load(config_lib.CONFIGS / f'{file}.py', _told(changes)))
  return flops(config, batch=batch, length=config.model.context)


def work(config: ConfigDict) -> float:
  """FLOPs of a whole training."""
  batch, length = config.train.batch, config.model.context
  step = sum(flops(_with_vocab(config), batch=batch, length=length, training=True).values())
  return step * config.train.steps


def _with_vocab(config: ConfigDict) -> ConfigDict:
  if config.model.vocab or config.model.image:
    return config
  config = config.copy_and_resolve_references().unlock()
  config.model.vocab = {'char': 65, 'gpt2': 50_257}.get(config.data.tokenizer, 10_000)
  return config


def _told(keys: Changes) -> list[str]:
  return [f'{key}={value}' for key, value in keys.items()]


def larger(
  file: str, changes: Sequence[Changes], *, seeds: int = 3, chip: str = 'h100-1'
) -> Decision:
  """What would decide a claim in the paper's own setting: each arm's config at its full size."""
  target, flags = targets.find(chip), []
  total = 0.0
  for arm in changes:
    config = config_lib.load(config_lib.CONFIGS / f'{file}.py', _told(arm))
    total += seeds * work(config)
    flags.append(' '.join(shlex.quote(f'--config.{told}') for told in _told(arm)))
  peak = target.chip.flops
  command = '; '.join(
    ' '.join(filter(None, [f'python launch/main.py --config=configs/{file}.py', keys]))
    for keys in flags
  )
  cost = f'{seeds} seeds each, {total:.1e} FLOPs in all, about {duration(total / peak / SHARE)}'
  return Decision(command, f'{chip}, at {SHARE:.0%} of its peak', cost)


def not_decided(decision: Decision, why: str) -> Finding:
  """A claim that was not tried."""
  return Finding(OPEN, why, decision=decision)
