"""What two papers say their models save, taken apart term by term.

SGN: "35 % fewer FLOPs than the Transformer" at 12 layers, width 768, 512 tokens. CHIAR-Former:
"37 % fewer FLOPs" at 400 million parameters and 256 tokens, and "62.5 % of attention FLOPs" in the
layers that route.
"""

from ml_collections import ConfigDict

from sgnjax import config as config_lib
from sgnjax.analysis import flops
from sgnjax.models import build
from sgnjax.ops.backend import assumed

HEAD = ('head', 'loss', 'embedding', 'positions')  # what is no layer
PROJECTIONS = ('q, k, v projections', 'output projection')
ATTENTION = (*PROJECTIONS, 'scores', 'softmax', 'weighted values', 'rope')

SLOTS = 'model.chiar.dispatch=capacity', 'model.chiar.capacity=0.5'
BASELINE = 'chiar_400m_baseline'

Terms = dict[str, float]


def read(name: str, *overrides: str) -> ConfigDict:
  return config_lib.load(config_lib.CONFIGS / f'{name}.py', overrides)


def forward(config: ConfigDict, kind: str = 'cpu') -> Terms:
  """Forward FLOPs of one row by term, on a kind of device (which decides how a DCT is computed)."""
  with assumed(kind):
    terms = flops.costs(build(config), batch=1, length=config.model.context)
  return {name: cost.forward for name, cost in terms.items()}


def saving(of: Terms, against: Terms, without: tuple[str, ...] = ()) -> float:
  """Share of the FLOPs of `against` that `of` does not need; some terms left out of both."""
  totals = [sum(v for k, v in t.items() if k not in without) for t in (of, against)]
  return 1 - totals[0] / totals[1]


def table(named: dict[str, Terms], first: str) -> list[str]:
  """Markdown: GFLOP by term, and each column's total over that of the first."""
  terms = dict.fromkeys(t for one in named.values() for t in one)
  lines = [f'| GFLOP forward, one row | {" | ".join(named)} |', '| --- |' + ' ---: |' * len(named)]
  base = sum(named[first].values())
  for term in sorted(terms, key=lambda t: -max(one.get(t, 0) for one in named.values())):
    cells = [f'{one[term] / 1e9:,.3f}' if term in one else '' for one in named.values()]
    lines.append(f'| {term} | {" | ".join(cells)} |')
  totals = [sum(one.values()) for one in named.values()]
  lines.append(f'| **total** | {" | ".join(f"**{t / 1e9:,.2f}**" for t in totals)} |')
  cells = ['' if n == first else f'{1 - t / base:+.1%}' for n, t in zip(named, totals, strict=True)]
  lines.append(f'| saved against {first} | {" | ".join(cells)} |')
  inner = [sum(v for k, v in one.items() if k not in HEAD) for one in named.values()]
  cells = ['' if n == first else f'{1 - t / inner[list(named).index(first)]:+.1%}'
           for n, t in zip(named, inner, strict=True)]  # fmt: skip
  lines.append(f'| the same, layers alone | {" | ".join(cells)} |')
  return lines


def sgn() -> list[str]:
  """The part about SGN."""
  plain = ('model.form=published', 'model.sgn.gated=false')
  softmax = forward(read('sgn_wikitext103_transformer'))
  named = {
    'Transformer': softmax,
    'SGN published, FFT': forward(read('sgn_wikitext103', *plain)),
    'SGN published, matrix DCT': forward(read('sgn_wikitext103', *plain), 'tpu'),
    'SGN causal, gated': forward(read('sgn_wikitext103')),
  }
  fft = named['SGN published, FFT']
  layers = saving(fft, softmax, HEAD)
  attention = sum(softmax[t] for t in ATTENTION if t in softmax)
  inner = sum(v for k, v in softmax.items() if k not in HEAD)
  return [
    '## SGN: 35 %',
    '12 layers, width 768, 12 heads, 512 tokens of 50,257, one row, forward.',
    '\n'.join(table(named, 'Transformer')),
    f'The layers of the published SGN need {layers:.1%} fewer FLOPs than those of the Transformer, '
    f'whose attention is {attention / inner:.1%} of its layers; with the head and the loss, which '
    f'both need, the saving is {saving(fft, softmax):.1%}. '
    f'The matrix DCT, which a TPU takes up to 1,024 points, '
    f'{_more(named["SGN published, matrix DCT"], softmax)}. '
    'The paper does not say what it counts. '
    f'The gated causal form, which the shipped config trains, saves '
    f'{saving(named["SGN causal, gated"], softmax, HEAD):.1%} in its layers: its three projections '
    'and the FFTs of its convolution cost more than a plain gate.',
  ]


def _more(of: Terms, against: Terms) -> str:
  share = saving(of, against, HEAD)
  return (
    f'saves {share:.1%} in the layers' if share > 0 else f'needs {-share:.1%} more in the layers'
  )


def chiar() -> list[str]:
  """The part about CHIAR-Former."""
  baseline = forward(read(BASELINE), 'tpu')
  named = {
    'baseline': baseline,
    'CHIAR as released': forward(read('chiar_400m'), 'tpu'),
    'half attend, all give keys': forward(read('chiar_400m', *SLOTS), 'tpu'),
    'half attend, keys of those alone': forward(
      read('chiar_400m', *SLOTS, 'model.chiar.kv=routed'), 'tpu'
    ),
    'half attend, FFT': forward(read('chiar_400m', *SLOTS), 'gpu'),
  }
  inner = sum(v for k, v in baseline.items() if k not in HEAD)
  attention = sum(baseline[t] for t in ATTENTION if t in baseline)
  projections = sum(baseline[t] for t in PROJECTIONS)
  scores = attention - projections
  routed, layers = 26, 28
  half = 0.5 * projections + 0.25 * scores
  keys = 0.75 * projections + 0.5 * scores  # of q, k, v and o half is saved: q and o
  return [
    '## CHIAR-Former: 37 % and 62.5 %',
    '28 layers, width 1,024, 16 heads, 256 tokens of 50,257, one row, forward; 26 layers route. A '
    'DCT over the width is a product with a matrix, as on a TPU, but in the last column.',
    '\n'.join(table(named, 'baseline')),
    '- **62.5 %** is 1 minus the plain mean of a half and a quarter: with half of the tokens at '
    'attention, projections shrink to 1/2 and scores among these tokens to 1/4. But the two are '
    f'not equal parts: projections are {projections / attention:.1%} of attention here. Weighed, a '
    f'layer in which half of the tokens attend saves {1 - half / attention:.1%} of attention where '
    f'only these give keys and values, and {1 - keys / attention:.1%} where all tokens give them, '
    'so that later tokens can look back at all of the text.',
    f"- **37 %**: attention is {attention / inner:.1%} of the baseline's layers, so removing all "
    f'of it would save less than that. 62.5 % of attention in {routed} of {layers} layers would be '
    f'{routed / layers * 0.625 * attention / inner:.1%} of the layers.',
    '- **As released** both operators run on every token, and the router beside them: it '
    f'{_more(named["CHIAR as released"], baseline)}.',
    '- **Realised here**, with slots for half of each window: it '
    f'{_more(named["half attend, all give keys"], baseline)}, and '
    f'{_more(named["half attend, keys of those alone"], baseline)} where tokens that skip '
    f'attention are no keys either. With FFTs it '
    f'{_more(named["half attend, FFT"], baseline)}: the matrix DCT takes a part '
    'of the saving back, two products of the width for every token and layer.',
  ]


def check() -> list[str]:
  """The formulas against what XLA counts, on the unrolled small twin of each config."""
  lines = ['| config | forward: formulas / XLA | and backward |', '| --- | ---: | ---: |']
  for name, *changes in (
    ('sgn_wikitext103_transformer',),
    ('sgn_wikitext103',),
    ('sgn_wikitext103', 'model.form=published', 'model.sgn.gated=false'),
    (BASELINE,),
    ('chiar_400m',),
    ('chiar_400m', *SLOTS),
  ):
    twin = flops.counting_twin(read(name, *changes))
    shape = {'batch': 2, 'length': twin.model.context}
    cells = []
    for gradient in (False, True):
      ours = sum(flops.flops(twin, **shape, training=gradient).values())
      theirs = flops.xla_flops(twin, **shape, gradient=gradient)
      cells.append(f'{ours / theirs:.4f}')
    lines.append(f'| {" ".join([name, *changes])} | {" | ".join(cells)} |')
  return lines


def lead() -> str:
  """The page in three sentences."""
  plain = ('model.form=published', 'model.sgn.gated=false')
  softmax, baseline = (forward(read(n)) for n in ('sgn_wikitext103_transformer', BASELINE))
  fft, matrix = (forward(read('sgn_wikitext103', *plain), kind) for kind in ('cpu', 'tpu'))
  half = forward(read('chiar_400m', *SLOTS))
  layers = [f'{saving(terms, softmax, HEAD):.0%}' for terms in (fft, matrix)]
  whole = [f'{saving(terms, softmax):.0%}' for terms in (fft, matrix)]
  return (
    f"**SGN's 35 %** lies between what its layers save with FFTs ({layers[0]}) and with a matrix "
    f'DCT ({layers[1]}); its whole model saves {whole[0]} and {whole[1]}. '
    "**CHIAR's 37 %** is more than all of attention costs there, and its released code saves "
    'nothing. With slots for half of the tokens and FFTs, layers save '
    f'{saving(half, baseline, HEAD):.0%}. **Its 62.5 %** takes projections and scores for equal '
    'halves of attention, which they are not.'
  )


def page() -> str:
  """The whole page, as Markdown."""
  head = [
    '# What the papers say they save, term by term',
    lead(),
    'Forward FLOPs by the formulas of `sgnjax.analysis.flops` (2 a multiply-add; a real FFT of n '
    'points 8 n floor(log2 n), as XLA counts; scores dense). Nothing here is timed: what dispatch '
    'saves in seconds is in [dispatch.md](dispatch.md).',
  ]
  tail = [
    '## The formulas against XLA',
    'On the unrolled small twin of each config, the program as JAX hands it to XLA:',
    '\n'.join(check()),
    '```\npython -m sgnjax.analysis.flops docs/results/flops.md\n```',
  ]
  return '\n\n'.join([*head, *sgn(), *chiar(), *tail]) + '\n'
