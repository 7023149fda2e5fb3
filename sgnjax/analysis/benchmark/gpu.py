"""For one GPU: utilisation of a large model, SGN against cuDNN's attention, the DCT's crossover."""

import functools
from collections.abc import Iterator

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from sgnjax.analysis import targets
from sgnjax.analysis.benchmark import ops, timing
from sgnjax.analysis.benchmark.mixers import one
from sgnjax.analysis.benchmark.page import Row
from sgnjax.analysis.benchmark.settings import Settings
from sgnjax.analysis.benchmark.step import CONVENTION, Bare
from sgnjax.analysis.scaling.law import fit

NOT_HERE = 'not run: there is no GPU here'
POINTS = tuple(2**k for k in range(5, 13))


def present() -> bool:
  """Whether there is a GPU to measure."""
  return jax.default_backend() == 'gpu'


def kernel() -> str:
  """The implementation of attention that SGN is compared with."""
  return 'cudnn' if present() else 'xla'


def utilisation(settings: Settings) -> Iterator[Row | str]:
  """Model FLOPs utilisation

  The config's training step on one GPU, dense and routed (where its mixer is chiar), at the
  contexts of `benchmark.contexts` and as many tokens a step. MFU: the FLOPs of the formula over the
  step's time and the rate of the data sheet; beside it, over the rate of a large matrix product of
  the same run. Layers are computed again in the backward pass only where the step would not fit."""
  if not present():
    yield NOT_HERE
    return
  base = settings.config
  tokens = base.train.batch * base.model.context
  chip = targets.here().chip
  kinds = ('dense', 'capacity') if base.model.mixer == 'chiar' else (base.model.mixer,)
  product = timing.matrix_product(base.model.dtype)
  for context in settings.contexts:
    for kind in kinds:
      config = base.copy_and_resolve_references().unlock()
      config.model.context, config.train.batch = context, max(1, tokens // context)
      config.mesh.update(data=1, fsdp=1, tensor=1, sequence=1)
      if config.model.mixer == 'chiar':
        config.model.chiar.dispatch = kind
      bare = _that_fits(config)
      row: Row = {'context': context, 'dispatch': kind, 'batch': config.train.batch}
      if bare is None:
        yield row | {'note': 'does not fit, even with model.remat=all'}
        continue
      timed = {'step': bare, 'matrix': product}
      took = timing.interleaved(timed, settings.repeats, settings.seconds)
      rate, measured = bare.flops / took['step'], 2 * timing.matrix_size() ** 3 / took['matrix']
      yield row | {
        'remat': bare.config.model.remat,
        'ms a step': 1e3 * took['step'],
        'tokens/s': bare.tokens / took['step'],
        'TFLOP a step': bare.flops / 1e12,
        'TFLOP/s': rate / 1e12,
        'MFU': None if chip is None else rate / chip.flops,
        'aim': '0.5',
        'share of the matrix rate': rate / measured,
        'peak GiB': bare.program.peak / 2**30,
        'compiled in, s': bare.program.compile_seconds,
      }
      del bare
  peak = 'no data sheet of this device' if chip is None else f'{chip.flops / 1e12:,.0f} TFLOP/s'
  yield f'Peak: {peak}, bfloat16, dense. Convention: {CONVENTION} Scores are counted L x L.'


def _that_fits(config: ConfigDict) -> Bare | None:
  """The config's step, with its state made; rematerialised where it does not fit else."""
  for remat in dict.fromkeys((config.model.remat, 'all')):
    config.model.remat = remat
    try:
      bare = Bare(config.copy_and_resolve_references())
      jax.block_until_ready(bare())
    except jax.errors.JaxRuntimeError as error:
      if 'RESOURCE_EXHAUSTED' not in str(error):
        raise
      continue
    return bare
  return None


def lengths(settings: Settings) -> Iterator[Row | str]:
  """SGN against fused attention over the length

  Forward and backward of one mixer with its projections, one row, the config's width and heads, in
  bfloat16: gated causal SGN, and causal `jax.nn.dot_product_attention` between projections to
  queries, keys and values and one back."""
  if not present():
    yield NOT_HERE
    return
  m = settings.config.model
  found = []
  for length in settings.lengths:
    config = settings.config.copy_and_resolve_references().unlock()
    config.model.update(mixer='sgn', block='prenorm', context=length, positions='learned')
    config.model.update(dtype='bfloat16', dropout=0.0, form='causal')
    timed = {'SGN': one(config, 1)[0]}
    row: Row = {'length': length}
    try:
      timed['attention'] = attention(length, m.width, m.heads)
      took = timing.interleaved(timed, settings.repeats, settings.seconds)
    except (jax.errors.JaxRuntimeError, ValueError, RuntimeError) as error:
      row['note'] = f'{kernel()} attention: {" ".join(str(error).split())[:120]}'
      timed.pop('attention', None)
      took = timing.interleaved(timed, settings.repeats, settings.seconds)
    found.append((length, took['SGN']))
    yield {
      **row,
      'SGN, ms': 1e3 * took['SGN'],
      'attention, ms': 1e3 * took['attention'] if 'attention' in timed else None,
      'attention / SGN': took.ratio('attention', 'SGN') if 'attention' in timed else None,
      'SGN, peak MiB': timed['SGN'].peak / 2**20,
      'attention, peak MiB': timed['attention'].peak / 2**20 if 'attention' in timed else None,
    }
  yield f'Attention by implementation={kernel()!r}; width {m.width}, {m.heads} heads.'
  if len(found) > 1:
    xs, ys = zip(*found, strict=True)
    yield f"Exponent of SGN's time: {fit(xs, ys)}."


def attention(length: int, width: int, heads: int) -> timing.Program:
  """Forward and backward of causal attention with its projections, compiled."""
  keys = jax.random.split(jax.random.key(0), 3)
  x_BLD = jax.random.normal(keys[0], (1, length, width), jnp.bfloat16)
  w_DPF = 0.02 * jax.random.normal(keys[1], (width, 3, width))
  out_FD = 0.02 * jax.random.normal(keys[2], (width, width))
  attend = functools.partial(jax.nn.dot_product_attention, is_causal=True, implementation=kernel())

  def mix(w_DPF, out_FD, x_BLD):
    qkv_BLPF = jnp.einsum('bld,dpf->blpf', x_BLD, w_DPF.astype(x_BLD.dtype))
    q, k, v = (qkv_BLPF[:, :, i].reshape(1, length, heads, -1) for i in range(3))
    return attend(q, k, v).reshape(1, length, width) @ out_FD.astype(x_BLD.dtype)

  return timing.program(timing.gradient(mix), w_DPF, out_FD, x_BLD)


def crossover(settings: Settings) -> Iterator[Row | str]:
  """DCT by FFT and by matrix on a GPU

  As `ops/crossover`, of 2^24 numbers."""
  if not present():
    yield NOT_HERE
    return
  yield from ops.crossover(settings, points=POINTS, numbers=2**24)


SECTIONS = {'mfu': utilisation, 'lengths': lengths, 'dct': crossover}
