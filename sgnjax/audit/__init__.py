"""The audit: is a model blind to the future, to other examples and to padding?

`sgnjax.audit(model)` audits models of any kind (see `sgnjax.api.audit`).
"""

import functools
import math

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from sgnjax.audit.causality import (
  TAIL,
  TOLERANCE,
  Row,
  compare,
  compare_chunks,
  compare_padding,
  compare_rows,
  replaced,
)
from sgnjax.audit.report import FLOAT32, Report
from sgnjax.called import also_called
from sgnjax.errors import LeakError, UserError
from sgnjax.models import Model, build, example
from sgnjax.models.encoder import Encoder
from sgnjax.models.shrink import shrink

__all__ = ['Report', 'Row', 'audit', 'compare', 'gate', 'initial', 'randomise', 'twin_report']

also_called(__name__)

# Compiled in a quarter of the time: programs run for seconds at most, each compared with itself.
QUICK = {'xla_backend_optimization_level': 0, 'xla_cpu_parallel_codegen_split_count': 1}
if jax.__version_info__ < (0, 11):  # a later jax has no such choice
  QUICK['xla_cpu_use_fusion_emitters'] = False
REPLACED = ('kernel', 'head', 'w_gate', 'scale', 'embedding', 'position', 'gate')
VOCAB = 61  # of the twin, which needs no more


def local_cpu() -> jax.Device:
  """This process's CPU. Raises UserError where jax was started without it."""
  try:
    return jax.local_devices(backend='cpu')[0]
  except RuntimeError:
    raise UserError(
      "the audit runs on the CPU, which JAX_PLATFORMS leaves out; add it: JAX_PLATFORMS='cuda,cpu'"
    ) from None


def recast(model: Model, dtype: str) -> Model:
  """The same model, computing in `dtype` and showing its hidden states."""
  fields = {'dtype': jnp.dtype(dtype), 'param_dtype': jnp.dtype(dtype), 'capture': True}

  def block(make):
    mixer, *rest = make.args
    return functools.partial(make.func, functools.partial(mixer, **fields), *rest)

  groups = tuple(g._replace(blocks=tuple(map(block, g.blocks))) for g in model.groups)
  return model.clone(groups=groups, parent=None, **fields)


def randomise(params, seed: int = 0):
  """Every parameter random, gains and biases included, at sizes at which a leak shows.

  Kernels N(0, 1/fan_in), those of queries and keys thrice that (flat scores hide what they see),
  gains 1 + 0.3 N, biases 0.3 N, embeddings and spectral gates N(0, 1); any other parameter, such as
  a filter's centre, moves by 0.3 N from where it is given. Host arrays come back.
  """
  rng = np.random.default_rng(seed)

  def draw(path, leaf):
    names = [str(key.key) for key in path]
    normal = rng.standard_normal(leaf.shape)
    if names[-1] in ('kernel', 'head'):
      gain = 3.0 if names[-2:-1] in (['q'], ['k']) else 1.0
      value = gain * normal / math.sqrt(leaf.shape[-2])
    elif names[-1] == 'w_gate':
      value = normal / math.sqrt(leaf.shape[-1])
    elif names[-1] == 'scale':
      value = 1 + 0.3 * normal
    elif names[-1] in REPLACED:
      value = normal
    else:
      value = np.asarray(leaf) + 0.3 * normal
    return value.astype(leaf.dtype)

  return jax.tree_util.tree_map_with_path(draw, params)


def initial(module: nn.Module, *inputs: jax.Array):
  """Initial parameters for `randomise`; those it replaces are zeros, which saves a compile."""

  @jax.jit  # traced once for the values and the shapes
  def init(key):
    return nn.meta.unbox(module.init(key, *inputs).get('params', {}))

  def kept(key):
    leaves = jax.tree_util.tree_leaves_with_path(init(key))
    return {jax.tree_util.keystr(p): leaf for p, leaf in leaves if p[-1].key not in REPLACED}

  key = jax.random.key(0, impl='unsafe_rbg')
  given = jax.jit(kept, compiler_options=QUICK)(key)
  return jax.tree_util.tree_map_with_path(
    lambda p, leaf: given.get(jax.tree_util.keystr(p), np.zeros(leaf.shape, leaf.dtype)),
    jax.eval_shape(init, key),
  )


def audit(
  model: Model, params, *, vocab: int, length: int, batch: int = 2, seed: int = 0
) -> Report:
  """Audits a model with the given parameters, in float64 on a CPU, whatever they are stored in.

  Replaces later tokens, the other examples and the padding, and compares the logits before; at one
  compiled shape. With an FFT over the length a change above 1e-9 of the largest logit is a leak;
  without one any change is, in float32 too. Where the model keeps a cache, decoding token by token
  is compared with the whole. Raises UserError where nothing can be compared.

  Of an encoder, which is no language model, other examples and padding are replaced alone.
  """
  cpu = local_cpu()
  limit = TOLERANCE if model.uses_fft else 0.0
  rng = np.random.default_rng(seed)
  if isinstance(model, Encoder):
    return _audit_encoder(model, params, vocab, length, batch, limit, seed)
  tokens_BL = rng.integers(0, vocab, size=(batch, length)).astype(np.int32)
  with jax.enable_x64(True), jax.default_device(cpu):
    model64, params64 = recast(model, 'float64'), _as(params, np.float64, cpu)
    forward = jax.jit(functools.partial(_forward, model64), compiler_options=QUICK)
    rows = compare(
      lambda tokens: forward(params64, tokens), tokens_BL, vocab=vocab, limit=limit, seed=seed
    )
    if not model.uses_fft:
      forward32 = jax.jit(
        functools.partial(_forward, recast(model, 'float32')), compiler_options=QUICK
      )
      params32 = _as(params, np.float32, cpu)
      rows += compare(
        lambda tokens: forward32(params32, tokens),
        tokens_BL,
        vocab=vocab,
        seed=seed,
        suffix=FLOAT32,
      )
    rows.append(_padding(forward, params64, tokens_BL, vocab, limit, seed))
    rows.append(_decoding(model64, forward, params64, tokens_BL, vocab))
  names = ' + '.join(dict.fromkeys(name for name, _ in model.layers()))
  return Report(tuple(rows), names, length, batch, model.causal)


def _audit_encoder(model: Encoder, params, vocab, length, batch, limit, seed) -> Report:
  rng = np.random.default_rng(seed)
  outputs = model.outputs or model.vocab

  def drawn(like, rng):
    return rng.random(like.shape)

  def other(like, rng):
    return replaced(like, np.ones(like.shape, bool), vocab, rng)

  images = model.image is not None
  if images:
    inputs = rng.random((batch, *model.image))
  else:
    inputs = rng.integers(0, vocab, (batch, length)).astype(np.int32)
  with jax.enable_x64(True), jax.default_device(local_cpu()):
    model64, params64 = recast(model, 'float64'), _as(params, np.float64, local_cpu())
    forward = jax.jit(functools.partial(_forward, model64), compiler_options=QUICK)
    rows = compare_rows(
      functools.partial(forward, params64),
      inputs,
      drawn if images else other,
      outputs=outputs,
      limit=limit,
      seed=seed,
    )
    if not images:
      rows.append(_padding(forward, params64, inputs, vocab, limit, seed, outputs))
  names = ' + '.join(dict.fromkeys(name for name, _ in model.layers()))
  return Report(tuple(rows), names, length, batch, model.causal, encoder=True)


def _as(params, dtype, device):
  """The parameters in one dtype on one device."""
  return jax.device_put(jax.tree.map(lambda a: np.asarray(a).astype(dtype), params), device)


def _forward(model: Model, params, inputs, mask_BL=None):
  """Logits, and the hidden states by the layers' names, in order."""
  logits, aux, _ = model.apply({'params': params}, inputs, mask_BL=mask_BL)
  hidden = {'embedding': aux.debug['embedding']}
  layers = list(model.layers())
  width = max(2, len(str(len(layers) - 1)))  # jit sorts a dict by its keys
  for i, (name, block) in enumerate(layers):
    router = ' with its MetaRouter' if block.meta else ''
    hidden[f'layer {i:0{width}d} ({name}{router})'] = aux.debug[f'hidden/{i:02d}']
  return logits, hidden


def _padding(forward, params, tokens_BL, vocab, limit, seed, outputs=None) -> Row:
  """The row of the padding mask, which a mixer may refuse."""
  try:
    return compare_padding(
      functools.partial(forward, params),
      tokens_BL,
      vocab=vocab,
      outputs=outputs or vocab,
      limit=limit,
      seed=seed,
    )
  except UserError as refusal:
    return Row(
      'padding', None, math.nan, math.nan, limit, note=f'refused: {str(refusal).partition(":")[0]}'
    )


def _decoding(model: Model, forward, params, tokens_BL, vocab) -> Row:
  """The row of decoding, after a prefill of all but the last tokens."""
  batch, length = tokens_BL.shape
  first = max(1, length - TAIL)
  try:
    cache = model.init_cache(batch, length, jnp.float64)
  except UserError:
    # A growing prefix at this shape is what the rows of later tokens compare.
    return Row('decoding', None, math.nan, math.nan, TOLERANCE, note='no cache: whole prefix')

  @functools.partial(jax.jit, compiler_options=QUICK)
  def chunk(params, tokens_BL, cache):
    logits_BLV, _, cache = model.apply({'params': params}, tokens_BL, cache=cache)
    return logits_BLV, cache

  logits_BLV, cache = chunk(params, tokens_BL[:, :first], cache)
  pieces = [np.asarray(logits_BLV)[:, -1:]]
  for t in range(first, length):
    logits_BLV, cache = chunk(params, tokens_BL[:, t : t + 1], cache)
    pieces.append(np.asarray(logits_BLV))
  whole_BLV = np.asarray(forward(params, tokens_BL)[0])[..., :vocab]
  return compare_chunks(whole_BLV, np.concatenate(pieces, 1)[..., :vocab], first)


def twin_report(config: ConfigDict, *, vocab: int | None = None, seed: int = 0) -> Report:
  """The audit of the small twin of a config, all its parameters random. Raises no LeakError."""
  twin = shrink(config, vocab=max(2, min(vocab or VOCAB, VOCAB)))
  with twin.unlocked():
    twin.model.dtype = 'float64'
  with jax.enable_x64(True), jax.default_device(local_cpu()):
    model = build(twin)
    given = example(twin)
    shape = given.shape if model.vocab == 0 else (1, 2)
    params = randomise(initial(model, jnp.zeros(shape, given.dtype)), seed)
  return audit(model, params, vocab=twin.model.vocab, length=twin.model.context, seed=seed)


def gate(config: ConfigDict, *, vocab: int | None = None) -> Report:
  """What stands before training, evaluation and generation: audits the config's small twin.

  An encoder (data.task mlm or classify) sees the whole row by design; what it may not see is other
  examples and padding. Raises LeakError for a leak, unless config.allow_leak; UserError where the
  model's own `causal`, or its cache, contradicts what was found.
  """
  report = twin_report(config, vocab=vocab)
  if report.leaky and report.encoder and not config.allow_leak:
    raise LeakError(
      f'this encoder {report.finding()}\n'
      'way out: --config.allow_leak=True, which writes LEAKY at every number'
    )
  if report.leaky and not config.allow_leak:
    way = '' if report.declared else '--config.model.form=causal, or '
    lie = ' (and declares itself causal)' if report.declared else ''
    raise LeakError(
      f'this language model {report.finding()}{lie}\n'
      f'way out: {way}--config.allow_leak=True, which writes LEAKY at every number'
    )
  if report.contradiction and not report.leaky:
    raise UserError(f'internal check, form {config.model.form}: {report.contradiction}')
  return report
