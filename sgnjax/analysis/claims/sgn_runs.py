"""The claims of SGN that trainings decide."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from sgnjax.analysis.benchmark.step import Bare
from sgnjax.analysis.benchmark.timing import interleaved
from sgnjax.analysis.claims import sgn_code
from sgnjax.analysis.claims.claim import FAILS, HOLDS, UNDECIDED, WITH_LEAK, Finding
from sgnjax.analysis.claims.lab import SEEDS, Changes, Lab, arm, larger, not_decided, parameters
from sgnjax.analysis.claims.trial import Difference, gain
from sgnjax.train.log import mark

SOFTMAX, LINEAR, SGN, PLAIN, PUBLISHED = (
  'softmax', 'linear', 'SGN, gated causal', 'SGN, plain causal', 'SGN, published',
)  # fmt: skip
ARMS = {
  SOFTMAX: arm('softmax'),
  LINEAR: arm('linear'),
  SGN: arm('sgn'),
  PLAIN: arm('sgn-plain'),
  PUBLISHED: arm('sgn-published'),
}
FNET = arm('fnet', model__form='published', model__block='postnorm')
# WikiText-2 by whole words, which two processor cores can take.
WORDS = {
  'data.tokenizer': 'word',
  'data.vocab_size': 4000,
  'data.stride': 1,
  'model.vocab': None,
  'model.dtype': 'float32',
}
PERPLEXITY = 18.1  # of the paper's SGN, which its ablations are measured from


def _pick(*names: str) -> dict[str, Changes]:
  return {name: ARMS[name] for name in names}


def wikitext(lab: Lab) -> Finding:
  arms = {name: {**WORDS, **keys} for name, keys in ARMS.items()}
  trial = lab.trial(arms, against=SOFTMAX, file='sgn_wikitext2')
  leaky = mark(trial.arms[PUBLISHED][0].leaky)
  said = ', '.join(
    f'{name} {math.exp(trial.loss(name)):.1f}{mark(trial.arms[name][0].leaky)}' for name in arms
  )
  found = {name: trial.difference(name, SOFTMAX) for name in (PUBLISHED, SGN, PLAIN)}
  return trial.finding(
    gain(trial, SOFTMAX, PUBLISHED, (SGN, PLAIN)),
    f'Perplexities: {said}. Minus the Transformer: published {found[PUBLISHED]}{leaky}, gated '
    f'causal {found[SGN]}, plain causal {found[PLAIN]} nats (the paper: '
    f'{math.log(18.1 / 18.3):+.3f}). A DCT over the sequence reads the word that is asked for; '
    'so does the FFT of FNet, which has no causal form.',
    trial.table(SOFTMAX),
    setting=f'WikiText-2, its {WORDS["data.vocab_size"]:,} most frequent words',
    decision=larger('sgn_wikitext103', [*ARMS.values(), FNET]),
  )


def c4(lab: Lab) -> Finding:
  return not_decided(
    larger('sgn_c4', [*ARMS.values(), FNET]),
    'C4 at this size is work for GPUs; its text is not small enough to try. The order of the '
    'mixers on another text is the claim of sgn-04.',
  )


def images(classes: int) -> list[Changes]:
  """Arms of a table of images: the Transformer, SGN, FNet."""
  names = ('softmax-bidirectional', 'sgn-published', 'fnet')
  return [arm(name, model__classes=classes) for name in names]


def cifar10(lab: Lab) -> Finding:
  return not_decided(
    larger('sgn_cifar10', images(10)),
    'Two hundred epochs of 12 layers are work for a GPU, with the settings printed for CIFAR-100 '
    '(see sgn-15).',
  )


def imagenet(lab: Lab) -> Finding:
  return not_decided(
    larger('sgn_imagenet', images(1000)), 'Three hundred epochs of ImageNet are work for GPUs.'
  )


def all_of(verdicts: Sequence[str]) -> str:
  """Holds where all do, fails where one does."""
  verdicts = set(verdicts)
  if FAILS in verdicts:
    return FAILS
  return UNDECIDED if UNDECIDED in verdicts else HOLDS


def of_forms(causal: str, published: str, *, leaky: bool) -> str:
  """The verdict from that of the causal form and that of the published one."""
  if causal == HOLDS:
    return HOLDS
  if UNDECIDED in (causal, published):
    return UNDECIDED
  return WITH_LEAK if published == HOLDS and leaky else FAILS


def _worth(
  lab: Lab, causal: Mapping[str, Changes], published: Mapping[str, Changes], worth: float, note: str
) -> Finding:
  """An ablation in both forms: whether the first arm of each is below the others.

  worth: what the paper gives for it, perplexity.
  """
  said, verdicts, tables, runs, leaky = [], [], [], [], False
  for form, arms in (('causal', causal), ('published', published)):
    first, *others = arms
    trial = lab.trial(arms, against=first)
    leaky = trial.arms[first][0].leaky
    found = {name: trial.difference(first, name) for name in others}
    verdicts.append(all_of([d.less() for d in found.values()]))
    said += [f'{form}, {first} minus {name} {d}{mark(leaky)}' for name, d in found.items()]
    tables.append(trial.table(first, f'Losses of the {form} form, nats a token'))
    runs += trial.runs
  nats = math.log((PERPLEXITY + worth) / PERPLEXITY)
  return Finding(
    of_forms(*verdicts, leaky=leaky),
    f'{"; ".join(said)} nats (the paper: {-nats:.3f}). {note}',
    setting=f'{trial.setting}, on characters of TinyShakespeare where the paper has WikiText-103',
    tables=tuple(tables),
    runs=tuple(runs),
    decision=larger('sgn_wikitext103', [*causal.values(), *published.values()]),
  )


def learned(lab: Lab) -> Finding:
  return _worth(
    lab,
    {
      'learned': ARMS[PLAIN],
      'low pass': arm('sgn-plain', model__sgn__gate='lowpass'),
      'frozen': arm('sgn-plain', model__sgn__gate='random'),
    },
    {'learned': ARMS[PUBLISHED], 'frozen': arm('sgn-published-random')},
    2.3,
    'Fixed is an exponential low pass, or a random gate frozen at its start.',
  )


def residual(lab: Lab) -> Finding:
  def blocks(name):
    return {
      'with it': arm(name, model__block='sgn'),
      'without': arm(name, model__block='sgn_bare'),
    }

  return _worth(
    lab,
    blocks('sgn-plain'),
    blocks('sgn-published'),
    1.6,
    'The residual adds no operator: SGL with a gate G and its input is SGL with G + 1, so that it '
    'is another start of the same gate.',
  )


def basis(lab: Lab) -> Finding:
  return _worth(
    lab,
    {'DCT': ARMS[PLAIN], 'FFT': arm('sgn-plain', model__sgn__basis='fft')},
    {'DCT': ARMS[PUBLISHED], 'FFT': arm('sgn-published-fft')},
    0.5,
    'The gate of the FFT is complex. Causally its kernels are all those of the DCT and no more, '
    'with twice the numbers.',
  )


def drop_in(lab: Lab) -> Finding:
  """Gated causal SGN against attention of the same steps, and of the same time."""
  pair = _pick(SOFTMAX, SGN)
  slower = lab.once(f'sgn_time_{lab.size.name}', lambda: _time(lab, pair))
  steps = max(1, round(slower * lab.size.steps))
  longer = lab.size._replace(steps=steps).keys()
  same_time = f'softmax, {steps} steps'
  arms = pair | {same_time: ARMS[SOFTMAX] | {k: v for k, v in longer.items() if k != 'optim.lr'}}
  trial = lab.trial(arms, against=SGN)
  found = {name: trial.difference(SGN, name) for name in (SOFTMAX, same_time)}
  size = lab.size.keys()
  counts = [parameters('shakespeare_softmax', size | keys) for keys in pair.values()]
  return trial.finding(
    all_of([d.less() for d in found.values()]),
    f'SGN minus attention: {found[SOFTMAX]} nats after as many steps, {found[same_time]} in the '
    f'same time ({steps} steps of attention in the time of {lab.size.steps} of SGN). Parameters: '
    f'{counts[1]:,} and {counts[0]:,}. Held where SGN is below in both. The form is gated and '
    'causal; the published one replaces no attention in a language model, since it sees the '
    'future.',
    trial.table(SGN),
    setting='on characters of TinyShakespeare; time as measured on this machine',
    decision=larger('sgn_wikitext103', [ARMS[SOFTMAX], ARMS[SGN]]),
  )


def _time(lab: Lab, pair: Mapping[str, Changes]) -> float:
  """A step of SGN in steps of attention."""
  steps = {name: Bare(lab.config(keys)).ready() for name, keys in pair.items()}
  return round(interleaved(steps, 20, limit=60).ratio(SGN, SOFTMAX), 2)


def code_against_prose(lab: Lab) -> Finding:
  """What SGN is above attention by, on programs and on English, paired by seed."""
  paths = sgn_code.write(lab.workdir)
  for seeds in SEEDS:
    trials = {
      name: lab.trial(
        {a: keys | _text(path) for a, keys in _pick(SGN, SOFTMAX).items()}, seeds=(seeds, seeds)
      )
      for name, path in paths.items()
    }
    gaps = {name: trial.difference(SGN, SOFTMAX) for name, trial in trials.items()}
    pairs = zip(gaps['prose'].seeds, gaps['code'].seeds, strict=False)
    found = Difference(tuple(prose - code for prose, code in pairs))
    if found.tells:
      break
  bits = {name: trial.loss(SOFTMAX) / math.log(2) for name, trial in trials.items()}
  return Finding(
    found.less(),
    f'SGN minus attention: {gaps["code"]} nats on programs, {gaps["prose"]} on English; English '
    f'minus programs {found} (below 0: SGN loses more on programs). Attention itself has '
    f'{bits["code"]:.2f} and {bits["prose"]:.2f} bits a character.',
    setting=f"{trials['code'].setting}; Python's library without comments, and its English, of one "
    'length; gated causal SGN',
    tables=tuple(t.table(SOFTMAX, f'{n}, nats a character') for n, t in trials.items()),
    runs=tuple(run for trial in trials.values() for run in trial.runs),
    decision=larger(
      'shakespeare_softmax',
      [keys | _text(path.name) for path in paths.values() for keys in _pick(SGN, SOFTMAX).values()],
    ),
  )


def _text(path: Path | str) -> Changes:
  return {'data.name': 'text', 'data.path': str(path), 'model.vocab': None}
