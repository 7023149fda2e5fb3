"""Training steps: our attention against the machine, other mixers against our attention."""

from collections.abc import Iterator, Sequence
from typing import Any

from sgnjax.analysis.benchmark import scaffold, timing
from sgnjax.analysis.benchmark.page import FLAG, Row
from sgnjax.analysis.benchmark.settings import Settings
from sgnjax.analysis.benchmark.step import CONVENTION, Bare

AIMS = {256: 1.0, 2048: 1.6, 8192: 3.0, 65_536: 18.0}  # softmax / SGN by context
COSTS = {
  'softmax': None,
  'ega-prefix': 1.05,
  'ega': 1.3,  # statistics of each query
  'ega-conv': None,
  'fourier_qk-taps-morlet-real': 1.3,
  'fourier_qk-taps-morlet': None,
  'sgn-published': None,
}
PAIR = ('softmax', 'sgn')


def softmax(settings: Settings, **sizes: Any) -> Iterator[Row | str]:
  """Softmax against the machine

  The plain decoder, softmax attention, against a large float32 matrix product of the same run; its
  layers in one scan, and unrolled."""
  context = sizes.pop('context', 256)
  configs = {
    'scan over layers': scaffold.config('softmax', context=context, **sizes),
    'unrolled': scaffold.config(
      'softmax', context=context, scan_unroll=sizes.get('layers', 6), **sizes
    ),
  }
  bare = {name: Bare(config).ready() for name, config in configs.items()}
  product, copy = timing.matrix_product('float32'), timing.copy()
  timed = {**bare, 'matrix': product, 'copy': copy}
  took = timing.interleaved(timed, settings.repeats, settings.seconds)
  peak = 2 * timing.matrix_size() ** 3 / took['matrix']
  flow = 8 * timing.copy_size() / took['copy']
  for name, one in bare.items():
    yield {
      'layers': name,
      'ms a step': 1e3 * took[name],
      'tokens/s': one.tokens / took[name],
      'GFLOP a step, by formula': one.flops / 1e9,
      'GFLOP/s': one.flops / took[name] / 1e9,
      'share of the matrix rate': one.flops / took[name] / peak,
      'aim': '0.6',
      'GFLOP by XLA': one.program.flops / 1e9,
      'GB/s by XLA': one.program.moved / took[name] / 1e9,
      'peak MiB': one.program.peak / 2**20,
    }
  size = timing.matrix_size()
  yield f'{scaffold.words(configs["unrolled"])}; median of {took.count} rounds.'
  yield f'Matrix product {size} x {size}: {peak / 1e9:,.0f} GFLOP/s; copy: {flow / 1e9:,.1f} GB/s.'
  yield CONVENTION


def contexts(settings: Settings, **sizes: Any) -> Iterator[Row | str]:
  """SGN against softmax over the context

  Gated causal SGN and softmax attention of the same width and depth, the same tokens a step: 4,096,
  or one row. Where softmax with all layers is too large or too slow here, both have one layer."""
  rate, full = _matrix_rate(), sizes.get('layers', scaffold.SIZES['layers'])
  for context in settings.contexts:
    reasons = []
    for layers in dict.fromkeys((full, 1)):
      changes = sizes | {'layers': layers}
      pair = {name: Bare(scaffold.config(name, context=context, **changes)) for name in PAIR}
      why, large = _too_much(pair['softmax'], rate, settings.seconds)
      if why is None:
        break
      reasons.append(f'with {layers} layers softmax {why}')
    row: Row = {'context': context, 'batch': pair['sgn'].config.train.batch, 'layers': layers}
    held = why is not None and large
    if held:
      del pair['softmax']
    for one in pair.values():
      one.ready()
    # The first step of one that takes minutes is as good as the next.
    slow = why is not None and not held
    took = timing.interleaved(
      pair, settings.repeats, settings.seconds, warmup=0 if slow else timing.WARMUP
    )
    row['rounds'] = took.count
    row['softmax, ms'] = None if held else 1e3 * took['softmax']
    row['SGN, ms'] = 1e3 * took['sgn']
    row['softmax / SGN'] = None if held else took.ratio('softmax', 'sgn')
    row['aim'] = AIMS.get(context)
    row['SGN tokens/s'] = pair['sgn'].tokens / took['sgn']
    row['softmax, peak MiB'] = None if held else pair['softmax'].program.peak / 2**20
    row['SGN, peak MiB'] = pair['sgn'].program.peak / 2**20
    yield row | ({'note': f'softmax not run: {why}'} if held else {})
    if reasons:
      yield f'At {context:,} tokens {"; ".join(reasons)}.'
  yield f'{scaffold.shape(**sizes)}.'


def _too_much(one: Bare, rate: float, seconds: float) -> tuple[str | None, bool]:
  """Why a step cannot be repeated here, None where it can, and whether it is too large to run.

  Half the matrix rate is assumed.
  """
  if why := timing.too_large(one.program.peak):
    return why, True
  guess = one.flops / (rate / 2)
  return (f'would take some {guess:,.0f} s a step' if guess > seconds else None), False


def _matrix_rate() -> float:
  took = timing.interleaved({'matrix': timing.matrix_product('float32')}, 3)
  return 2 * timing.matrix_size() ** 3 / took['matrix']


def attention(
  settings: Settings, *, lengths: Sequence[int] = (256, 2048), **sizes: Any
) -> Iterator[Row | str]:
  """What gates and filters cost over plain attention

  Whole training steps, 4,096 tokens each: EGA-1 with statistics of the prefix and of each query
  (`ega`), its convolutional energy, FourierQK with causal FIR filters of 128 taps (real scores, and
  analytic ones, which have twice the features)."""
  for context in lengths:
    bare = {name: Bare(scaffold.config(name, context=context, **sizes)).ready() for name in COSTS}
    took = timing.interleaved(bare, settings.repeats, settings.seconds)
    for name, aim in COSTS.items():
      yield {
        'context': context,
        'mixer': name,
        'rounds': took.count,
        'ms a step': 1e3 * took[name],
        '/ softmax': took.ratio(name, 'softmax'),
        'aim': aim,
        'peak MiB': bare[name].program.peak / 2**20,
        'peak / softmax': bare[name].program.peak / bare['softmax'].program.peak,
        FLAG: bare[name].leaky,
      }
  yield f'{scaffold.shape(**sizes)}.'


SECTIONS = {'softmax': softmax, 'contexts': contexts, 'attention': attention}
