"""FLOPs of a model, term by term, and what XLA counts for the same program.

Counted as XLA counts a program before it fuses: 2 a multiply-add, 1 an elementwise operation, 0 for
exp, log, rsqrt and the like (XLA counts those apart), and `8 n floor(log2 n)` for a real FFT of n
points (some three times what a good FFT needs; the inverse has n/2 + 1 complex points). Scores are
counted dense, L x L, as the programs compute them. Float32, no dropout, no padding mask, and no
optimiser (some 15 a parameter). Left out, since no token enters them: the responses and taps of
filters from their parameters. Every mixer and option that has no formula is refused by name.

Two things XLA counts otherwise, and here they are as computed: the body of a scan once, however
often it runs (linear attention over several blocks), and a 2-D FFT (bidirectional SGN on a
grid) with the product of both logarithms for their sum.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from sgnjax.analysis.flops import attention, baselines, chiar, sgn
from sgnjax.analysis.flops.tally import Cost, Tally, fft
from sgnjax.errors import UserError
from sgnjax.mixers import MIXERS, Mixer
from sgnjax.mixers.baselines import FNet, Haar, Identity, Linear, Performer, Uniform
from sgnjax.mixers.chiar import Routed
from sgnjax.mixers.chiar_operators import AttentionOperator, DCTOperator, RBFOperator
from sgnjax.mixers.ega import EGA
from sgnjax.mixers.ega_fourier_qk import EGAFourierQK
from sgnjax.mixers.fourier_qk import FourierQK
from sgnjax.mixers.sgn import SGN
from sgnjax.mixers.softmax import Softmax
from sgnjax.models import Model, build, example, resolve_stack
from sgnjax.models.encoder import Encoder
from sgnjax.models.shrink import shrink
from sgnjax.ops.backend import untiled
from sgnjax.ops.dct import matrix_up_to
from sgnjax.ops.linear_attention import BLOCK

__all__ = [
  'Cost', 'causal_saving', 'costs', 'counting_twin', 'fft', 'flops', 'known', 'matrix_up_to',
  'xla_flops',
]  # fmt: skip

FORMULAS: dict[type[Mixer], Callable[[Tally, Mixer, int, int], None]] = {
  Softmax: attention.softmax,
  FourierQK: attention.fourier_qk,
  EGA: attention.ega,
  EGAFourierQK: attention.ega_fourier_qk,
  SGN: sgn.sgn,
  DCTOperator: chiar.dct_operator,
  AttentionOperator: chiar.attention_operator,
  RBFOperator: chiar.rbf_operator,
  Routed: chiar.routed,
  Linear: baselines.linear,
  Performer: baselines.linear,
  Haar: baselines.haar,
  FNet: baselines.fnet,
  Uniform: baselines.uniform,
  Identity: baselines.identity,
}


# Of a block, beside those that an operator of CHIAR owns.
RESIDUALS_AND_NORMS = {
  'prenorm': (2, 2),
  'postnorm': (2, 2),
  'sgn': (1, 1),
  'sgn_bare': (0, 1),
  'chiar': (1, 1),
}


def costs(model: Model, *, batch: int, length: int) -> dict[str, Cost]:
  """Cost of each term of the model on a batch (B, L), the loss over its logits included."""
  tally = Tally()
  tokens = batch * length
  width = model.width
  if isinstance(model, Encoder) and model.image is not None:
    pixels = model.patch**2 * model.image[2]
    tally.product('embedding', tokens, pixels, width, constant=True)
    tally.each('embedding', 'bias', tokens * width)
  else:
    tally.each('embedding', 'embedding', tokens * width)
  if model.positions == 'learned':
    tally.each('positions', 'bias', tokens * width)
  for _, block in model.layers():
    mixer = block.make(parent=None)
    _mixer(tally, mixer, batch, length)
    residuals, norms = RESIDUALS_AND_NORMS[block.kind]
    tally.each('residuals', 'add', residuals * tokens * width)
    tally.each('layer norms', 'layer norm', norms * tokens * width)
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
  if isinstance(model, Encoder) and model.outputs:
    if model.pooling == 'mean':
      tally.each('pooling', 'mean', tokens * width)
    tally.product('head', batch, width, model.outputs)
    tally.each('head', 'bias', batch * model.outputs)
    tally.each('loss', 'loss', batch * model.outputs)
    return dict(tally)
  tally.product('head', tokens, width, model.padded_vocab)
  if model.padded_vocab != model.vocab:
    tally.each('head', 'bias', tokens * model.padded_vocab)  # the mask of the padding
  tally.each('loss', 'loss', tokens * model.padded_vocab)
  return dict(tally)


def _mixer(tally: Tally, mixer: Mixer, batch: int, length: int) -> None:
  """The terms of one mixer. Raises UserError for a mixer that has no formula here."""
  if type(mixer) not in FORMULAS:
    raise UserError(f"no FLOPs are known of mixer '{mixer.label}' ({type(mixer).__name__})")
  FORMULAS[type(mixer)](tally, mixer, batch, length)


def known(model: Model) -> bool:
  """Whether each mixer of the model has a formula here: those that were registered have none."""
  return all(type(block.make(parent=None)) in FORMULAS for _, block in model.layers())


def flops(
  config: ConfigDict, *, batch: int, length: int, vocab: int | None = None, training: bool = False
) -> dict[str, float]:
  """FLOPs by term of a batch (batch, length): forward to the loss, or with the backward pass."""
  terms = costs(build(config, vocab=vocab), batch=batch, length=length)
  return {name: cost.training if training else cost.forward for name, cost in terms.items()}


def causal_saving(model: Model, *, batch: int, length: int) -> float:
  """Forward FLOPs of scores and values that a kernel could leave out, since later keys count 0."""
  _, block = model.layers()[0]
  if block.make(parent=None).form == 'bidirectional':
    return 0.0
  tally = costs(model, batch=batch, length=length)
  dense = sum(tally[k].forward for k in ('scores', 'softmax', 'weighted values') if k in tally)
  return dense * (length - 1) / (2 * length)


def counting_twin(config: ConfigDict) -> ConfigDict:
  """A small twin whose layers are unrolled (XLA counts the body of a scan once), in float32.

  Wide and long enough that matrix products dominate, as they do in the model itself; with linear
  attention no longer than a block, whose scan has then one turn.
  """
  names = {name for unit, _ in resolve_stack(config) for name in unit}
  scans = any(issubclass(MIXERS[name], Linear) for name in names)
  twin = shrink(config, vocab=509, width=256, context=BLOCK if scans else 256).unlock()
  twin.model.vocab_multiple = config.model.vocab_multiple
  twin.model.scan_unroll = twin.model.layers
  twin.model.dtype = 'float32'
  return twin.lock()


def xla_flops(config: ConfigDict, *, batch: int, length: int, gradient: bool = False) -> float:
  """What XLA counts for the loss of the config's model, or for value and gradient in training.

  Of the program as JAX hands it to XLA, on any backend: fusions later repeat cheap operations, and
  a GPU's library calls go uncounted. Without dropout and without tiles. Layers must be unrolled
  (`model.scan_unroll`).
  """
  config = config.copy_and_resolve_references().unlock()
  config.model.dropout = 0.0
  model = build(config)
  inputs = example(config, batch)
  if config.model.image is None:
    inputs = jax.ShapeDtypeStruct((batch, length), inputs.dtype)
  params = jax.eval_shape(model.init, jax.random.key(0), inputs)['params']

  def loss(params, inputs):
    logits = model.apply({'params': params}, inputs, train=gradient)[0]
    return -jnp.mean(jax.nn.log_softmax(logits)[..., 0])

  function = jax.value_and_grad(loss) if gradient else loss
  with untiled():
    return jax.jit(function).lower(params, inputs).cost_analysis()['flops']
