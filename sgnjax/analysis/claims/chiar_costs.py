"""The claims of CHIAR-Former on parameters and cost: by formula, as compiled, and as timed."""

from ml_collections import ConfigDict

from sgnjax import config as config_lib
from sgnjax.analysis import dispatch
from sgnjax.analysis.claims.claim import FAILS, HOLDS, UNDECIDED, Finding, Table
from sgnjax.analysis.claims.lab import Lab, parameters
from sgnjax.analysis.flops import flops, xla_flops

OURS, BASELINE = 400_043_009, 404_159_488
SAVED, SAVED_OF_ATTENTION = 0.37, 0.625
ONE = 0.6  # on a scale from DCT to attention for all, what half of the tokens attending may cost
WITHIN = 0.005  # of a printed percentage
BASE = {'model.mixer': 'chiar_attention'}
# Half of the tokens attend: with the keys and values of all, or of themselves alone.
SLOTS = {'model.chiar.dispatch': 'capacity', 'model.chiar.capacity': 0.5}
FORMS = {
  'dense, as released': {},
  'slots, all give keys': SLOTS,
  'slots, those alone give keys': SLOTS | {'model.chiar.kv': 'routed'},
}
ATTENTION = (
  *('q, k, v projections', 'output projection', 'rope'),
  *('scores', 'softmax', 'weighted values'),
)


def parameters_400m(lab: Lab) -> Finding:
  ours, base = parameters('chiar_400m'), parameters('chiar_400m_baseline')
  return Finding(
    HOLDS if (ours, base) == (OURS, BASELINE) else FAILS,
    f'{ours:,} and {base:,} parameters, counted; {OURS:,} and {BASELINE:,} said. It is '
    f'{1 - ours / base:.1%} fewer.',
  )


def _full(file: str, *changes) -> ConfigDict:
  """A config of the paper at its own size, with changes."""
  told = [f'{key}={value}' for change in changes for key, value in change.items()]
  return config_lib.load(config_lib.CONFIGS / f'{file}.py', told)


def _forward(config: ConfigDict, length: int | None = None) -> dict[str, float]:
  return flops(config, batch=1, length=length or config.model.context)


def _attention(terms: dict[str, float]) -> float:
  return sum(terms[name] for name in ATTENTION)


def fewer_flops(lab: Lab) -> Finding:
  base = _forward(_full('chiar_400m', BASE))
  whole, vocabulary = sum(base.values()), base['head'] + base['loss']
  rows, saved = [], {}
  for name, changes in FORMS.items():
    own = sum(_forward(_full('chiar_400m', changes)).values())
    saved[name] = 1 - own / whole
    layers = (whole - own) / (whole - vocabulary)
    rows.append((name, f'{own / 1e9:.1f}', f'{saved[name]:.1%}', f'{layers:.1%}'))
  best, share = max(saved.values()), _attention(base) / whole
  table = Table(
    'A forward pass of 256 tokens, against attention in all 28 layers',
    ('form, half of the tokens attend', 'GFLOP', 'saved', 'saved, without the vocabulary'),
    tuple(rows),
  )
  return Finding(
    HOLDS if best >= SAVED - WITHIN else FAILS,
    f'At most {best:.1%} of a forward pass is saved where half of the tokens attend. All attention '
    f'of all layers is {share:.1%} of it, so that {SAVED:.0%} is '
    f'{"within" if share >= SAVED else "more than"} what routing could ever save. As released, '
    f'both operators run on every token and {saved["dense, as released"]:.1%} is saved.',
    tables=(table,),
  )


def attention_saved(lab: Lab) -> Finding:
  config = _full('chiar_400m')
  layers = config.model.layers
  base = _forward(_full('chiar_400m', BASE))
  each = _attention(base) / layers
  projections = sum(base[name] for name in ATTENTION[:2]) / _attention(base)

  def saved(changes) -> float:
    """Of the attention of a routed layer; the last layer attends with every token."""
    own = _attention(_forward(_full('chiar_400m', changes)))
    return 1 - (own - each) / (each * (layers - 2))

  found = {name: saved(changes) for name, changes in FORMS.items()}
  best = FORMS['slots, those alone give keys']
  window = config.model.chiar.route_window
  enough = next(
    (
      slots / window
      for slots in range(window // 2, 0, -1)
      if saved(best | {'model.chiar.capacity': slots / window}) >= SAVED_OF_ATTENTION
    ),
    0.0,
  )
  table = Table(
    'Attention of a routed layer at width 1024, context 256',
    ('form, half of the tokens attend', 'saved'),
    tuple((name, f'{share:.1%}') for name, share in found.items()),
  )
  most = max(found.values())
  return Finding(
    HOLDS if most >= SAVED_OF_ATTENTION - WITHIN else FAILS,
    f'With half of the tokens routed away at most {most:.1%} of the attention of a routed layer is '
    f'saved; projections are {projections:.0%} of that attention. {SAVED_OF_ATTENTION:.1%} needs '
    f'{enough:.0%} of the tokens or fewer to attend.',
    tables=(table,),
  )


SMALL = {
  'model.layers': 4,
  'model.width': 128,
  'model.heads': 4,
  'model.vocab': 256,
  'model.dropout': 0.0,
  'model.dtype': 'float32',
  'model.scan_unroll': 4,
}


def one_operator(lab: Lab) -> Finding:
  """Where a routed step lies between one whose inner layers are DCT and one where they attend."""
  config = _full('chiar_400m', SMALL)
  ends = (('chiar_dct', 1),), (('chiar_attention', 1),)
  configs = dispatch.kinds(config, (0.5,)) | {
    kind: _full('chiar_400m', SMALL, {'model.stack': (*ends[0], (kind, 2), *ends[1])})
    for kind in ('chiar_dct', 'chiar_attention')
  }
  counted = {
    name: xla_flops(c, batch=1, length=c.model.context, gradient=True)
    for name, c in configs.items()
  }
  low, high = counted.pop('chiar_dct'), counted.pop('chiar_attention')
  place = {name: (count - low) / (high - low) for name, count in counted.items()}
  timed = dispatch.measure(config, capacities=(0.5,), repeats=5)['rows']
  rows = [
    (
      name,
      f'{counted[name] / 1e9:.2f}',
      f'{place[name]:.2f}',
      f'{1 - timed[name].get("measured", 0.0):.2f}',
    )
    for name in counted
  ]
  dense, slots = place[dispatch.DENSE], place['routed 50%']
  return Finding(
    HOLDS if dense < ONE else FAILS,
    'On a scale from 0, where every token of a routed layer takes DCT, to 1, where every token '
    f'attends, XLA counts {dense:.2f} for the released arrangement, in which half attend: one '
    f'operator for each token is about 0.5, both for all are about 1; held below {ONE}. With slots '
    f'for half of the tokens it counts {slots:.2f}; that step takes '
    f'{1 - timed["routed 50%"]["measured"]:.2f} of the time of the released one.',
    setting='4 layers, width 128, context 256, on processor cores: a property of the program',
    tables=(
      Table(
        'A training step',
        ('who gives keys, slots', 'GFLOP by XLA', 'on the scale', 'time, of dense'),
        tuple(rows),
      ),
    ),
  )


def sizes(lab: Lab) -> Finding:
  """Savings of routing among half of the tokens, by width at two contexts, counted and timed."""
  rows, analytic, measured = [], {}, {}
  for context in (128, 512):
    for width in (64, 256):
      config = _full(
        'chiar_400m', SMALL, {'model.width': width, 'model.context': context, 'optim.lr': 1e-4}
      )
      row = dispatch.measure(config, capacities=(0.5,), repeats=5)['rows']['routed 50%']
      analytic[context, width], measured[context, width] = row['analytic'], row['measured']
      rows.append((str(context), str(width), f'{row["analytic"]:.1%}', f'{row["measured"]:.1%}'))
  whole = {}
  for file in ('chiar_16m', 'chiar_400m', 'chiar_1b'):
    base, own = (
      sum(_forward(_full(file, changes), 256).values())
      for changes in (BASE, FORMS['slots, those alone give keys'])
    )
    whole[file] = 1 - own / base
  grows = [
    found[context, 256] > found[context, 64]
    for found in (analytic, measured)
    for context in (128, 512)
  ]
  models = tuple((name, f'{saved:.1%}') for name, saved in whole.items())
  return Finding(
    HOLDS if all(grows) else UNDECIDED if any(grows) else FAILS,
    f'At equal depth and context, for 512 tokens: {analytic[512, 64]:.0%} of the FLOPs at width 64 '
    f'and {analytic[512, 256]:.0%} at 256 ({measured[512, 64]:.0%} and {measured[512, 256]:.0%} of '
    'the time). Of a forward pass of a whole model, in which vocabulary and layers that route have '
    f'other shares, {whole["chiar_16m"]:.1%} at 16M and {whole["chiar_400m"]:.1%} at 400M.',
    setting='4 layers on processor cores for the times; the papers do not test it',
    tables=(
      Table(
        'A training step, half of the tokens in slots, against dense',
        ('context', 'width', 'FLOPs saved', 'time saved'),
        tuple(rows),
      ),
      Table('Whole models, forward, 256 tokens, against attention', ('config', 'saved'), models),
    ),
  )
