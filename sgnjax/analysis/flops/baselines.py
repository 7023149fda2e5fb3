"""FLOPs of the baselines: linear attention by blocks, averages, FNet, identity."""

from sgnjax.analysis.flops.tally import Cost, Tally
from sgnjax.mixers.baselines import FNet, Haar, Identity, Linear, Performer, Uniform
from sgnjax.ops.linear_attention import BLOCK


def linear(tally: Tally, m: Linear, batch: int, length: int) -> None:
  """Scores inside a block and sums before it; without causality one sum over all tokens."""
  tokens, features, head = batch * length, m.kernel_features, m.width // m.heads
  projections(tally, m, tokens, 'qkv')
  rows = tokens * m.heads
  if type(m) is Performer:
    if m.positions == 'rope':
      tally.each('rope', 'rope', 2 * tokens * m.width)
    tally.product('kernel features', 2 * rows, head, features, constant=True)
    tally.put('kernel features', Cost(3, 3) * (2 * rows * (features + head)))
  else:
    tally.put('kernel features', Cost(1, 2) * (2 * rows * features))
  tally.put('normaliser', Cost(2, 4) * (rows * head))
  if not m.causal:
    tally.product('sums of keys', rows, features, head + 1)
    tally.product('sums for queries', rows, features, head + 1)
    tally.put('kernel weights', Cost(1, 1) * (rows * features))
    return
  size = min(BLOCK, length)
  blocks = -(-length // size)
  rows = batch * m.heads * blocks * size  # the last block is filled up
  tally.product('block scores', rows * size, features, 1)
  tally.put('block weights', Cost(4, 1) * (rows * size))
  tally.product('block values', rows * size, head + 1, 1)
  tally.product('sums of keys', rows, features, head + 1)
  tally.product('sums for queries', rows, features, head + 1)
  tally.put('kernel weights', Cost(1, 2) * (rows * features))
  tally.put('kernel weights', Cost(2, 4) * (batch * m.heads * blocks * features * (head + 1)))


def uniform(tally: Tally, m: Uniform, batch: int, length: int) -> None:
  tokens = batch * length
  projections(tally, m, tokens, 'v')
  tally.each('running mean', 'prefix mean' if m.causal else 'mean', tokens * m.width)


def haar(tally: Tally, m: Haar, batch: int, length: int) -> None:
  tally.each('averages', 'window mean', m.levels * batch * length * (m.width // 2))


def fnet(tally: Tally, m: FNet, batch: int, length: int) -> None:
  """A complex FFT over each axis."""
  logs = (length.bit_length() - 1) + (m.width.bit_length() - 1)
  tally.put('FNet FFTs', Cost(8 * logs + 1, 8 * logs) * (batch * length * m.width))


def identity(tally: Tally, m: Identity, batch: int, length: int) -> None:
  """Nothing."""


def projections(tally: Tally, m, tokens: int, names: str) -> None:
  """Those of the tokens under the names, and the way back."""
  tally.product('q, k, v projections', tokens, m.width, len(names) * m.width)
  tally.product('output projection', tokens, m.width, m.width)
  if m.qkv_bias:
    tally.each('biases', 'bias', tokens * len(names) * m.width)
  if m.out_bias:
    tally.each('biases', 'bias', tokens * m.width)
