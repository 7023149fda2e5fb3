"""The claims of SGN: what is a formula or a property, and the list of all."""

import jax
import numpy as np

from sgnjax.analysis.benchmark import timing
from sgnjax.analysis.claims import sgn_learned as learned
from sgnjax.analysis.claims import sgn_operator as operator
from sgnjax.analysis.claims import sgn_runs as runs
from sgnjax.analysis.claims.claim import FAILS, HOLDS, UNDECIDED, Claim, Finding, Table
from sgnjax.analysis.claims.lab import Changes, Lab, arm, larger, parameters, terms
from sgnjax.analysis.scaling.law import fit
from sgnjax.ops.attention import attention, visible
from sgnjax.ops.backend import assumed
from sgnjax.ops.gates import spectral_gate
from sgnjax.ops.kernels import causal_conv, one_sided_kernel

LENGTHS = tuple(2**k for k in range(10, 17))
CHANNELS = 8
FEWER = 0.35
ATTEND = ('q, k, v projections', 'output projection', 'scores', 'softmax', 'weighted values')


def growth(lab: Lab, lengths: tuple[int, ...] = LENGTHS) -> Finding:
  """Time of the mixing layer, forward and backward, by length."""
  layers = {'published': _published, 'causal kernel': _causal, 'attention': _attention}
  found, work = {}, {}
  for name, layer in layers.items():
    own = lengths if name != 'attention' else lengths[:3]
    programs = {n: timing.program(timing.gradient(layer), *_arguments(n)) for n in own}
    took = timing.interleaved({str(n): p for n, p in programs.items()}, 7, limit=15)
    found[name] = {n: took[str(n)] for n in own}
    work[name] = {n: p.flops for n, p in programs.items()}
  time = {name: fit(t.keys(), t.values()) for name, t in found.items()}
  counted = {name: fit(f.keys(), f.values()) for name, f in work.items()}
  rows = tuple(
    (str(n), *(f'{1000 * t[n]:.2f}' if n in t else '-' for t in found.values())) for n in lengths
  )
  own = [time['published'], time['causal kernel']]
  verdict = HOLDS if all(e.high < 1.5 for e in own) else UNDECIDED
  if any(e.low > 1.5 for e in own):
    verdict = FAILS
  n_log_n = fit(lengths, [n * np.log(n) for n in lengths])
  return Finding(
    verdict,
    f'From {lengths[0]:,} to {lengths[-1]:,} tokens time grows as n to the power of '
    f'{time["published"]} (published) and {time["causal kernel"]} (causal kernel); n log n would '
    f'be {n_log_n.exponent:.2f}, and attention has {time["attention"]} up to {lengths[2]:,}. '
    f'FLOPs in the compiled programs: {counted["published"].exponent:.2f}, '
    f'{counted["causal kernel"].exponent:.2f} and {counted["attention"].exponent:.2f}.',
    setting=f'the mixing layer alone, {CHANNELS} channels, forward and backward, on this machine; '
    'asked: an exponent below 1.5',
    tables=(Table('Milliseconds', ('tokens', *layers), rows),),
  )


def _arguments(n: int) -> tuple[jax.Array, jax.Array]:
  x_key, gate_key = jax.random.split(jax.random.key(0))
  shape = (n, CHANNELS)
  return jax.random.normal(x_key, (1, *shape)), 1 + 0.02 * jax.random.normal(gate_key, shape)


def _published(x_BLD, gate_ND):
  return spectral_gate(x_BLD, gate_ND)


def _causal(x_BLD, gate_ND):
  return causal_conv(x_BLD, one_sided_kernel(gate_ND))


def _attention(x_BLD, gate_ND):
  """One head with inputs as queries, keys and values."""
  k_BHSE = x_BLD[:, None]
  seen_BLS = visible(x_BLD.shape[1], causal=True)
  q_BLHE = (x_BLD * gate_ND[None])[:, :, None]
  return attention(q_BLHE, k_BHSE, k_BHSE, scale=CHANNELS**-0.5, visible_BLS=seen_BLS)


def fewer_flops(lab: Lab) -> Finding:
  """Of one sequence of 512 tokens, forward, at the size of the paper."""
  rows, saved = [], {}
  base = _terms(arm('softmax'))
  for name in ('sgn-published-block', 'sgn-plain', 'sgn'):
    for transforms, backend in (('FFT', 'cpu'), ('matrix', 'tpu')):
      if transforms == 'matrix' and name != 'sgn-published-block':
        continue  # kernels are convolved by FFT everywhere
      with assumed(backend):
        own = _terms(arm(name))
      layers, whole = (_saved(own, base, head=head) for head in (False, True))
      saved[name, transforms] = layers, whole
      rows.append(
        (name, transforms, f'{_all(own, head=True):.2e}', f'{layers:.1%}', f'{whole:.1%}')
      )
  layers, whole = saved['sgn-published-block', 'FFT']
  dense = saved['sgn-published-block', 'matrix']
  projections = sum(base[key] for key in ATTEND[:2]) / sum(base[key] for key in ATTEND)
  return Finding(
    HOLDS if layers >= FEWER else FAILS,
    f'{layers:.1%} fewer in the layers with FFTs, {dense[0]:.1%} with the DCT as a matrix; with '
    f"the vocabulary's projection {whole:.1%} and {dense[1]:.1%}. Of what attention costs "
    f'{projections:.0%} are its four projections, which SGN has not: at 512 tokens the saving is '
    f'theirs, not that of n log n. The gated causal form, which has three, saves '
    f'{saved["sgn", "FFT"][0]:.1%}.',
    setting='12 layers, width 768, 512 tokens, 50,257 tokens in the vocabulary, forward pass; '
    'decided by the layers alone with FFTs, since 35 % is met by no counting exactly',
    tables=(
      Table(
        'Fewer than in the Transformer',
        ('form', 'transforms', 'FLOPs', 'in the layers', 'with the head'),
        tuple(rows),
      ),
    ),
  )


def _terms(changes: Changes) -> dict[str, float]:
  return terms('sgn_wikitext103', changes, batch=1)


def _all(found: dict[str, float], *, head: bool) -> float:
  return sum(cost for name, cost in found.items() if head or name not in ('head', 'loss'))


def _saved(own, base, *, head: bool) -> float:
  return 1 - _all(own, head=head) / _all(base, head=head)


def underspecified(lab: Lab) -> Finding:
  """What choices that the paper does not print change in its model of images."""
  rows, work = [], []
  for patch in (2, 4, 8):
    changes = {
      'model.patch': patch,
      'model.context': (32 // patch) ** 2,
      'model.classes': 10,
    }
    work.append(sum(terms('sgn_cifar10', changes, batch=1).values()))
    count = parameters('sgn_cifar10', changes)
    rows.append((f'{patch} x {patch}', changes['model.context'], f'{count:,}', f'{work[-1]:.2e}'))
  spread = max(work) / min(work)
  return Finding(
    HOLDS if spread > 2 else FAILS,
    'The accuracies are of CIFAR-10 and the hyperparameters printed are of CIFAR-100. Neither has '
    f'a patch size: 2, 4 or 8 pixels change the work for an image {spread:.0f}-fold. So the '
    'table cannot be checked against its paper, only against runs of our own choice.',
    setting='width 384, 12 layers, as printed for CIFAR-100',
    tables=(
      Table(
        'Choices left open',
        ('patch', 'tokens', 'parameters', 'FLOPs an image, forward'),
        tuple(tuple(map(str, row)) for row in rows),
      ),
    ),
    decision=larger('sgn_cifar10', runs.images(10)),
  )


CLAIMS = (
  Claim('sgn-01', 'IDCT(G * DCT(X)) costs O(n log n), 1k to 64k tokens', 'S', growth),
  Claim('sgn-02', '35 % fewer FLOPs than the Transformer at 512 tokens', 'P', fewer_flops),
  Claim(
    'sgn-03',
    'Theorem 1: a gate is within L sigma / K of attention, exact at K = n',
    'S',
    operator.theorem,
  ),
  Claim(
    'sgn-04',
    'WikiText-103 perplexity 18.1; Transformer 18.3, Linear 20.8, FNet 22.1',
    'C',
    runs.wikitext,
    5,
  ),
  Claim('sgn-05', 'C4 perplexity 15.5; 15.7, 17.9, 19.4', 'G', runs.c4),
  Claim('sgn-06', 'learnable gates are worth 2.3 perplexity over fixed', 'C', runs.learned, 5),
  Claim('sgn-07', 'the residual is worth 1.6 perplexity', 'C', runs.residual, 4),
  Claim('sgn-08', 'DCT beats FFT by 0.5 perplexity', 'C', runs.basis, 4),
  Claim('sgn-09', 'CIFAR-10 accuracy 94.7 against 92.3', 'G', runs.cifar10),
  Claim('sgn-10', 'ImageNet accuracy 78.4 against 76.1', 'G', runs.imagenet),
  Claim('sgn-11', 'a drop-in replacement for attention', 'C', runs.drop_in, 3),
  Claim('sgn-12', 'useful interactions are of low frequency', 'C', learned.frequencies, 2),
  Claim('sgn-13', 'padding and chunking give boundary artefacts', 'S', operator.edges),
  Claim('sgn-14', 'less suited to code than to prose', 'C', runs.code_against_prose, 4),
  Claim('sgn-15', 'the CIFAR-10 table has no hyperparameters', 'P', underspecified),
)
