"""Step time, tokens/s and the share of this machine's matrix rate, on random tokens.

Convention: a step counts the FLOPs of its forward and backward pass by `sgnjax.analysis.flops` (of
a registered mixer: as XLA counts them); the optimiser and what is recomputed are left out. The
machine's rate is that of a large square matrix product, in float32 and in the model's dtype, at
JAX's default precision, on one device times the number of devices. Steps and products alternate in
one run, and medians are compared.
"""

import math
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict

from sgnjax import config as config_lib
from sgnjax.analysis.benchmark import timing
from sgnjax.analysis.flops import flops, known, xla_flops
from sgnjax.machine import in_words, machine
from sgnjax.models import DECODERS, build, count
from sgnjax.parallel.feed import place
from sgnjax.parallel.mesh import make_mesh
from sgnjax.train import state as state_lib
from sgnjax.train.log import mark
from sgnjax.train.optim import make_optimiser
from sgnjax.train.step import abstract_batch, make_train_step

CONVENTION = ' '.join((__doc__ or '').split('Convention: ')[-1].split())


class Bare:
  """The compiled training step of a config whose vocabulary is set; a call takes one step.

  Nothing lies on the devices before `ready`, so that `program.peak` can be looked at first. Random
  tokens, the same at every step.
  """

  def __init__(self, config: ConfigDict):
    self.config, self.mesh = config, make_mesh(config)
    self.model, self.optimiser = build(config), make_optimiser(config)
    abstract = state_lib.abstract(config, self.model, self.optimiser, self.mesh)
    self.parameters = count(self.model, abstract.params)
    step = make_train_step(self.model, self.optimiser, config, self.mesh)
    self.program = timing.program(step, abstract, abstract_batch(config, self.mesh))
    self._state: Any = None

  def ready(self) -> 'Bare':
    """Makes the state and the batch."""
    if self._state is None:
      state = state_lib.create(self.config, self.model, self.optimiser, self.mesh)
      self._batch = place(random_batch(self.config, self.mesh), self.mesh)
      self._state = jax.block_until_ready(state)
    return self

  def __call__(self):
    self.ready()
    self._state, metrics = self.program.run(self._state, self._batch)
    return metrics

  @property
  def leaky(self) -> bool:
    return self.config.data.task in DECODERS and not self.model.causal

  @property
  def tokens(self) -> int:
    return self.config.train.batch * self.config.model.context

  @property
  def flops(self) -> float:
    """Of a step, by formula: forward and backward."""
    shape = {'batch': self.config.train.batch, 'length': self.config.model.context}
    if known(self.model):
      return sum(flops(self.config, **shape, training=True).values())
    twin = self.config.copy_and_resolve_references()  # of a registered mixer, as XLA counts
    with twin.unlocked():
      twin.model.scan_unroll = len(self.model.layers())  # it counts the body of a scan once
    return xla_flops(twin, **shape, gradient=True)


def random_batch(config: ConfigDict, mesh) -> dict[str, np.ndarray]:
  """A batch of random tokens or pixels; masks are of whole rows."""
  rng, found = np.random.default_rng(0), {}
  for key, a in abstract_batch(config, mesh).items():
    if key in ('tokens', 'targets'):
      found[key] = rng.integers(0, config.model.vocab, a.shape, np.int32)
    elif key == 'image':
      found[key] = rng.random(a.shape, np.float32)
    elif key == 'positions':
      found[key] = np.broadcast_to(np.arange(a.shape[1], dtype=a.dtype), a.shape)
    else:
      found[key] = (np.zeros if key == 'label' else np.ones)(a.shape, a.dtype)
  return found


def measure(config: ConfigDict, *, repeats: int, size: int | None = None) -> dict:
  """Times steps of the config, whose vocabulary is set, and matrix products of `size`, in turn."""
  size = size or timing.matrix_size()
  bare = Bare(config)
  dtypes = tuple(dict.fromkeys(('float32', config.model.dtype)))
  products = {dtype: timing.matrix_product(dtype, size) for dtype in dtypes}
  seconds = timing.interleaved({'step': bare, **products}, repeats)
  work, devices = bare.flops, bare.mesh.devices.size
  rates = {dtype: devices * 2 * size**3 / seconds[dtype] for dtype in dtypes}
  return {
    'mixer': config.model.mixer,
    'form': config.model.form,
    'leaky': bare.leaky,
    'parameters': bare.parameters,
    'batch': config.train.batch,
    'length': config.model.context,
    'dtype': config.model.dtype,
    'repeats': repeats,
    'step_seconds': seconds['step'],
    'tokens_per_second': bare.tokens / seconds['step'],
    'step_flops': work,
    'flops_per_second': work / seconds['step'],
    'matrix_size': size,
    'matrix_flops_per_second': rates,
    'share_of_matrix_rate': {d: work / seconds['step'] / rate for d, rate in rates.items()},
    'convention': CONVENTION,
    **machine(devices),
    'config_hash': config_lib.fingerprint(config),
  }


def describe(found: dict) -> str:
  """The figures as some lines."""
  said = mark(found['leaky'])
  lines = [
    f'{found["mixer"]} ({found["form"]}), {found["parameters"]:,} parameters, {found["dtype"]}, '
    f'batch {found["batch"]} x {found["length"]} tokens, median of {found["repeats"]} steps',
    f'step {1000 * found["step_seconds"]:,.1f} ms{said}, '
    f'{found["tokens_per_second"]:,.0f} tokens/s{said}',
    f'{_engineering(found["step_flops"])}FLOP a step{said}, '
    f'{_engineering(found["flops_per_second"])}FLOP/s{said}',
  ]
  for dtype, rate in found['matrix_flops_per_second'].items():
    share = found['share_of_matrix_rate'][dtype]
    lines.append(
      f'{share:.1%}{said} of the {dtype} matrix rate, {_engineering(rate)}FLOP/s '
      f'({found["matrix_size"]} x {found["matrix_size"]})'
    )
  lines += [in_words(found), found['convention']]
  return '\n'.join(lines)


def _engineering(value: float) -> str:
  """`2.5e12` -> `2.50 T`."""
  power = min(5, max(0, int(math.log10(max(value, 1)) // 3)))
  return f'{value / 1000**power:.2f} {("", "k", "M", "G", "T", "P")[power]}'
