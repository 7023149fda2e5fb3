"""A stack `((unit, repeats), ...)`: a unit is a tuple of layers, and each group is one scan."""

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from sgnjax.mixers import Aux, Mixed
from sgnjax.models.block import Block
from sgnjax.parallel.sequence import TOKENS, constrain


class Group(NamedTuple):
  """`repeats` copies of a unit; names and the constructors of its blocks, in order."""

  names: tuple[str, ...]
  blocks: tuple[functools.partial, ...]
  repeats: int


class Unit(nn.Module):
  """The body of a group's scan."""

  group: Group
  train: bool

  @nn.compact
  def __call__(self, x_BLD, caches, context):
    auxes, after = [], []
    x_BLD = constrain(x_BLD, TOKENS)
    for i, (name, make) in enumerate(zip(self.group.names, self.group.blocks, strict=True)):
      cache = None if caches is None else caches[i]
      block = make(name=f'{i}_{name}')
      x_BLD, aux, cache = block(x_BLD, cache=cache, train=self.train, **context)
      x_BLD = constrain(x_BLD, TOKENS)
      auxes.append(aux)
      after.append(cache)
    return x_BLD, (tuple(auxes), None if caches is None else tuple(after))


# What a layer keeps for the backward pass: True for the values to keep.
REMAT = {
  'none': None,
  'dots': jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
  'all': jax.checkpoint_policies.nothing_saveable,
}


class Stack(nn.Module):
  """The layers of a model. Parameters of group i lie under `group_<i>`, repeats on axis 0.

  Aux of layer l (counted from 0 over the whole model) carries its number: `attention_share/03`.
  """

  groups: tuple[Group, ...]
  unroll: int = 1
  remat: str = 'none'

  @nn.compact
  def __call__(
    self, x_BLD, *, positions_BL=None, mask_BL=None, segments_BL=None, cache=None, train=False
  ) -> Mixed:
    context = {'positions_BL': positions_BL, 'mask_BL': mask_BL, 'segments_BL': segments_BL}
    merged, after, first = Aux({}, {}, {}), [], 0
    for i, group in enumerate(self.groups):
      unit = Unit
      if self.remat != 'none':
        # A scan already keeps XLA from merging the second computation with the first.
        unit = nn.remat(Unit, policy=REMAT[self.remat], prevent_cse=False)
      scan = nn.scan(
        unit,
        variable_axes={'params': 0},
        split_rngs={'params': True, 'dropout': True},
        in_axes=(0, nn.broadcast),
        out_axes=0,
        length=group.repeats,
        unroll=min(self.unroll, group.repeats),
      )
      caches = None if cache is None else cache[i]
      x_BLD, (auxes, caches) = scan(group, train, name=f'group_{i}')(x_BLD, caches, context)
      after.append(caches)
      _merge(merged, auxes, first, group)
      first += group.repeats * len(group.names)
    return Mixed(x_BLD, merged, None if cache is None else tuple(after))

  def init_cache(self, batch: int, max_len: int, dtype: Any) -> tuple:
    """Caches of all layers, repeats on axis 0. Raises UserError where a layer keeps none."""

    def stacked(make, repeats):
      one = make(parent=None).init_cache(batch, max_len, dtype)
      return jax.tree.map(lambda a: jnp.broadcast_to(a, (repeats, *a.shape)), one)

    return tuple(tuple(stacked(make, g.repeats) for make in g.blocks) for g in self.groups)

  def layers(self) -> Iterator[tuple[str, Block]]:
    """Name and (unbound) block of every layer, in order."""
    for group in self.groups:
      for _ in range(group.repeats):
        for name, make in zip(group.names, group.blocks, strict=True):
          yield name, make(parent=None)


def _merge(into: Aux, auxes: tuple[Aux, ...], first: int, group: Group) -> None:
  """Adds the stacked reports of a group, one entry a layer; losses of all layers add up."""
  for position, aux in enumerate(auxes):
    for key, stacked in aux.losses.items():
      into.losses[key] = into.losses.get(key, jnp.zeros((), stacked.dtype)) + jnp.sum(stacked)
    for target, source in ((into.metrics, aux.metrics), (into.debug, aux.debug)):
      for key, stacked in source.items():
        for repeat in range(group.repeats):
          layer = first + repeat * len(group.names) + position
          target[f'{key}/{layer:02d}'] = stacked[repeat]
