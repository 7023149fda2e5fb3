"""Verdicts on the claims of the papers: runs what they need, and writes the ledger."""

import dataclasses
import datetime
import os
import re
import time
from pathlib import Path

from ml_collections import ConfigDict

from sgnjax.analysis.claims import CLAIMS, chosen, ledger
from sgnjax.analysis.claims.claim import OPEN, Claim, Decision, Finding
from sgnjax.analysis.claims.lab import SEEDS, SIZES, Lab, OutOfBudgetError, Size, StoppedError
from sgnjax.errors import UserError
from sgnjax.machine import commit, in_words, machine
from sgnjax.train.log import check_writable, duration

DATA = 'SGNJAX_DATA'


def run(config: ConfigDict, workdir: Path) -> int:
  """Decides the claims of `reproduce.claims`, one after the other; writes the ledger after each.

  Verdicts of claims that were decided before and are not asked for stay. Trainings that are there
  are not run again. With `reproduce.budget` (as 20m, 2h) sizes of trainings follow what fits, and
  claims that no longer fit are told with their cost.
  """
  asked, workdir = chosen(config.reproduce.claims), Path(workdir)
  check_writable(workdir)
  seconds = budget(config.reproduce.budget)
  data = os.environ.get(DATA)
  lab = Lab(workdir, Path(data) if data else None)
  lab.size = _named(config.reproduce.size)
  if seconds:
    lab.deadline = time.monotonic() + seconds
    try:
      lab.size = size_for(lab, asked, seconds)
    except StoppedError as stopped:
      return _told(stopped)
  findings = ledger.read(workdir / 'claims.json')
  by = {
    'commit': commit() or '',
    'when': datetime.date.today().isoformat(),
    'machine': in_words(machine()),
  }
  print(f'{len(asked)} claims; trainings on text: {lab.size.name} ({lab.size})')
  started = time.monotonic()
  for number, claim in enumerate(asked, 1):
    print(f'\n{claim.id} ({number} of {len(asked)}): {claim.text}', flush=True)
    since = time.monotonic()
    before = findings.get(claim.id)
    try:
      found = decide(claim, lab)
    except StoppedError as stopped:
      return _told(stopped)
    if found.verdict != OPEN or before is None or before.verdict == OPEN:
      findings[claim.id] = dataclasses.replace(found, **by)
    print(f'  {found.verdict}: {found.said}')
    ledger.write(workdir, list(CLAIMS.values()), findings)
    spent = time.monotonic() - started
    print(f'  {duration(time.monotonic() - since)}; {duration(spent)} so far', flush=True)
  print(f'\n{lab.trained} trainings; ledger: {workdir / "claims.html"}')
  return 0


def decide(claim: Claim, lab: Lab) -> Finding:
  """The finding of a claim; what it would take, where the budget is spent before its first seed."""
  try:
    return claim.decide(lab)
  except OutOfBudgetError:
    command = f'python launch/main.py --job=reproduce --claims={claim.id}'
    runs = claim.arms * SEEDS[0]
    config = lab.config({})
    each = lab.predicted(config)
    cost = f'{runs} trainings or more of {lab.size}'
    if each:
      cost += f', at least {duration(runs * each)} at the rate of this machine'
    return Finding(
      OPEN,
      'The budget was spent before a first seed was trained.',
      decision=Decision(command, 'this machine', cost),
    )


def budget(text: str | None) -> float | None:
  """Seconds of `90s`, `20m`, `1.5h`. Raises UserError for anything else."""
  if text is None:
    return None
  match = re.fullmatch(r'(\d+(?:\.\d+)?)([smh])', text.strip())
  if not match or float(match[1]) == 0:
    raise UserError(f"budget '{text}' is not a time; expected a number and s, m or h, as 20m")
  return float(match[1]) * {'s': 1, 'm': 60, 'h': 3600}[match[2]]


def size_for(lab: Lab, asked, seconds: float) -> Size:
  """The largest size at which three seeds of every asked claim fit; else the smallest.

  Where nothing was trained before, a small training that needs no download gives the rate: with it
  the first time chooses as every later time does.
  """
  runs = SEEDS[0] * sum(claim.arms for claim in asked)
  if not runs:
    return lab.size  # no budget chooses where nothing is trained
  if lab.predicted(lab.config({})) is None:
    print('a small training first, for the rate of this machine')
    lab.train(lab.config({'model.mixer': 'softmax'}, file='quickstart', size=SIZES[0]))
  for size in reversed(SIZES):
    lab.size = size
    each = lab.predicted(lab.config({}))
    if each is not None and runs * each <= seconds:
      return size
  return SIZES[0]


def _told(stopped: StoppedError) -> int:
  print('stopped: what was trained is kept, and the same command goes on')
  return 128 + (stopped.number or 0)


def _named(name: str) -> Size:
  names = {size.name: size for size in SIZES}
  if name not in names:
    raise UserError(f"reproduce.size='{name}': expected one of {', '.join(names)}")
  return names[name]
