"""FLOPs of CHIAR's operators and of what routes tokens between them."""

from sgnjax.analysis.flops.attention import attending
from sgnjax.analysis.flops.tally import ELEMENTWISE, Cost, Tally, dct, idct, known
from sgnjax.mixers.chiar import Routed
from sgnjax.mixers.chiar_operators import AttentionOperator, DCTOperator, RBFOperator
from sgnjax.ops.width import folds

ROUTERS = {'threshold': False, 'random': False, 'soft': True, 'hard': True}  # whether they learn


def dct_operator(tally: Tally, m: DCTOperator | Routed, batch: int, length: int) -> None:
  tokens = rows = batch * length
  there = transform(m, tokens)
  if isinstance(m, DCTOperator) and folds(m.width, tokens, m.basis):
    tally.product('width products', tokens, m.width, m.width)
    rows, there = m.width, transform(m, m.width).constant
  tally.put('width transforms', there + transform(m, rows, back=True))
  tally.put('width filter', Cost(2, 4) * (rows * m.width))
  own_residual(tally, m, tokens)


def attention_operator(tally: Tally, m: AttentionOperator, batch: int, length: int) -> None:
  attending(tally, m, batch, length)
  own_residual(tally, m, batch * length)


def rbf_operator(tally: Tally, m: RBFOperator | Routed, batch: int, length: int) -> None:
  """One head whose queries, keys and values are the Fourier features, then an FFN."""
  tokens, features, width = batch * length, 2 * m.rbf_features, m.width
  tally.product('RBF features', tokens, width, m.rbf_features, constant=True)
  tally.put('RBF features', Cost(1, 6) * (tokens * m.rbf_features))
  tally.product('RBF scores', tokens * length, features, 1)
  tally.each('RBF softmax', 'softmax', tokens * length)
  tally.product('RBF weighted features', tokens * length, features, 1)
  for inner, outer in ((features, width), (width, 4 * width), (4 * width, width)):
    tally.product('RBF products', tokens, inner, outer)
    tally.each('biases', 'bias', tokens * outer)
  tally.each('RBF gelu', 'gelu', tokens * 4 * width)
  own_residual(tally, m, tokens)


def routed(tally: Tally, m: Routed, batch: int, length: int) -> None:
  """All operators on every token; with slots, attention on those of the slots."""
  tokens = batch * length
  known(m, 'dispatch', ('dense', 'capacity'))
  known(m, 'kv', ('all', 'routed'))
  learned = known(m, 'router', ROUTERS)
  dct_operator(tally, m, batch, length)
  queries, keys = m.attending(length)
  slots = queries < length
  attending(tally, m, batch, queries, keys, biases=batch if slots else 1)
  own_residual(tally, m, batch * queries)
  if m.rbf:
    rbf_operator(tally, m, batch, length)
  if m.router != 'random':  # without a gradient where nothing is learned
    entropy = ELEMENTWISE['entropy'] * (tokens * m.width)
    tally.put('entropy', entropy if learned else entropy.constant)
  count = len(m.operators)
  if learned:
    tally.product('router', tokens, m.width + 1, count)
    tally.put('route', Cost(2 * count - 1, 4 * count - 1) * (tokens * m.width))
  else:
    tally.each('route', 'select', (count - 1) * tokens * m.width)


def own_residual(tally: Tally, m, tokens: int) -> None:
  """CHIAR's operators have residual and norm of their own."""
  tally.each('residuals', 'add', tokens * m.width)
  tally.each('layer norms', 'layer norm', tokens * m.width)


def transform(m, tokens: int, *, back: bool = False) -> Cost:
  """To the coefficients of the width, or back."""
  if known(m, 'basis', ('dct', 'orthogonal', 'permuted')) == 'orthogonal':
    return Cost(2, 2) * (m.width * m.width * tokens)
  return (idct if back else dct)(m.width, tokens)
