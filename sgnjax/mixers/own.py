"""Mixers of your own beside the ones here: registered by name, in code or by a config's plugin."""

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable
from pathlib import Path

from sgnjax.errors import UserError, check_choice
from sgnjax.mixers.base import Mixer
from sgnjax.mixers.function import function_mixer
from sgnjax.parallel import rules

OWN: set[str] = set()  # names that were registered


def register(
  name: str,
  mixer: type[Mixer] | Callable | None = None,
  *,
  causal: bool = True,
  uses_fft: bool = False,
):
  """Lets `model.mixer=name` (and a layer of `model.stack`) be a mixer of your own; returns it.

  mixer: a subclass of `Mixer`, which says itself whether it is causal, or a function
  `x_BLD -> y_BLD` of the same shape. Left out: what is returned is a decorator.

  causal, uses_fft: of a function, whether it is blind to later tokens, and whether an FFT along the
  length spreads rounding over them (a change below 1e-9 is then none). The audit tries both.

  Parameters of these mixers are whole on every device of a mesh; those whose names
  `sgnjax.train.optim` does not know follow `optim.decay_mechanism`. A name may be registered again,
  as a notebook's cell does. Raises UserError for a name that is taken or no Python name, and for
  what is no mixer.
  """
  if mixer is None:
    return lambda given: register(name, given, causal=causal, uses_fft=uses_fft)
  from sgnjax.mixers import MIXERS  # which this file helps to make

  if not (isinstance(name, str) and name.isidentifier()):
    raise UserError(f'a mixer is registered under a name such as my_mixer, and got {name!r}')
  if name in MIXERS and name not in OWN:
    raise UserError(f"'{name}' is a mixer of sgnjax: register yours under another name")
  kind = mixer
  if not inspect.isclass(mixer):
    if not callable(mixer):
      raise UserError(f'mixer {name}: expected a Mixer or a function, got {type(mixer).__name__}')
    kind = function_mixer(name, mixer, causal, uses_fft)
  elif not issubclass(mixer, Mixer):
    raise UserError(
      f"mixer '{name}': {mixer.__name__} is no subclass of sgnjax.mixers.Mixer; derive it, or "
      'register a function x_BLD -> y_BLD'
    )
  elif not any('__call__' in base.__dict__ for base in mixer.__mro__):
    raise UserError(f"mixer '{name}': {mixer.__name__} has no __call__")
  MIXERS[name] = kind
  OWN.add(name)
  rules.OWN.add(f'*[0-9]_{name}/mixer/*')
  return mixer


def check_known(name: str, plugin: str | None = None) -> None:
  """Raises UserError unless there is a mixer of this name, which a plugin may have to register.

  plugin: a Python file, or the name of a module; run at most once.
  """
  from sgnjax.mixers import MIXERS

  if name not in MIXERS and plugin is not None:
    _load(plugin)
    if name not in MIXERS:
      names = ', '.join(sorted(OWN)) or 'none'
      raise UserError(
        f"mixer '{name}' is not known, and the plugin '{plugin}' does not register it "
        f'(registered: {names})'
      )
  check_choice('mixer', name, MIXERS)


def _load(plugin: str) -> None:
  """Imports a module, or runs a file as one. Raises UserError."""
  try:
    if not plugin.endswith('.py'):
      importlib.import_module(plugin)
      return
    path = Path(plugin).expanduser().resolve()
    if not path.is_file():
      raise UserError(f"plugin '{plugin}' does not exist")
    name = f'sgnjax_plugin_{path.stem}'
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where dataclasses, which Flax's modules are, look for it
    spec.loader.exec_module(module)
  except UserError:
    raise
  except Exception as error:
    raise UserError(f"plugin '{plugin}' failed: {type(error).__name__}: {error}") from error
