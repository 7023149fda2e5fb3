"""Subpackages that are functions too: `sgnjax.train(config)`, `from sgnjax.train import loop`.

Importing a subpackage sets it as an attribute of `sgnjax`, over whatever had its name. So the
subpackage itself can be called, and means the same in any order of imports. Imports nothing of
ours before it is.
"""

import importlib
import sys
import types


class Called(types.ModuleType):
  """A module whose call is the function of its own name in `sgnjax.api`."""

  def __call__(self, *args, **kwargs):
    api = importlib.import_module('sgnjax.api')
    return getattr(api, self.__name__.rpartition('.')[2])(*args, **kwargs)


def also_called(name: str) -> None:
  """Lets the module of this name be called."""
  sys.modules[name].__class__ = Called
