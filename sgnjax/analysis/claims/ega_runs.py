"""The claims of EGA that trainings decide."""

from sgnjax.analysis.claims.claim import FAILS, HOLDS, UNDECIDED, Finding, Table
from sgnjax.analysis.claims.lab import Changes, Lab, arm, larger, parameters
from sgnjax.analysis.claims.trial import Difference, gain
from sgnjax.train.log import mark

SOFTMAX, SEQUENCE, QUERY, PREFIX = 'softmax', '`sequence`', '`query`', '`prefix`'
STATISTICS = {
  SOFTMAX: arm('softmax'),
  SEQUENCE: arm('ega-published'),
  QUERY: arm('ega'),
  PREFIX: arm('ega-prefix'),
}


def _pick(*names: str) -> dict[str, Changes]:
  return {name: STATISTICS[name] for name in names}


def _published(lab: Lab, full: str, said: str, **keys) -> Finding:
  """The published form against attention, and the causal gate; full: the config of the paper."""
  arms = _pick(SOFTMAX, SEQUENCE, QUERY)
  trial = lab.trial(arms, against=SOFTMAX, **keys)
  published, causal = (trial.difference(name, SOFTMAX) for name in (SEQUENCE, QUERY))
  leaky = mark(trial.arms[SEQUENCE][0].leaky)
  return trial.finding(
    gain(trial, SOFTMAX, SEQUENCE, (QUERY,)),
    f'Minus attention: published {published}{leaky}, `query` {causal} nats (the paper: {said}).',
    trial.table(SOFTMAX),
    decision=larger(full, list(arms.values())),
  )


def published_gain(lab: Lab) -> Finding:
  return _published(lab, 'shakespeare_ega', '-0.103')


def penn_treebank(lab: Lab) -> Finding:
  return _published(lab, 'ega_ptb', '-0.101', file='ega_ptb')


def statistics(lab: Lab) -> Finding:
  trial = lab.trial(STATISTICS, against=SOFTMAX)
  found = {name: trial.difference(name, SOFTMAX) for name in STATISTICS if name != SOFTMAX}
  leaky = mark(trial.arms[SEQUENCE][0].leaky)
  said = f'`sequence` {found[SEQUENCE]}{leaky}, `query` {found[QUERY]}, `prefix` {found[PREFIX]}'
  shares = [found[name].mean / found[SEQUENCE].mean for name in (QUERY, PREFIX)]
  left = ''
  if found[SEQUENCE].tells and found[SEQUENCE].mean < 0:
    left = f' Of the published gain `query` keeps {shares[0]:.0%}, `prefix` {shares[1]:.0%}.'
  return trial.finding(
    gain(trial, SOFTMAX, SEQUENCE, (QUERY, PREFIX)),
    f'Minus attention: {said} nats.{left}',
    trial.table(SOFTMAX),
    decision=larger('shakespeare_ega', list(STATISTICS.values())),
  )


def scales(lab: Lab) -> Finding:
  arms = {'1 scale': arm('ega'), '2 scales': arm('ega-2'), '4 scales': arm('ega-4')}
  trial = lab.trial(arms, against='1 scale')
  first, second = trial.difference('1 scale', '2 scales'), trial.difference('2 scales', '4 scales')
  verdicts = {first.less(), second.less()}
  verdict = verdicts.pop() if len(verdicts) == 1 else FAILS if FAILS in verdicts else UNDECIDED
  return trial.finding(
    verdict,
    f'With causal `query` statistics: 1 minus 2 scales {first}, 2 minus 4 scales {second} nats.',
    trial.table('1 scale'),
    decision=larger('shakespeare_ega', list(arms.values())),
  )


def convolution(lab: Lab) -> Finding:
  arms = _pick(SOFTMAX) | {'EGA-C': arm('ega-conv')}
  trial = lab.trial(arms, against=SOFTMAX)
  found = trial.difference('EGA-C', SOFTMAX)
  more = parameters('shakespeare_ega', arm('ega-conv')) - parameters('shakespeare_softmax')
  return trial.finding(
    found.less(),
    f'Causal EGA-C minus attention: {found} nats; {more:,} parameters more at the size of the '
    'paper, which says 1,377,216.',
    trial.table(SOFTMAX),
    decision=larger('shakespeare_ega', list(arms.values())),
  )


def fixed_bases(lab: Lab) -> Finding:
  arms = _pick(SOFTMAX) | {
    'db2': arm('ega-db2'),
    'db4': arm('ega-db4'),
    'Morlet': arm('ega-morlet-mean'),
  }
  trial = lab.trial(arms, against=SOFTMAX)
  found = {name: trial.difference(name, SOFTMAX) for name in arms if name != SOFTMAX}
  gains = [name for name, d in found.items() if d.less() == HOLDS]
  closed = all(max(map(abs, d.interval)) < 0.02 for d in found.values())
  said = ', '.join(f'{name} {d}' for name, d in found.items())
  return trial.finding(
    FAILS if gains else HOLDS if closed else UNDECIDED,
    f'Minus attention: {said} nats. Held to do nothing where the whole interval is within 0.02.',
    trial.table(SOFTMAX),
    decision=larger('shakespeare_ega', list(arms.values())),
  )


def inputs(lab: Lab) -> Finding:
  arms = _pick(SOFTMAX) | {
    'mean of channels': arm('ega-morlet-mean'),
    'learned direction': arm('ega-morlet'),
  }
  trial = lab.trial(arms, against='mean of channels')
  found = trial.difference('learned direction', 'mean of channels')
  against = trial.difference('learned direction', SOFTMAX)
  return trial.finding(
    found.less(),
    f'Direction minus mean: {found}; direction minus attention: {against} nats. The mean of the '
    'channels behind a LayerNorm is 0 at the start, so that the published gate starts '
    'without input.',
    trial.table('mean of channels'),
    decision=larger('shakespeare_ega', list(arms.values())),
  )


def contexts(lab: Lab) -> Finding:
  """Gain of `query` statistics at three contexts, the same tokens a step."""
  rows, gains, runs = [], [], []
  for context in (64, 128, 256):
    rows_a_step = max(1, lab.size.batch * lab.size.context // context)
    size = lab.size._replace(context=context, batch=rows_a_step)
    trial = lab.trial(_pick(SOFTMAX, QUERY), against=SOFTMAX, seeds=(3, 3), size=size)
    gains.append(trial.difference(QUERY, SOFTMAX))
    rows.append((str(context), trial.said(SOFTMAX), trial.said(QUERY), str(gains[-1])))
    runs += trial.runs
  growth = [b - a for a, b in zip(gains[0].seeds, gains[-1].seeds, strict=False)]
  slope = Difference(tuple(growth))
  table = Table('By context', ('context', SOFTMAX, QUERY, 'difference'), tuple(rows))
  return Finding(
    slope.less(),
    f'Gain at 256 minus gain at 64, paired by seed: {slope} nats (below 0: it grows). The paper '
    'does not test it.',
    setting=f'smaller: {lab.size}, contexts 64 to 256, tokens a step as there',
    tables=(table,),
    runs=tuple(runs),
    decision=larger(
      'shakespeare_ega',
      [arm(name, model__context=n) for n in (64, 256, 1024) for name in ('softmax', 'ega')],
    ),
  )


def learned_wavelets(lab: Lab) -> Finding:
  arms = {
    'db4, fixed': arm('ega-db4'),
    'learned from db4': arm('ega-learned_wavelet'),
    'packets': arm('ega-packet'),
    **_pick(SOFTMAX),
  }
  trial = lab.trial(arms, against='db4, fixed')
  found = {name: trial.difference(name, 'db4, fixed') for name in list(arms)[1:3]}
  verdicts = [d.less() for d in found.values()]
  said = ', '.join(f'{name} {d}' for name, d in found.items())
  return trial.finding(
    HOLDS if HOLDS in verdicts else UNDECIDED if UNDECIDED in verdicts else FAILS,
    f'Minus fixed db4: {said} nats. The paper names both as future work.',
    trial.table('db4, fixed'),
    decision=larger('shakespeare_ega', list(arms.values())),
  )


def sizes(lab: Lab) -> Finding:
  """Gain of `query` statistics at three widths."""
  rows, gains, runs = [], [], []
  for width, heads in ((32, 1), (64, 2), (lab.size.width, lab.size.heads)):
    size = lab.size._replace(width=width, heads=heads)
    trial = lab.trial(_pick(SOFTMAX, QUERY), against=SOFTMAX, seeds=(3, 3), size=size)
    gains.append(trial.difference(QUERY, SOFTMAX))
    rows.append((str(width), trial.said(SOFTMAX), trial.said(QUERY), str(gains[-1])))
    runs += trial.runs
  changed = [b - a for a, b in zip(gains[0].seeds, gains[-1].seeds, strict=False)]
  shrinks = Difference(tuple(changed))
  stays = gains[-1].less()
  verdict = HOLDS if stays == HOLDS and shrinks.less() == FAILS else UNDECIDED
  if stays == FAILS or shrinks.less() == HOLDS:
    verdict = FAILS
  table = Table('By width', ('width', SOFTMAX, QUERY, 'difference'), tuple(rows))
  return Finding(
    verdict,
    f'At the largest width {gains[-1]}; largest minus smallest {shrinks} nats (above 0: the gain '
    'shrinks).',
    setting=f'smaller: {lab.size} and two lesser widths, 3 seeds',
    tables=(table,),
    runs=tuple(runs),
    decision=larger(
      'shakespeare_ega',
      [arm(name, model__width=w) for w in (128, 256, 512) for name in ('softmax', 'ega')],
    ),
  )
