"""The arms of FourierQK, and the claims that causal and bidirectional models decide."""

from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from sgnjax import audit
from sgnjax.analysis.claims.claim import FAILS, HOLDS, UNDECIDED, Finding
from sgnjax.analysis.claims.lab import Changes, Lab, larger
from sgnjax.analysis.claims.trial import Difference, Trial
from sgnjax.train.log import mark

FILE = 'shakespeare_fourier_qk'  # untied head, no bias of the output: the paper's own scaffold
PAPER = 256  # its context
PERIODS = (50.0, 26.0, 10.0, 5.0)  # tokens a cycle, where a head has four filters
WIDTH = 8.0  # scale of causal taps, tokens, where a claim names none
DOT = 'dot product'
DC, NYQUIST = 'DC', 'Nyquist'
GAUSSIAN4, HAT4, PAUL4 = 'four Gaussians', 'four Mexican hats', 'four Pauls'
CAUSAL = ', causal'


def filtered(form: str = 'published', **options) -> dict[str, Any]:
  """Keys of a config with this filter; the published form may train though it sees the future."""
  keys = {f'model.fourier_qk.{key}': value for key, value in options.items()}
  keys |= {'model.form': form}
  return keys | ({'allow_leak': True} if form == 'published' else {})


def dot() -> dict[str, Any]:
  return {'model.mixer': 'softmax'}


def published(context: int) -> dict[str, Changes]:
  """The published arms, which the claims share: filters of unit sum, centres learned from bin 4."""
  four = tuple(round(context / p, 4) for p in PERIODS)
  gaussians = {f'sigma {s:g}': filtered(sigma=s) for s in (0.5, 2.0, 16.0)}
  return gaussians | {
    DOT: dot(),
    DC: filtered(filter='dc'),
    NYQUIST: filtered(filter='nyquist'),
    GAUSSIAN4: filtered(bins=four),
    HAT4: filtered(filter='mexican_hat', periods=PERIODS),
    PAUL4: filtered(filter='paul', periods=PERIODS),
  }


def pick(context: int, *names: str) -> dict[str, Changes]:
  """Some of them; a name that ends in `, causal` is the one-sided kernel of the same filter."""
  arms, found = published(context), {}
  for name in names:
    arm = arms[name.removesuffix(CAUSAL)]
    if name.endswith(CAUSAL):
      arm = arm | {'model.form': 'causal', 'allow_leak': False}
    found[name] = arm
  return found


def analytic(context: int) -> dict[str, Changes]:
  """The frequency ablation with its quadrature branch: all heads at one bin, sigma 2, unit L2."""
  bins = {'bin 0': 0.0, 'bin 1': 1.0, 'bin 4': 4.0, 'a quarter cycle': context / 4}
  fixed = {'scores': 'analytic', 'norm': 'l2', 'learned': False}
  return {name: filtered(bins=(b,), **fixed) for name, b in bins.items()}


def verdict(differences: Iterable[Difference]) -> str:
  """On `each first is below its second`: one that is surely above fails it, one open leaves it."""
  found = [d.less() for d in differences]
  return FAILS if FAILS in found else UNDECIDED if UNDECIDED in found else HOLDS


def opposite(differences: Iterable[Difference]) -> str:
  """On `each first is above its second`."""
  return verdict(Difference(tuple(-x for x in d.seeds)) for d in differences)


def listed(differences: Mapping[str, Difference], leaky: bool = False) -> str:
  return ', '.join(f'{name} {d}{mark(leaky)}' for name, d in differences.items())


def against(
  lab: Lab, arms: Mapping[str, Changes], base: str, **options
) -> tuple[Trial, dict[str, Difference]]:
  """The trial of these arms, and what each is minus the base."""
  trial = lab.trial(arms, against=base, **({'file': FILE} | options))
  return trial, {name: trial.difference(name, base) for name in arms if name != base}


def full(make: Callable[[int], Mapping[str, Changes]]):
  """What would decide it at the paper's size: the arms of its context."""
  return larger(FILE, list(make(PAPER).values()))


def taps(context: int, shape: str, width: float = WIDTH) -> dict[str, Any]:
  """Causal taps over half the context, as the paper's 128 of 256."""
  scores = 'analytic' if shape == 'morlet' else 'real'
  options = {'kernel': 'taps', 'taps': context // 2, 'widths': (width,), 'norm': 'l2'}
  return filtered('causal', filter=shape, scores=scores, **options)


SHAPES = {'Gaussian': 'gaussian', 'Mexican hat': 'mexican_hat', 'Morlet': 'morlet'}


def _shapes(context: int) -> dict[str, Changes]:
  return {DOT: dot()} | {name: taps(context, shape) for name, shape in SHAPES.items()}


def shapes(lab: Lab) -> Finding:
  trial, found = against(lab, _shapes(lab.size.context), DOT)
  return trial.finding(
    opposite(found.values()),
    f'Causal taps minus the dot product: {listed(found)} nats (the paper: Gaussian +0.048, Mexican '
    'hat +0.066, Morlet +0.038, against a dot product of another scaffold). Above 0 it is worse.',
    trial.table(DOT),
    setting=f'scale {WIDTH:g} tokens, taps over half the context',
    decision=full(_shapes),
  )


def _scales(context: int) -> dict[str, Changes]:
  return {f'a = {a:g}': taps(context, 'morlet', a) for a in (2.0, 8.0, 32.0)}


def scales(lab: Lab) -> Finding:
  arms = _scales(lab.size.context)
  names = list(arms)
  trial, _ = against(lab, arms, names[1])
  steps = {
    f'{wide} minus {narrow}': trial.difference(wide, narrow) for narrow, wide in pairwise(names)
  }
  return trial.finding(
    verdict(steps.values()),
    f'Causal Morlet by its scale in tokens: {listed(steps)} nats; below 0 the wider one is better.',
    trial.table(names[1]),
    setting='taps over half the context',
    decision=full(_scales),
  )


def _whole(context: int) -> dict[str, Changes]:
  """The filters of `_shapes` as responses: one-sided kernels over all of the context."""
  cycle = 2 * np.pi * WIDTH  # tokens of a radian of the scale
  hat, wave = round(cycle / 2**0.5, 3), round(cycle / 6, 3)
  low = {'bins': (0.0,), 'sigma': round(context / cycle, 3), 'learned': False}
  return {
    DOT: dot(),
    'Gaussian': filtered('causal', norm='l2', **low),
    'Mexican hat': filtered('causal', norm='l2', filter='mexican_hat', periods=(hat,)),
    'Morlet': filtered('causal', norm='l2', filter='morlet', periods=(wave,), scores='analytic'),
  }


def whole_context(lab: Lab) -> Finding:
  trial, found = against(lab, _whole(lab.size.context), DOT)
  verdicts = opposite(found.values())
  change = {HOLDS: 'stays', FAILS: 'changes', UNDECIDED: 'is open'}[verdicts]
  return trial.finding(
    verdicts,
    f'One-sided kernels over the whole context minus the dot product: {listed(found)} nats. The '
    f'verdict on causal filters {change}: see the claim on taps over half the context.',
    trial.table(DOT),
    setting=f'the responses of taps of scale {WIDTH:g}',
    decision=full(_whole),
  )


def masked(lab: Lab) -> Finding:
  """Masked characters, where a model may see the whole row."""
  file, arms = 'fourier_qk_mlm', {'filter': {}, DOT: dot()}
  report = audit.twin_report(lab.config({}, file=file))
  trial, found = against(lab, arms, DOT, file=file)
  seen = 'sees' if report.leaky else 'does not see'
  return trial.finding(
    FAILS if report.leaky else found['filter'].less(),
    f'The two-sided filter {seen} other examples or padding, and the rest it may see. Filter minus '
    f'dot product: {found["filter"]} nats a masked character; below 0 it helps.',
    trial.table(DOT, 'Losses, nats a masked character'),
    setting='the paper names the use and has no run of it',
    decision=larger(file, list(arms.values())),
  )


def words(lab: Lab) -> Finding:
  """Word tokens: the taps of configs/morlet_words.py."""
  file, arms = 'morlet_words', {DOT: dot(), 'Haar': {'model.mixer': 'haar'}, 'Morlet': {}}
  trial = lab.trial(arms, against='Morlet', file=file)
  found = {f'minus {name}': trial.difference('Morlet', name) for name in (DOT, 'Haar')}
  return trial.finding(
    verdict(found.values()),
    f'Causal Morlet of 128 taps on WikiText-2 by words: {listed(found)} nats a word; below 0 it '
    'gains, as the paper predicts against both.',
    trial.table('Morlet', 'Losses, nats a word'),
    setting='a prediction that the paper did not try',
    decision=larger(file, list(arms.values())),
  )


def _hats(context: int) -> dict[str, Changes]:
  sets = {'four scales': PERIODS, 'period 26': PERIODS[1:2], 'period 10': PERIODS[2:3]}
  return {n: filtered('causal', filter='mexican_hat', periods=p) for n, p in sets.items()}


def multi_scale(lab: Lab) -> Finding:
  arms = _hats(lab.size.context)
  trial = lab.trial(arms, against='four scales', file=FILE)
  one = [name for name in arms if name != 'four scales']
  found = {f'minus {name}': trial.difference('four scales', name) for name in one}
  return trial.finding(
    verdict(found.values()),
    f'Causal Mexican hats of four scales at once: {listed(found)} nats; below 0 four are better '
    'than one.',
    trial.table('four scales'),
    decision=full(_hats),
  )
