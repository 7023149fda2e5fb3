"""Each mixer alone, forward and backward, in float32 and bfloat16."""

from collections.abc import Iterator, Sequence

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from sgnjax.analysis.benchmark import scaffold, timing
from sgnjax.analysis.benchmark.page import FLAG, Row
from sgnjax.analysis.benchmark.settings import Settings
from sgnjax.models import maker

DTYPES = ('float32', 'bfloat16')
# Of models/variants.py.
NAMES = (
  *('softmax', 'softmax-rope', 'sgn', 'sgn-plain', 'sgn-published', 'sgn-bidirectional'),
  *('fourier_qk', 'fourier_qk-taps-morlet-real', 'fourier_qk-taps-morlet', 'ega-prefix', 'ega'),
  *('ega-4', 'ega_fourier_qk', 'chiar', 'chiar-capacity-routed', 'linear', 'performer', 'haar'),
  *('fnet', 'uniform'),
)


def steps(
  settings: Settings,
  *,
  width: int = 512,
  length: int = 512,
  batch: int = 4,
  names: Sequence[str] = NAMES,
) -> Iterator[Row | str]:
  """Forward and backward of one mixer

  Width 512, 8 heads, 4 rows of 512 tokens, gradients by the input and all parameters (float32
  parameters under both dtypes). All mixers and both dtypes take turns."""
  timed, leaky = {}, {}
  for name in names:
    for dtype in DTYPES:
      sizes = {'width': width, 'heads': max(1, width // 64), 'context': length, 'dtype': dtype}
      timed[name, dtype], leaky[name] = one(scaffold.config(name, **sizes), batch)
  took = timing.interleaved(timed, settings.repeats, settings.seconds)
  for name in names:
    row = {'mixer': name, FLAG: leaky[name]}
    for dtype in DTYPES:
      row[f'{dtype}, ms'] = 1e3 * took[name, dtype]
    for dtype in DTYPES:
      row[f'{dtype} / softmax'] = took.ratio((name, dtype), ('softmax', dtype))
    row['bfloat16 / float32'] = took.ratio((name, 'bfloat16'), (name, 'float32'))
    row['GFLOP by XLA'] = timed[name, 'float32'].flops / 1e9
    row['peak MiB, float32'] = timed[name, 'float32'].peak / 2**20
    row['peak MiB, bfloat16'] = timed[name, 'bfloat16'].peak / 2**20
    yield row
  yield f'Median of {took.count} rounds. Aim: bfloat16 / float32 at most 1 for every mixer.'


def one(config: ConfigDict, batch: int) -> tuple[timing.Program, bool]:
  """Forward and backward pass of the config's mixer, compiled, and whether it sees the future."""
  m = config.model
  mixer = maker(config, m.mixer)(parent=None)
  x_BLD = jax.random.normal(jax.random.key(1), (batch, m.context, m.width)).astype(m.dtype)
  positions_BL = jnp.broadcast_to(jnp.arange(m.context, dtype=jnp.int32), (batch, m.context))
  params = jax.jit(mixer.init)(jax.random.key(0), x_BLD, positions_BL=positions_BL)

  def apply(params, x_BLD):
    dropout = {'dropout': jax.random.key(2)}
    return mixer.apply(params, x_BLD, positions_BL=positions_BL, train=True, rngs=dropout).y_BLD

  return timing.program(timing.gradient(apply), params, x_BLD), not mixer.causal


SECTIONS = {'steps': steps}
