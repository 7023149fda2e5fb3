"""Configs: load a file, apply `key=value` overrides, hash, compare. Imports ml_collections only."""

import ast
import hashlib
import importlib.util
import json
import os
import re
import sys
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path

from ml_collections import ConfigDict, config_dict

from sgnjax.errors import UserError, nearest, nearest_path

HERE = Path(__file__).resolve().parent
# The configs that come with the library: beside it in a checkout, inside it where it is installed.
CONFIGS = (HERE if (HERE / 'configs').is_dir() else HERE.parent) / 'configs'
# What may change between the two halves of a resumed run: nothing that touches the numbers, but for
# the rounding of another mesh.
RESUME_FREE = (
  'audit.',
  'benchmark.',
  'sample.',
  'score.',
  'scaling.',
  'export.',
  'lr_range.',
  'reproduce.',
  'profile_steps',
  'mesh.',
  'hosts.',
  'target',
  'model.remat',
  'data.dir',
  'data.cache_dir',
  'data.tokenizer_path',
  'data.threads',
  'data.workers',
  'data.prefetch',
  'train.wall_minutes',
  'train.wall_status',
  'train.progress',
  'train.wandb',
  'train.compile_cache',
  'train.keep',
)

# Keys that came later, and whose defaults are what was done before.
ADDED = ('plugin', 'train.ema')


def load(path: str | Path, overrides: Sequence[str] = ()) -> ConfigDict:
  """Runs `get_config()` of the file at `path`, applies `a.b=value` overrides, locks the result.

  Raises UserError for a missing file, a failing one, an unknown key or a value of the wrong type.
  """
  config = call(path, 'get_config')
  if not isinstance(config, ConfigDict):
    raise UserError(
      f"get_config() of '{path}' returned {type(config).__name__}, expected a ConfigDict"
    )
  for override in overrides:
    apply_override(config, override)
  return config.lock()


def call(path: str | Path, function: str):
  """What a function of the config file at `path` returns. Raises UserError as `load` does."""
  path = Path(path)
  shipped = CONFIGS.parent / path  # 'configs/quickstart.py', from any folder
  if not os.path.isfile(path) and path.parts[:1] == ('configs',) and os.path.isfile(shipped):
    path = shipped
  if not os.path.isfile(path):  # Path.is_file() raises for a name too long
    folder = path.parent if os.path.isdir(path.parent) else CONFIGS
    files = [f for f in sorted(folder.glob('*.py')) if f.name not in ('__init__.py', 'base.py')]
    names = [str(f.relative_to(CONFIGS.parent) if folder == CONFIGS else f) for f in files]
    raise UserError(
      f"config file '{path}' does not exist" + (nearest(str(path), names) if names else '')
    )
  spec = importlib.util.spec_from_file_location(f'sgnjax_config_{path.stem}', path)
  if spec is None or spec.loader is None:
    raise UserError(f"config file '{path}' is not a Python file (expected a name that ends in .py)")
  module = importlib.util.module_from_spec(spec)
  beside = str(CONFIGS.parent)  # a config says `from configs import base`
  sys.path.insert(0, beside)
  try:
    spec.loader.exec_module(module)
    if not hasattr(module, function):
      raise UserError(f"config file '{path}' has no function {function}()")
    return getattr(module, function)()
  except UserError:
    raise
  except Exception as error:
    raise UserError(f"config file '{path}'{_line(path)}: {_reason(error)}") from error
  finally:
    if beside in sys.path:
      sys.path.remove(beside)


def _line(path: Path) -> str:
  frames = [f for f in traceback.extract_tb(sys.exc_info()[2]) if f.filename == str(path)]
  return f', line {frames[-1].lineno}' if frames else ''


def _reason(error: Exception) -> str:
  if isinstance(error, SyntaxError):
    return f'line {error.lineno} is not valid Python: {error.msg}'
  text = str(error.args[0]) if error.args else type(error).__name__
  unknown = re.search(r'Key "(\w+)" does not exist', text)
  if unknown:
    close = re.search(r'Did you mean "(\w+)"', text)
    return f"key '{unknown[1]}' is not known" + (f"; did you mean '{close[1]}'?" if close else '')
  return f'{type(error).__name__}: {text}'


def leaves(config: ConfigDict, prefix: str = '') -> Iterator[str]:
  """Every key of the config as a dotted path."""
  for key in config:
    value = config[key]
    if isinstance(value, ConfigDict):
      yield from leaves(value, f'{prefix}{key}.')
    else:
      yield f'{prefix}{key}'


def apply_override(config: ConfigDict, override: str) -> None:
  """Applies one `a.b=value`; `none` unsets an optional key. Raises UserError."""
  key, equals, text = override.partition('=')
  known = list(leaves(config))
  if key not in known:
    whole = [k for k in known if k.startswith(f'{key}.')]
    if whole:
      raise UserError(f'config.{key} is a group; set one of: {", ".join(whole)}')
    # The last part alone is the likeliest slip: config.steps for config.train.steps.
    ends = [k for k in known if k.split('.')[-1] == key.split('.')[-1]]
    ends.sort(key=lambda k: not k.startswith('train.'))
    hint = f"; did you mean '{ends[0]}'?" if ends else nearest(key, known)
    raise UserError(f"config key '{key}' is not known{hint}")
  if not equals:
    raise UserError(f'config.{key} was given no value; write --config.{key}=VALUE')
  *groups, leaf = key.split('.')
  for group in groups:
    config = config[group]
  reference = config.get_ref(leaf)
  kind = reference.get_type()
  optional = getattr(reference, 'optional', False)
  # A key that must have a text may have this one: `model.positions=none`.
  if text.strip().lower() in ('none', 'null') and (optional or kind is not str):
    if not optional:
      raise UserError(
        f'config.{key}={text}: expected {kind.__name__}, and this key is not optional'
      )
    config[leaf] = None
  else:
    value = _parse(key, text, kind)
    config[leaf] = _like(key, text, value, config[leaf]) if kind is tuple else value


def _parse(key: str, text: str, kind: type):
  """`text` as a value of `kind`."""
  if kind is str:
    return text
  wrong = UserError(f'config.{key}={text}: expected {kind.__name__}')
  if kind is bool:
    truth = {'true': True, '1': True, 'false': False, '0': False}
    if text.lower() not in truth:
      raise UserError(f'config.{key}={text}: expected true or false')
    return truth[text.lower()]
  try:
    value = ast.literal_eval(text)
  except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
    raise wrong from None
  if kind is int and isinstance(value, float) and value.is_integer():
    return int(value)  # 1e3 is a thousand
  if kind is float and isinstance(value, int) and not isinstance(value, bool):
    return float(value)
  if kind is tuple and isinstance(value, list):
    return tuple(value)
  if kind is tuple and type(value) in (int, float, str):
    return (value,)  # tau=0.5 is tau=(0.5,)
  if not isinstance(value, kind) or isinstance(value, bool):
    raise wrong
  return value


def _like(key: str, text: str, value: tuple, old: tuple | None) -> tuple:
  """The tuple with numbers of the kind that the key's own are of: an int among floats is one."""
  kinds = {type(v) for v in old or ()}
  if kinds not in ({int}, {float}):
    return value
  (kind,) = kinds
  if not all(type(v) in (int, kind) for v in value):
    raise UserError(f'config.{key}={text}: expected numbers ({kind.__name__})')
  return tuple(kind(v) for v in value)


def to_dict(config: ConfigDict) -> dict:
  """The config as plain JSON values (tuples become lists)."""
  return json.loads(json.dumps(config.to_dict()))


def flat(config: ConfigDict | dict) -> dict:
  """`{'a.b': value}` of a config, or of the dict that `to_dict` made."""
  tree = to_dict(config) if isinstance(config, ConfigDict) else config
  out = {}
  for key, value in tree.items():
    if isinstance(value, dict):
      out.update({f'{key}.{k}': v for k, v in flat(value).items()})
    else:
      out[key] = value
  return out


def fingerprint(config: ConfigDict) -> str:
  """Twelve hexadecimal digits that name this config."""
  return hashlib.sha256(json.dumps(to_dict(config), sort_keys=True).encode()).hexdigest()[:12]


def differences(
  old: ConfigDict | dict, new: ConfigDict | dict, free: Sequence[str] = ()
) -> list[str]:
  """Lines `key: old -> new` for each key that differs and does not start with one of `free`."""
  a, b = flat(old), flat(new)
  keys = [k for k in sorted(a | b) if not k.startswith(tuple(free))]
  return [
    f'{k}: {a.get(k, "(absent)")} -> {b.get(k, "(absent)")}' for k in keys if a.get(k) != b.get(k)
  ]


KINDS = {kind.__name__: kind for kind in (int, float, str, bool, tuple)}


def serialise(config: ConfigDict) -> dict:
  """The config as JSON values, and what they do not say: the kinds of the optional keys."""
  optional = {}
  for key in leaves(config):
    *groups, leaf = key.split('.')
    node = config
    for group in groups:
      node = node[group]
    reference = node.get_ref(leaf)
    if getattr(reference, 'optional', False):
      optional[key] = reference.get_type().__name__
  return {'config': to_dict(config), 'optional': optional, 'hash': fingerprint(config)}


def deserialise(tree: dict) -> ConfigDict:
  """The inverse of `serialise`."""
  config = ConfigDict(_tuples(tree['config']))
  for key, kind in tree['optional'].items():
    *groups, leaf = key.split('.')
    node = config
    for group in groups:
      node = node[group]
    reference = config_dict.placeholder(KINDS[kind])
    reference.optional = True
    value = node[leaf]
    node[leaf] = reference
    node[leaf] = value
  return config.lock()


def _tuples(value):
  """Lists of a JSON tree as tuples."""
  if isinstance(value, dict):
    return {k: _tuples(v) for k, v in value.items()}
  return tuple(_tuples(v) for v in value) if isinstance(value, list) else value


def _fill(tree: dict, defaults: dict) -> None:
  """Adds the keys of RESUME_FREE and ADDED that a serialised config lacks."""
  known = flat(tree['config'])
  for key, value in flat(defaults['config']).items():
    if key in known or not key.startswith((*RESUME_FREE, *ADDED)):
      continue
    *groups, leaf = key.split('.')
    node = tree['config']
    for group in groups:
      node = node.setdefault(group, {})
    node[leaf] = value
    if key in defaults['optional']:
      tree['optional'][key] = defaults['optional'][key]


def stored(workdir: str | Path, overrides: Sequence[str] = ()) -> ConfigDict:
  """The config that a run left in its workdir, with overrides. Raises UserError.

  Keys that an older version did not have, and that change no number of it, have their defaults.
  """
  path = Path(workdir) / 'config.json'
  if not path.is_file():
    close = '' if path.parent.is_dir() else nearest_path(path.parent)
    what = 'holds no config.json' if path.parent.is_dir() else 'does not exist'
    raise UserError(f"workdir '{workdir}' {what}{close or '; name the config with --config=FILE'}")
  try:
    tree = json.loads(path.read_text())
    _fill(tree, serialise(load(CONFIGS / 'base.py')))
    config = deserialise(tree)
  except (ValueError, KeyError, TypeError):
    raise UserError(f"'{path}' is not a config that a run of sgnjax left") from None
  for override in overrides:
    apply_override(config, override)
  return config
