"""Models from configs."""

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from sgnjax.errors import UserError, check_choice
from sgnjax.mixers import FORMS, MIXERS, Mixer, check_known
from sgnjax.models.block import BLOCKS, Block
from sgnjax.models.decoder import Decoder
from sgnjax.models.encoder import POOLINGS, Encoder
from sgnjax.models.stack import REMAT, Group
from sgnjax.ops.dtypes import wide

__all__ = [
  'DECODERS', 'build', 'count', 'example', 'maker', 'one_by_one', 'option_groups', 'resolve_stack',
  'unpadded', 'unstacked',
]  # fmt: skip

DTYPES = ('float32', 'bfloat16', 'float64')
DECODERS = ('lm', 'recall')  # data.task of models that a decoder is; of others an encoder
TASKS = (*DECODERS, 'mlm', 'classify')
Model = Decoder | Encoder


def resolve_stack(config: ConfigDict) -> tuple[tuple[tuple[str, ...], int], ...]:
  """`((unit, repeats), ...)` of the config, units as tuples of layer names. Raises UserError."""
  m = config.model
  stack = m.stack
  if stack is None:
    if m.mixer == 'chiar':
      if m.layers < 2:
        raise UserError(
          f"mixer 'chiar' needs at least 2 layers (DCT first, attention last), got {m.layers}"
        )
      stack = (('chiar_dct', 1), ('chiar', m.layers - 2), ('chiar_attention', 1))
    else:
      stack = ((m.mixer, m.layers),)
  resolved = []
  for entry in stack:
    pair = isinstance(entry, tuple) and len(entry) == 2 and isinstance(entry[0], (str, tuple))
    if not pair or type(entry[1]) is not int or entry[1] < 0:
      raise UserError(f'model.stack: expected ((unit, repeats), ...), got the entry {entry!r}')
    unit = (entry[0],) if isinstance(entry[0], str) else tuple(entry[0])
    for name in unit:
      check_known(name, config.get('plugin'))
      _check_options(m, MIXERS[name])
    if entry[1] > 0 and unit:
      resolved.append((unit, entry[1]))
  if not resolved:
    raise UserError(f'model.stack={stack!r} has no layer')
  return tuple(resolved)


def _check_options(m: ConfigDict, kind: type[Mixer]) -> None:
  """Raises UserError where the config's groups lack an option of the mixer.

  A config that an older version left in a workdir would else mean what it did not say.
  """
  groups = [m[group] for group in option_groups(kind) if group in m]
  own = _fields(kind) - _fields(Mixer)
  missing = sorted(own - {key for group in groups for key in group})
  if groups and missing:
    raise UserError(
      f"the config has no key 'model.{kind.group}.{missing[0]}', as one of an older version; "
      'train again, or go on with the version that left it'
    )


def _fields(kind: type[Mixer]) -> set[str]:
  """Names of what the mixer's constructor takes."""
  return {field.name for field in dataclasses.fields(kind)}


def option_groups(kind: type[Mixer]) -> tuple[str, ...]:
  """Groups of config.model that hold a mixer's options."""
  return kind.option_groups or (kind.group,)


def maker(config: ConfigDict, name: str, *, capture: bool = False) -> functools.partial:
  """The constructor of mixer `name` with the sizes and the options that the config gives it."""
  m, kind = config.model, MIXERS[name]
  dtype = jnp.dtype(m.dtype)
  sizes = ('width', 'heads', 'context', 'form', 'positions', 'rope_base', 'qkv_bias', 'out_bias')
  fields = {key: m[key] for key in (*sizes, 'dropout', 'init_std')}
  for group in option_groups(kind):
    options = m.get(group, {}).items()
    fields |= {key: value for key, value in options if key in _fields(kind)}
  return functools.partial(kind, **fields, dtype=dtype, param_dtype=wide(dtype), capture=capture)


def build(
  config: ConfigDict,
  *,
  vocab: int | None = None,
  classes: int | None = None,
  heads: tuple[tuple[str, int], ...] = (),
  capture: bool = False,
) -> Model:
  """The model of a config: a decoder for data.task=lm and recall, else an encoder.

  vocab and classes stand in where those of config.model are None. heads: of a decoder, for further
  tasks. capture: fill `aux.debug`. Raises UserError for names, sizes and forms that do not fit
  together.
  """
  m = config.model
  head = _head(config, vocab, classes)
  check_known(m.mixer, config.get('plugin'))
  check_choice('model.form', m.form, FORMS)
  check_choice('model.block', m.block, BLOCKS)
  check_choice('model.positions', m.positions, ('learned', 'rope', 'alibi', 'none'))
  check_choice('model.dtype', m.dtype, DTYPES)
  check_choice('model.remat', m.remat, REMAT)
  if not 0 <= m.dropout < 1:
    raise UserError(f'model.dropout={m.dropout}: expected 0 or more and less than 1')
  for key in ('init_std', 'rope_base'):
    if not m[key] > 0:
      raise UserError(f'model.{key}={m[key]}: expected more than 0')
  for key in ('layers', 'width', 'heads', 'context', 'ffn', 'vocab_multiple', 'scan_unroll'):
    if m[key] < 1:
      raise UserError(f'model.{key}={m[key]}: expected at least 1')
  if m.width < 2:
    raise UserError(f'model.width={m.width}: expected at least 2')
  if m.width % m.heads:
    raise UserError(f'model.width={m.width} does not divide into model.heads={m.heads}')
  if m.positions == 'rope' and m.width // m.heads % 2:
    raise UserError(f'RoPE needs an even head width, got {m.width // m.heads}')
  stack = resolve_stack(config)
  groups = []
  for i, (names, repeats) in enumerate(stack):
    blocks = []
    for j, name in enumerate(names):
      kind = MIXERS[name]
      make = maker(config, name, capture=capture)
      make(parent=None).check()
      if kind.owns_residual != (m.block == 'chiar'):
        fit = [n for n, k in MIXERS.items() if k.owns_residual == (m.block == 'chiar')]
        raise UserError(
          f"mixer '{name}' does not fit block '{m.block}', which takes: {', '.join(fit)}"
        )
      meta = m.block == 'chiar' and m.chiar.meta and name == 'chiar_dct' and i == j == 0
      if meta and repeats > 1:
        raise UserError('the MetaRouter wraps the first layer alone: give it a group of its own')
      blocks.append(functools.partial(Block, make, m.block, m.ffn * m.width, meta))
    groups.append(Group(names, tuple(blocks), repeats))
  if m.positions == 'rope' and not any(MIXERS[n].attends for names, _ in stack for n in names):
    raise UserError("model.positions='rope' rotates queries and keys, and no layer has any")
  decodes = config.data.task in DECODERS
  if decodes:
    head['heads'] = heads
  model = (Decoder if decodes else Encoder)(
    **head,
    groups=tuple(groups),
    vocab_multiple=m.vocab_multiple,
    width=m.width,
    context=m.context,
    positions=m.positions,
    tied=m.tied,
    dropout=m.dropout,
    init_std=m.init_std,
    dtype=jnp.dtype(m.dtype),
    param_dtype=wide(jnp.dtype(m.dtype)),
    unroll=m.scan_unroll,
    remat=m.remat,
    capture=capture,
  )
  if head.get('pooling') == 'cls' and model.causal:
    raise UserError(
      "model.pooling='cls' reads the first token, and each layer lets it see itself alone; set "
      "model.form='bidirectional', or model.pooling='mean'"
    )
  return model


def _head(config: ConfigDict, vocab: int | None, classes: int | None) -> dict[str, Any]:
  """What a model reads and gives, as fields of its module. Raises UserError."""
  m, task = config.model, config.data.task
  check_choice('data.task', task, TASKS)
  if m.image is not None:
    vocab = 0
  elif m.vocab is not None:
    vocab = m.vocab
  if vocab is None:
    raise UserError('model.vocab is not set, and there is no tokenizer to take it from')
  if vocab < 1 and m.image is None:
    raise UserError(f'model.vocab={vocab}: expected at least 1')
  if task != 'classify':
    if m.image is not None:
      raise UserError(f'data.task={task} is about text, and model.image={m.image} is set')
    return {'vocab': vocab}
  check_choice('model.pooling', m.pooling, POOLINGS)
  classes = m.classes if m.classes is not None else classes
  if classes is None:
    raise UserError('model.classes is not set, and there is no data set to take it from')
  if classes < 1:
    raise UserError(f'model.classes={classes}: expected at least 1 (1: a number)')
  head = {'vocab': vocab, 'outputs': classes, 'pooling': m.pooling}
  if m.image is not None:
    head |= {'image': tuple(m.image), 'patch': m.patch}
    _check_image(m)
  return head


def _check_image(m: ConfigDict) -> None:
  """Raises UserError where image, patches, grid and context do not fit together."""
  if len(m.image) != 3 or not all(type(n) is int and n > 0 for n in m.image):
    raise UserError(f'model.image={m.image}: expected (rows, columns, channels)')
  rows, columns, _ = m.image
  if m.patch < 1 or rows % m.patch or columns % m.patch:
    raise UserError(f'model.patch={m.patch} does not divide images of {rows} x {columns}')
  grid, cls = (rows // m.patch, columns // m.patch), m.pooling == 'cls'
  if m.context != math.prod(grid) + cls:
    what = f'{grid[0]} x {grid[1]} patches' + (' and the vector before them' if cls else '')
    raise UserError(f'model.context={m.context}, and {what} are {math.prod(grid) + cls} tokens')
  if m.sgn.grid is not None and (cls or tuple(m.sgn.grid) != grid):
    raise UserError(
      f'model.sgn.grid={m.sgn.grid}, and the images have {grid} patches'
      + (": with model.pooling='cls' there is a token beside them" if cls else '')
    )


def example(config: ConfigDict, batch: int = 1) -> jax.ShapeDtypeStruct:
  """Shape and dtype of a batch of what the config's model reads."""
  m = config.model
  if m.image is not None:
    return jax.ShapeDtypeStruct((batch, *m.image), jnp.float32)
  return jax.ShapeDtypeStruct((batch, m.context), jnp.int32)


def one_by_one(model: Decoder) -> Decoder:
  """The same model with every layer in a group of its own, as `unstacked` has it."""
  single = [group._replace(repeats=1) for group in model.groups for _ in range(group.repeats)]
  return model.clone(groups=tuple(single), parent=None)


def unstacked(model: Decoder, params) -> tuple[Decoder, Any]:
  """The same model with every layer in a group of its own, and its parameters likewise.

  For generation: a scan over layers would copy the caches of all layers at every token.
  """
  layers = {}
  for i, group in enumerate(model.groups):
    for repeat in range(group.repeats):
      own = jax.tree.map(lambda a, r=repeat: a[r : r + 1], params['stack'][f'group_{i}'])
      layers[f'group_{len(layers)}'] = own
  return one_by_one(model), params | {'stack': layers}


def unpadded(model: Model, params) -> dict[str, tuple[int, ...]]:
  """`{path: shape}` of the parameters without the vocabulary's padding."""
  shapes = {}
  for path, leaf in jax.tree_util.tree_leaves_with_path(params):
    name = '/'.join(str(k.key) for k in path)
    shapes[name] = tuple(leaf.shape)
  if 'embedding' in shapes:
    shapes['embedding'] = (model.vocab + model.special, model.width)
  if 'head' in shapes:
    shapes['head'] = (model.width, model.vocab)
  return shapes


def count(model: Model, params) -> int:
  """Parameters, without the vocabulary's padding."""
  return sum(math.prod(shape) for shape in unpadded(model, params).values())
