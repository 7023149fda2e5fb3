"""Sweeps: the grid that `sweep()` of a config file names, as configs. Imports no JAX."""

import itertools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ml_collections import ConfigDict

from sgnjax import config as config_lib
from sgnjax.errors import UserError, nearest


class Point(NamedTuple):
  """One run of a sweep. name: of its folder. labels: its place on each axis. changes: its keys."""

  name: str
  labels: dict[str, str]
  changes: tuple[str, ...]
  config: ConfigDict


class Sweep(NamedTuple):
  """The points of a grid, the last axis fastest. base: the config without what the axes set."""

  base: ConfigDict
  points: tuple[Point, ...]


def load(path: str | Path, overrides: Sequence[str] = (), only: Sequence[str] = ()) -> Sweep:
  """The grid of the config file at `path`, each point with the command line's overrides.

  `sweep()` returns axes: `{'seed': (0, 1, 2)}` is a key of the config and its values;
  `{'mixer': {'fir': {'model.mixer': 'fourier_qk', ...}, ...}}` is a name of an axis, and by label
  the keys that a place on it sets. An override of a key that is an axis leaves this one value of
  it. only: places that are left of their axes, as `sgn` or `seed-0`; those of one axis are
  alternatives. All points are loaded here, so that a key or a value that is wrong is said before
  anything runs. Raises UserError.
  """
  base = config_lib.load(path, overrides)
  given = dict(override.partition('=')[::2] for override in overrides)
  axes = _axes(path, base, given)
  points = []
  for places in itertools.product(*(places.items() for places in axes.values())):
    labels = {axis: label for axis, (label, _) in zip(axes, places, strict=True)}
    changes = tuple(f'{key}={value}' for _, keys in places for key, value in keys.items())
    name = '_'.join(_word(axis, label) for axis, label in labels.items())
    points.append(Point(name, labels, changes, config_lib.load(path, (*overrides, *changes))))
  names = [point.name for point in points]
  twice = next((name for name in names if names.count(name) > 1), None)
  if twice is not None:
    raise UserError(f"sweep() of '{path}' has two points of the name '{twice}'")
  left = _left(axes, only)
  return Sweep(
    base, tuple(p for p in points if all(p.labels[axis] in labels for axis, labels in left.items()))
  )


def _left(axes: Mapping[str, Mapping], only: Sequence[str]) -> dict[str, set[str]]:
  """`{axis: labels}` of the axes that `only` names places of. Raises UserError."""
  places: dict[str, list[tuple[str, str]]] = {}
  for axis, labels in axes.items():
    for label in labels:
      for word in {_part(label), _word(axis, label)}:
        places.setdefault(word, []).append((axis, label))
  left: dict[str, set[str]] = {}
  for word in only:
    if word not in places:
      raise UserError(f"no axis of the sweep has a place '{word}'{nearest(word, places)}")
    if len({axis for axis, _ in places[word]}) > 1:
      exact = ' or '.join(f"'{_word(*place)}'" for place in places[word])
      raise UserError(f"'{word}' is a place of several axes of the sweep: write {exact}")
    for axis, label in places[word]:
      left.setdefault(axis, set()).add(label)
  return left


def _axes(
  path: str | Path, base: ConfigDict, given: Mapping[str, str]
) -> dict[str, dict[str, dict[str, str]]]:
  """`{axis: {label: {key: value as text}}}` of the file's `sweep()`."""
  found = config_lib.call(path, 'sweep')
  if not isinstance(found, Mapping) or not found:
    raise UserError(
      f"sweep() of '{path}' returned {found!r}, expected {{key: (value, ...)}} with an axis or more"
    )
  known = set(config_lib.leaves(base))
  axes, set_by = {}, {}
  for axis, values in found.items():
    if isinstance(values, str) or not hasattr(values, '__len__') or not len(values):
      raise UserError(f"sweep() of '{path}': axis '{axis}' is {values!r}, expected some values")
    if isinstance(values, Mapping):
      for label, keys in values.items():
        if not isinstance(keys, Mapping):
          raise UserError(
            f"sweep() of '{path}': '{label}' of axis '{axis}' is {keys!r}, expected {{key: value}}"
          )
      places = {
        str(label): {key: text(value) for key, value in keys.items()}
        for label, keys in values.items()
      }
    elif axis in given:
      places = {given[axis]: {axis: given[axis]}}
    else:
      places = {text(value): {axis: text(value)} for value in values}
    for key in {key for keys in places.values() for key in keys}:
      if key not in known:
        raise UserError(f"sweep() of '{path}': key '{key}' is not known{nearest(key, known)}")
      if set_by.setdefault(key, axis) != axis:
        raise UserError(f"sweep() of '{path}': axes '{set_by[key]}' and '{axis}' set '{key}'")
      if key in given and key != axis:
        raise UserError(
          f"config.{key} is set by the axis '{axis}' of the sweep; choose its places with --only"
        )
    axes[axis] = places
  return axes


def text(value) -> str:
  """A value as the command line writes it."""
  return 'none' if value is None else value if isinstance(value, str) else repr(value)


def _word(axis: str, label: str) -> str:
  """An axis and a label as part of a folder's name."""
  return f'{axis.split(".")[-1]}-{_part(label)}'


def _part(label: str) -> str:
  return re.sub(r'[^A-Za-z0-9.+-]+', '-', label).strip('-')
