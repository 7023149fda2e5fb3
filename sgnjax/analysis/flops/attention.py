"""FLOPs of the attending mixers: softmax, FourierQK's filters, EGA's gates, and both at once."""

from sgnjax.analysis.flops.tally import (
  Cost,
  Tally,
  convolution,
  irfft,
  known,
  rfft,
  there_and_back,
)
from sgnjax.mixers.ega import EGA
from sgnjax.mixers.ega_fourier_qk import EGAFourierQK
from sgnjax.mixers.fourier_qk import FourierQK
from sgnjax.mixers.softmax import Attention, Softmax
from sgnjax.ops import wavelets


def attending(
  tally: Tally, m: Attention, batch, queries, keys=None, *, features=None, rotated=1, biases=1
) -> None:
  """Projections, scores over `features` a head, weights, values, and the way back.

  queries, keys: of an example. rotated: copies of queries and keys that RoPE turns. biases: of
  ALiBi, one for all examples or one each.
  """
  keys = keys or queries
  scores = batch * m.heads * queries * keys
  if m.positions == 'alibi':
    tally.put('ALiBi bias', Cost(scores + biases * (m.heads + 3) * queries * keys, 0))
  queries, keys = batch * queries, batch * keys
  tally.product('q, k, v projections', queries + 2 * keys, m.width, m.width)
  tally.product('output projection', queries, m.width, m.width)
  if m.qkv_bias:
    tally.each('biases', 'bias', (queries + 2 * keys) * m.width)
  if m.out_bias:
    tally.each('biases', 'bias', queries * m.width)
  if m.positions == 'rope':
    tally.each('rope', 'rope', (queries + keys) * m.width * rotated)
  tally.product('scores', scores, features or m.width // m.heads, 1)
  tally.each('softmax', 'softmax', scores)
  tally.product('weighted values', scores, m.width // m.heads, 1)


def softmax(tally: Tally, m: Softmax, batch: int, length: int) -> None:
  attending(tally, m, batch, length)


def fourier_qk(tally: Tally, m: FourierQK, batch: int, length: int) -> None:
  filters(tally, m, batch, length)
  attending(tally, m, batch, length, features=m.feature_width, rotated=m.bank)


def ega(tally: Tally, m: EGA, batch: int, length: int) -> None:
  shared = gate(tally, m, batch, length)
  attending(tally, m, batch, length, features=m.width // m.heads + shared)


def ega_fourier_qk(tally: Tally, m: EGAFourierQK, batch: int, length: int) -> None:
  filters(tally, m, batch, length)
  shared = gate(tally, m, batch, length)
  attending(tally, m, batch, length, features=m.feature_width + shared, rotated=m.bank)


def filters(tally: Tally, m: FourierQK, batch: int, length: int) -> None:
  """Filtered queries and keys; not the responses, which no input enters, from their centres."""
  kernel = known(m, 'kernel', ('response', 'taps'))
  known(m, 'scores', ('real', 'analytic'))
  rows, kernels = 2 * batch * m.width, m.heads * m.bank
  learned = m.learned and bool(m.placed_by)
  if m.surrogate is not None:
    surrogate(tally, m, batch, length)
  if m.circular:
    tally.put('filter FFTs', rfft(length, rows) + irfft(length, rows * m.bank))
    products = Cost(1, 5) if learned else Cost(1, 2)
    tally.put('filter products', products * ((length // 2 + 1) * rows * m.bank))
    return
  lags = m.taps if kernel == 'taps' else m.context + 1
  sides = 2 if m.form == 'bidirectional' else 1
  convolution(
    tally, 'filter', lags=lags, length=length, rows=rows, kernels=sides * kernels,
    learned=learned, bank=m.bank,
  )  # fmt: skip
  if kernel == 'response':
    made = irfft(2 * m.context, kernels)
    tally.put('filter kernels', made if learned else made.constant)


def surrogate(tally: Tally, m: FourierQK, batch: int, length: int) -> None:
  """Changed phases of queries and keys: in evaluation alone, so training has none."""
  rows, bins = 2 * batch * m.width, length // 2 + 1
  drawn = {'random': 2 * m.heads * batch, 'independent': rows, 'amplitude': 0, 'shift': 0}
  drawn = known(m, 'surrogate', drawn)
  each = 1 if m.surrogate == 'shift' else 4
  forward = there_and_back(length, rows).forward + bins * (each * rows + 38 * drawn)
  tally.put('surrogate, in evaluation', Cost(forward, -forward))


def gate(tally: Tally, m: EGA, batch: int, length: int) -> int:
  """Energies, their statistic and the gate; the features of the keys that the gate takes."""
  per_query = m.statistic == 'query'
  known(m, 'statistic', ('query', 'prefix', 'none', 'sequence'))
  energies = {'linear': linear, 'conv': conv, 'morlet': morlet, 'daubechies': wavelet}
  energies |= {'learned_wavelet': wavelet, 'packet': packet}
  known(m, 'energy', energies)(tally, m, batch, length)
  keys = batch * m.heads * length
  if per_query:
    # The moments of each prefix, and of each query what its tiles take from them.
    tally.each('gate z-norm', 'prefix z-norm', batch * m.signals * length * m.bands)
    tally.put('gate z-norm', Cost(4.6 * m.bands, 8.5 * m.bands + 62) * keys)
    each = Cost(8, 25) if m.bands == 1 else Cost(11 * m.bands + 4, 27 * m.bands + 6)
    tally.put('gate', each * (keys * length))
  else:
    if m.statistic != 'none':
      tally.each('gate z-norm', f'{m.statistic} z-norm', keys * m.bands)
    tally.put('gate', Cost(14 * m.bands + 3, 15 * m.bands + 6) * keys)
  if m.released:
    tally.each('gate floor', 'floor', keys * length)
  return int(not per_query and not m.released)  # log g is a feature of the keys


def linear(tally: Tally, m: EGA, batch: int, length: int) -> None:
  tally.product('gate energies', batch * length, m.width, m.heads * m.bands)


def conv(tally: Tally, m: EGA, batch: int, length: int) -> None:
  taps, tokens = sum(m.lengths), batch * padded(m, length)
  tally.product('gate energies', batch * length, m.width, 2 * m.heads * taps)
  # The gradients of all taps are added up, each as wide as all of them.
  tally.put('gate energies', Cost(2, 2 + 2 * taps) * (taps * m.heads * tokens))


def morlet(tally: Tally, m: EGA, batch: int, length: int) -> None:
  signal(tally, m, batch, length)
  tally.put('gate energies', TAP * (2 * sum(m.lengths) * m.signals * batch * padded(m, length)))


def wavelet(tally: Tally, m: EGA, batch: int, length: int) -> None:
  signal(tally, m, batch, length)
  taps = len(wavelets.filters(m.wavelet)[0]) * (2 * m.levels - 1)  # the last low one is not used
  cost = TAP if m.energy == 'learned_wavelet' else Cost(2, 2)
  tally.put('gate energies', cost * (taps * m.signals * batch * padded(m, length)))


def packet(tally: Tally, m: EGA, batch: int, length: int) -> None:
  signal(tally, m, batch, length)
  rows = m.signals * batch * padded(m, length)
  nodes = 2 ** (m.levels + 1) - 1
  taps = len(wavelets.filters(m.wavelet)[0]) * (nodes - 1)
  tally.put('gate energies', Cost(2, 2) * (taps * rows))
  tally.put('best basis', Cost(60, 0) * (nodes * rows))
  tally.put('gate energies', Cost(3, 3) * (nodes * m.bands * rows))


TAP = Cost(2, 5)  # of one position: a tap that trains


def padded(m: EGA, length: int) -> int:
  """Positions that taps are computed at: the mirrored ones before the start too."""
  return length + (m.reach if m.pad == 'reflect' else 0)


def signal(tally: Tally, m: EGA, batch: int, length: int) -> None:
  """What the taps filter."""
  if known(m, 'input', {'projection': False, 'mean': True}):
    tally.each('gate energies', 'mean', batch * length * m.width)
  else:
    tally.product('gate energies', batch * length, m.width, m.heads)
