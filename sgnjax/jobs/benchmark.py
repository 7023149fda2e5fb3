"""Step time, tokens/s and the share of this machine's matrix rate, on random tokens.

Convention: a step counts the FLOPs of its forward and backward pass by `sgnjax.analysis.flops`; the
optimiser and what is recomputed are left out. The machine's rate is that of a large square matrix
product, in float32 and in the model's dtype, at JAX's default precision, on one device times the
number of devices. Steps and products alternate in one run, and medians are compared.
"""

import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from sgnjax import config as config_lib
from sgnjax.analysis.flops import flops
from sgnjax.analysis.machine import in_words, machine
from sgnjax.errors import check_choice
from sgnjax.jobs.plan import ASSUMED
from sgnjax.models import build, count
from sgnjax.parallel.agree import first
from sgnjax.parallel.feed import place
from sgnjax.parallel.mesh import make_mesh
from sgnjax.train import state as state_lib
from sgnjax.train.log import check_writable, mark, write_atomically
from sgnjax.train.optim import make_optimiser
from sgnjax.train.step import abstract_batch, make_train_step

WARMUP, REPEATS = 2, 10


def run(config: ConfigDict, workdir: Path) -> int:
  """Prints the figures and writes them to benchmark.json in the workdir."""
  check_writable(workdir)
  found = measure(config)
  if first():
    write_atomically(Path(workdir) / 'benchmark.json', json.dumps(found, indent=2) + '\n')
    print(describe(found))
  return 0


def measure(config: ConfigDict, *, size: int | None = None, repeats: int = REPEATS) -> dict:
  """Times training steps of `train.batch` sequences and matrix products of `size`, in turn."""
  twin = config.copy_and_resolve_references().unlock()
  check_choice('data.tokenizer', config.data.tokenizer, ASSUMED)
  # No data are read here.
  twin.model.vocab = config.model.vocab or ASSUMED[config.data.tokenizer]
  if config.data.task == 'classify':
    twin.model.classes = config.model.classes or 2
  mesh = make_mesh(twin)
  model, optimiser = build(twin), make_optimiser(twin)
  state = state_lib.create(twin, model, optimiser, mesh)
  parameters = count(model, state.params)
  step = make_train_step(model, optimiser, twin, mesh)
  batch, length = twin.train.batch, twin.model.context
  inputs = place(_random(twin, mesh), mesh)

  def one_step():
    nonlocal state
    state, metrics = step(state, inputs)
    return state, metrics

  size = size or (2048 if jax.default_backend() == 'cpu' else 8192)
  dtypes = dict.fromkeys(('float32', twin.model.dtype))
  timed = {'step': one_step, **{dtype: _product(size, dtype) for dtype in dtypes}}
  seconds = interleaved(timed, repeats)
  work = sum(flops(twin, batch=batch, length=length, training=True).values())
  devices = mesh.devices.size
  rates = {dtype: devices * 2 * size**3 / seconds[dtype] for dtype in dtypes}
  return {
    'mixer': twin.model.mixer,
    'form': twin.model.form,
    'leaky': twin.data.task == 'lm' and not model.causal,
    'parameters': parameters,
    'batch': batch,
    'length': length,
    'dtype': twin.model.dtype,
    'repeats': repeats,
    'step_seconds': seconds['step'],
    'tokens_per_second': batch * length / seconds['step'],
    'step_flops': work,
    'flops_per_second': work / seconds['step'],
    'matrix_size': size,
    'matrix_flops_per_second': rates,
    'share_of_matrix_rate': {d: work / seconds['step'] / rate for d, rate in rates.items()},
    'convention': ' '.join((__doc__ or '').split('Convention: ')[-1].split()),
    **machine(devices),
    'config_hash': config_lib.fingerprint(config),
  }


def _random(config: ConfigDict, mesh) -> dict[str, np.ndarray]:
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


def interleaved(timed: dict[str, Callable], repeats: int) -> dict[str, float]:
  """Median seconds of each function, called in turn after a warm-up; each result is waited for."""
  seconds: dict[str, list[float]] = {name: [] for name in timed}
  for repeat in range(-WARMUP, repeats):
    for name, function in timed.items():
      start = time.perf_counter()
      jax.block_until_ready(function())
      if repeat >= 0:
        seconds[name].append(time.perf_counter() - start)
  return {name: median(values) for name, values in seconds.items()}


def _product(size: int, dtype: str) -> Callable:
  a, b = jax.random.normal(jax.random.key(0), (2, size, size)).astype(jnp.dtype(dtype))
  product = jax.jit(jnp.matmul)
  return lambda: product(a, b)


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
