"""The claims of CHIAR-Former that trainings decide."""

import math

import numpy as np

from sgnjax.analysis.claims.claim import Finding
from sgnjax.analysis.claims.lab import SEEDS, Changes, Lab, arm, larger
from sgnjax.analysis.claims.trial import Run, Size, Trial
from sgnjax.ops.entropy import white_entropy
from sgnjax.train.log import read_records

FILE, WORDS = 'chiar_16m', 2048
ATTENTION, ENTROPY, RANDOM = 'attention', 'entropy', 'random'
ORTHOGONAL, PERMUTED = 'random basis', 'permuted channels'
PUBLISHED, THREE = 'published', 'three operators'
ARMS: dict[str, Changes] = {
  ATTENTION: {'model.mixer': 'chiar_attention'},
  ENTROPY: arm('chiar'),
  ORTHOGONAL: arm('chiar-orthogonal'),
  PERMUTED: arm('chiar-permuted'),
  PUBLISHED: arm('chiar-published'),
  THREE: arm('chiar-v1-soft', model__chiar__rbf_features=64, model__chiar__rbf_gamma=1.0),
}
# Words are what the router is said to tell apart; the paper has GPT-2's 50,257 tokens.
TEXT = {
  'data.name': 'wikitext2',
  'data.tokenizer': 'word',
  'data.vocab_size': WORDS,
  'data.stride': 1,
  'model.vocab': WORDS,
  'model.dtype': 'float32',
}


def _size(lab: Lab) -> Size:
  """At least four layers, as the smallest of the paper: the first is DCT, the last attends."""
  return lab.size._replace(layers=max(4, lab.size.layers))


def train(lab: Lab, arms: dict[str, Changes], against=None, seeds=SEEDS) -> Trial:
  """Arms on WikiText-2, whose threshold is the entropy of white noise at their width."""
  size = _size(lab)
  tau = {'model.chiar.tau': round(white_entropy(size.width), 4), 'model.chiar.calibrated': 'none'}
  arms = {name: TEXT | changes | tau for name, changes in arms.items()}
  return lab.trial(arms, against=against, seeds=seeds, size=size, file=FILE)


def pick(*names: str) -> dict[str, Changes]:
  return {name: ARMS[name] for name in names}


def setting(more: str = '') -> str:
  return f'WikiText-2, its {WORDS:,} commonest words{more}'


def large(*names: str, **more: Changes):
  arms = [*pick(*names).values(), *more.values()]
  return larger(FILE, [changes | {'model.chiar.calibrated': 'none'} for changes in arms])


def watched(run: Run, name: str) -> np.ndarray:
  """A metric of the layers that have it, over the training: (records, layers)."""
  records = [r for r in read_records(run.workdir) if r['kind'] == 'train']
  keys = sorted(key for key in records[-1] if key.startswith(f'{name}/'))
  return np.asarray([[record[key] for key in keys] for record in records])


def gap(lab: Lab) -> Finding:
  trial = train(lab, pick(ATTENTION, ENTROPY), against=ATTENTION)
  found = trial.difference(ENTROPY, ATTENTION)
  ours, base = (math.exp(trial.loss(name)) for name in (ENTROPY, ATTENTION))
  return trial.finding(
    trial.difference(ATTENTION, ENTROPY).less(),
    f'CHIAR minus attention: {found} nats, perplexity {ours:.1f} against {base:.1f}. The sign is '
    'decided alone (above 0: routing costs): points of perplexity depend on its level.',
    trial.table(ATTENTION),
    setting=setting(),
    decision=large(ATTENTION, ENTROPY),
  )


def shared_text(lab: Lab) -> float | None:
  """Share of the words of WikiText-2's test text that WikiText-103's has at the same place."""
  files = [('wikitext-2', 'test.txt'), ('wikitext-103', 'wiki.test.tokens')]
  paths = [lab.data.joinpath(*file) for file in files] if lab.data else []
  if not paths or not all(path.is_file() for path in paths):
    return None
  ours, theirs = (path.read_text(encoding='utf-8').split() for path in paths)
  same = sum(a in (b, '<unk>') for a, b in zip(ours, theirs, strict=False))
  return same / max(len(ours), len(theirs))


def mixed(lab: Lab) -> Finding:
  """WikiText-2 alone, and with a batch of IMDB at each fourth step."""
  other = ('imdb_reviews', 1.0, *([str(lab.data / 'imdb')] if lab.data else []))
  both = ARMS[ENTROPY] | {'data.mixture': (other,), 'data.mixture_rate': 0.25}
  trial = train(lab, pick(ENTROPY) | {'with IMDB': both}, against=ENTROPY)
  found, same = trial.difference('with IMDB', ENTROPY), shared_text(lab)
  text = ''
  if same is not None:
    text = (
      f' Of the test text of WikiText-2 {same:.1%} is that of WikiText-103 (`<unk>` for rare '
      'words), where the paper loses by the same mixture: 27.51 to 28.56.'
    )
  return trial.finding(
    found.less(),
    f'With IMDB minus without: {found} nats on WikiText-2.{text}',
    trial.table(ENTROPY),
    setting=setting(' as the main text, as WikiText-103 is not here; no ListOps'),
    decision=larger('chiar_mixed', [{}, {'data.mixture_rate': 0.0}]),
  )


def random_router(lab: Lab) -> Finding:
  first = train(lab, pick(ENTROPY), seeds=(1, 1)).arms[ENTROPY][0]
  share_L = watched(first, 'attention_share').mean(0)
  rate = round(float(share_L.mean()), 2)
  arms = pick(ENTROPY) | {RANDOM: arm('chiar-random', model__chiar__rate=rate)}
  trial = train(lab, arms, against=RANDOM)
  found = trial.difference(ENTROPY, RANDOM)
  layers = ', '.join(f'{share:.0%}' for share in share_L)
  return trial.finding(
    found.less(),
    f'Entropy minus random routes: {found} nats, both with {rate:.0%} of tokens at attention (by '
    f'layer, of entropy: {layers}). Below 0 the entropy says something that chance does not.',
    trial.table(RANDOM),
    setting=setting(),
    decision=large(ENTROPY, random=arms[RANDOM]),
  )
