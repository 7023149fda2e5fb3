"""FLOPs of a model, term by term, and what XLA counts for the same program.

Counted as XLA counts a program before it fuses: 2 a multiply-add, 1 an elementwise operation, 0 for
exp, log, rsqrt and the like (XLA counts those apart), and `8 n floor(log2 n)` for a real FFT of n
points (some three times what a good FFT needs; the inverse has n/2 + 1 complex points). Scores are
counted dense, L x L, as the programs compute them. Float32, no dropout, no padding mask, and no
optimiser (some 15 a parameter).
"""

from collections import Counter
from typing import NamedTuple

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from sgnjax.errors import UserError
from sgnjax.mixers import Mixer
from sgnjax.mixers.chiar import Routed
from sgnjax.mixers.chiar_operators import AttentionOperator, DCTOperator
from sgnjax.mixers.ega import EGA
from sgnjax.mixers.fourier_qk import FourierQK
from sgnjax.mixers.sgn import SGN
from sgnjax.mixers.softmax import Softmax
from sgnjax.models import build
from sgnjax.models.decoder import Decoder
from sgnjax.models.shrink import shrink
from sgnjax.ops.dct import MATRIX_UP_TO
from sgnjax.ops.kernels import fast_length


class Cost(NamedTuple):
  """FLOPs of the forward pass, and of what the backward pass adds."""

  forward: float
  backward: float

  @property
  def training(self) -> float:
    return self.forward + self.backward

  def __add__(self, other):
    return Cost(self.forward + other.forward, self.backward + other.backward)

  def __mul__(self, times):
    return Cost(self.forward * times, self.backward * times)


# Of each element of the named operation's output, as XLA lowers it: forward, backward.
ELEMENTWISE = {
  'add': Cost(1, 0),
  'bias': Cost(1, 1),
  'layer norm': Cost(7, 13),
  'gelu': Cost(66, 10),  # erf as polynomials
  'silu': Cost(5, 8),  # and the product that it gates
  'rope': Cost(3, 3.5),
  'softmax': Cost(7.25, 9),  # scale, mask, shift, sum, divide
  'loss': Cost(4, 4),
  'embedding': Cost(1, 1),
  'query z-norm': Cost(4.6, 8.5),
  'prefix z-norm': Cost(25, 43.5),
  'sequence z-norm': Cost(11.2, 14.2),
  'floor': Cost(4, 8),
  'prefix mean': Cost(9, 13.5),
  'mean': Cost(1, 1),
  'blend': Cost(3, 5),
  'select': Cost(1, 2),
  'entropy': Cost(6, 0),  # beside its DCT; a route has no gradient
}


class Tally(Counter):
  """Costs by name."""

  def product(self, name: str, rows: int, inner: int, columns: int) -> None:
    """A matrix product, and the two of its backward pass."""
    self.put(name, Cost(2, 4) * (rows * inner * columns))

  def each(self, name: str, kind: str, elements: float) -> None:
    self.put(name, ELEMENTWISE[kind] * elements)

  def put(self, name: str, cost: Cost) -> None:
    self[name] = self.get(name, Cost(0, 0)) + cost


def fft(points: int, rows: float, *, inverse: bool = False) -> float:
  """XLA's count of real FFTs: 8 floor(log2 n) an element of the operand."""
  elements = points // 2 + 1 if inverse else points
  return 8.0 * (points.bit_length() - 1) * elements * rows


def there_and_back(points: int, rows: float) -> Cost:
  """An rFFT and an irFFT; the transpose of each is the other, and scales its operand."""
  both = fft(points, rows) + fft(points, rows, inverse=True)
  return Cost(both, both + 6 * points * rows)


def convolution(tally: Tally, name: str, n: int, length: int, rows: float, kernels: float) -> None:
  """`causal_conv` or `even_conv` of `rows` sequences, with kernels from responses over 2n."""
  points = fast_length(length + min(length, n + 1) - 1)
  tally.put(f'{name} FFTs', there_and_back(points, rows))
  tally.put(f'{name} kernels', there_and_back(2 * n, kernels) * 0.5)
  tally.put(f'{name} kernels', there_and_back(points, kernels) * 0.5)
  tally.put(f'{name} products', Cost(1, 5) * ((points // 2 + 1) * rows))


def costs(model: Decoder, *, batch: int, length: int) -> dict[str, Cost]:
  """Cost of each term of the model on a batch (B, L), the loss over its logits included."""
  tally = Tally()
  tokens = batch * length
  width = model.width
  tally.each('embedding', 'embedding', tokens * width)
  if model.positions == 'learned':
    tally.each('positions', 'bias', tokens * width)
  for _, block in model.layers():
    mixer = block.make(parent=None)
    _mixer(tally, mixer, batch, length)
    if block.kind in ('prenorm', 'postnorm', 'sgn'):
      tally.each('residuals', 'add', tokens * width)
      tally.each('layer norms', 'layer norm', tokens * width)
    if block.kind != 'sgn':
      tally.each('residuals', 'add', tokens * width)
      tally.each('layer norms', 'layer norm', tokens * width)
    for inner, outer in ((width, block.hidden), (block.hidden, width)):
      tally.product('ffn products', tokens, inner, outer)
      tally.each('biases', 'bias', tokens * outer)
    tally.each('ffn gelu', 'gelu', tokens * block.hidden)
    if block.meta:
      mean = 'prefix mean' if mixer.form == 'causal' else 'mean'
      tally.each('MetaRouter mean', mean, tokens * width)
      tally.product('MetaRouter gate', tokens, width, 1)
      tally.each('MetaRouter blend', 'blend', tokens * width)
  tally.each('layer norms', 'layer norm', tokens * width)
  tally.product('head', tokens, width, model.padded_vocab)
  if model.padded_vocab != model.vocab:
    tally.each('head', 'bias', tokens * model.padded_vocab)  # the mask of the padding
  tally.each('loss', 'loss', tokens * model.padded_vocab)
  return dict(tally)


def _mixer(tally: Tally, mixer: Mixer, batch: int, length: int) -> None:
  """The terms of one mixer. Raises UserError for a mixer that has no formula here."""
  formulas = {
    Softmax: _attention,
    SGN: _sgn,
    FourierQK: _fourier_qk,
    EGA: _ega,
    DCTOperator: _chiar,
    AttentionOperator: _chiar,
    Routed: _chiar,
  }
  if type(mixer) not in formulas:
    raise UserError(f"no FLOPs are known of mixer '{mixer.label}' ({type(mixer).__name__})")
  formulas[type(mixer)](tally, mixer, batch, length)


def _attention(tally, m, batch, queries, keys=None, *, features=None, scale_copies=1):
  """Projections, scores over `features` a head, weights, values, and the way back."""
  queries, keys = batch * queries, batch * (keys or queries)
  scores = queries * keys // batch * m.heads
  tally.product('q, k, v projections', queries + 2 * keys, m.width, m.width)
  tally.product('output projection', queries, m.width, m.width)
  if m.qkv_bias:
    tally.each('biases', 'bias', (queries + 2 * keys) * m.width)
  if m.out_bias:
    tally.each('biases', 'bias', queries * m.width)
  if m.positions == 'rope':
    tally.each('rope', 'rope', (queries + keys) * m.width * scale_copies)
  tally.product('scores', scores, features or m.width // m.heads, 1)
  tally.each('softmax', 'softmax', scores)
  tally.product('weighted values', scores, m.width // m.heads, 1)


def _ega(tally, m, batch, length):
  per_query = m.statistic == 'query'
  shares = not per_query and not m.released  # log g is a feature of the keys
  _attention(tally, m, batch, length, features=m.width // m.heads + shares)
  keys = batch * m.heads * length
  entries = keys * (length if per_query else 1)
  tally.product('gate energies', batch * length, m.width, m.heads * m.scales)
  if m.statistic != 'none':
    tally.each('gate z-norm', f'{m.statistic} z-norm', entries * m.scales)
  tally.put('gate', Cost(14 * m.scales + 3, 15 * m.scales + 6) * entries)
  if per_query and not m.released:
    tally.each('gate', 'add', entries)
  if m.released:
    tally.each('gate floor', 'floor', keys * length)


def _fourier_qk(tally, m, batch, length):
  scales = len(m.periods) if m.filter == 'mexican_hat' else 1
  _attention(tally, m, batch, length, features=scales * m.width // m.heads, scale_copies=scales)
  rows = 2 * batch * m.width * scales
  if m.form == 'published':
    tally.put('filter FFTs', there_and_back(length, rows))
    tally.put('filter products', Cost(1.5, 3) * ((length // 2 + 1) * rows))
  else:
    convolution(tally, 'filter', m.context, length, rows, 2 * m.heads * scales)


def _sgn(tally, m, batch, length):
  tokens = batch * length
  if m.gated:
    tally.product('in projection', tokens, m.width, 2 * m.width)
    tally.product('out projection', tokens, m.width, m.width)
    tally.each('silu gate', 'silu', tokens * m.width)
    if m.out_bias:
      tally.each('biases', 'bias', tokens * m.width)
  if m.form == 'published':
    _dct(tally, 'gate', length, batch * m.width)
    tally.put('gate products', Cost(1, 3) * (tokens * m.width))
  elif m.form == 'causal' and m.operator == 'masked':
    n = m.context
    # The product with the cosines, which take no gradient, and the two parts that it gives.
    tally.put('gate operator', Cost(2, 2) * (2 * n * n * m.width))
    tally.put('gate operator', Cost(3, 4) * (n * n * m.width))
    tally.product('gate products', tokens, length, m.width)
  else:
    convolution(tally, 'gate', m.context, length, batch * m.width, m.width)


def matrix_up_to() -> int:
  """Width up to which `ops.dct` takes the matrix on this backend."""
  return MATRIX_UP_TO.get(jax.default_backend(), MATRIX_UP_TO['cpu'])


def _dct(tally, name, n, rows, *, back=True, gradient=True):
  """A DCT of n points, and its inverse, as `ops.dct` chooses to compute them."""
  if n <= matrix_up_to():
    cost = Cost(2, 2) * (n * n * rows * (1 + back))
  elif back:
    cost = there_and_back(n, rows) + Cost(6, 12) * (n * rows)
  else:
    cost = Cost(fft(n, rows) + 3 * n * rows, 0)
  tally.put(f'{name} DCTs', cost if gradient else cost._replace(backward=0))


def _chiar(tally, m, batch, length):
  tokens = batch * length
  if not isinstance(m, AttentionOperator) or isinstance(m, Routed):
    _dct(tally, 'width', m.width, tokens)
    tally.put('width filter', Cost(2, 4) * (tokens * m.width))
    tally.each('residuals', 'add', tokens * m.width)
    tally.each('layer norms', 'layer norm', tokens * m.width)
  if isinstance(m, AttentionOperator):
    queries, keys = m.attending(length) if isinstance(m, Routed) else (length, length)
    _attention(tally, m, batch, queries, keys)
    tally.each('residuals', 'add', batch * queries * m.width)
    tally.each('layer norms', 'layer norm', batch * queries * m.width)
  if isinstance(m, Routed):
    _dct(tally, 'entropy', m.width, tokens, back=False, gradient=False)
    tally.each('entropy', 'entropy', tokens * m.width)
    tally.each('route', 'select', tokens * m.width)


def flops(
  config: ConfigDict, *, batch: int, length: int, vocab: int | None = None, training: bool = False
) -> dict[str, float]:
  """FLOPs by term of a batch (batch, length): forward to the loss, or with the backward pass."""
  terms = costs(build(config, vocab=vocab), batch=batch, length=length)
  return {name: cost.training if training else cost.forward for name, cost in terms.items()}


def causal_saving(model: Decoder, *, batch: int, length: int) -> float:
  """Forward FLOPs of scores and values that a kernel could leave out, since later keys count 0."""
  tally = costs(model, batch=batch, length=length)
  dense = sum(tally[k].forward for k in ('scores', 'softmax', 'weighted values') if k in tally)
  return dense * (length - 1) / (2 * length)


def counting_twin(config: ConfigDict) -> ConfigDict:
  """A small twin whose layers are unrolled (XLA counts the body of a scan once), in float32.

  Wide and long enough that matrix products dominate, as they do in the model itself.
  """
  twin = shrink(config, vocab=509, width=256).unlock()
  twin.model.context = min(config.model.context, 256)
  twin.model.vocab_multiple = config.model.vocab_multiple
  twin.model.scan_unroll = twin.model.layers
  twin.model.dtype = 'float32'
  return twin.lock()


def xla_flops(config: ConfigDict, *, batch: int, length: int, gradient: bool = False) -> float:
  """What XLA counts for the loss of the config's model, or for its value and gradient.

  Of the program as JAX hands it to XLA, on any backend: fusions later repeat cheap operations, and
  a GPU's library calls go uncounted. Layers must be unrolled (`model.scan_unroll`).
  """
  model = build(config)
  tokens_BL = jax.ShapeDtypeStruct((batch, length), jnp.int32)
  params = jax.eval_shape(model.init, jax.random.key(0), tokens_BL)['params']

  def loss(params, tokens_BL):
    logits_BLV = model.apply({'params': params}, tokens_BL)[0]
    return -jnp.mean(jax.nn.log_softmax(logits_BLV)[:, :, 0])

  function = jax.value_and_grad(loss) if gradient else loss
  return jax.jit(function).lower(params, tokens_BL).cost_analysis()['flops']
