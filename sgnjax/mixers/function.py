"""A plain function in a mixer's place."""

from collections.abc import Callable
from typing import ClassVar

from sgnjax.errors import UserError
from sgnjax.mixers.base import Aux, Mixed, Mixer, blank


class Function(Mixer):
  """`function(x_BLD) -> y_BLD` as a mixer: no parameters, no options, no cache.

  Subclasses made by `function_mixer` hold the function and what it says of itself.
  """

  attends: ClassVar[bool] = False
  function: ClassVar[Callable]
  sees_future: ClassVar[bool]
  spreads: ClassVar[bool]

  @property
  def causal(self) -> bool:
    return not self.sees_future

  @property
  def uses_fft(self) -> bool:
    return self.spreads

  def check(self) -> None:
    """Raises UserError where the form is not the function's."""
    wanted = 'bidirectional' if self.sees_future else 'causal'
    if self.form != wanted:
      raise UserError(
        f"mixer '{self.label}' is a function registered with causal={self.causal}; "
        f"set model.form='{wanted}'"
      )

  def __call__(
    self, x_BLD, *, positions_BL=None, mask_BL=None, segments_BL=None, cache=None, train=False
  ) -> Mixed:
    # Padding is on the right: a function that is blind to the future never sees it.
    self.refuse(
      cache=cache,
      mask_BL=mask_BL if self.sees_future else None,
      segments_BL=segments_BL,
      why='a function is given x alone',
    )
    y_BLD = type(self).function(x_BLD)
    if getattr(y_BLD, 'shape', None) != x_BLD.shape:
      raise UserError(
        f"the function of mixer '{self.label}' gave {getattr(y_BLD, 'shape', type(y_BLD).__name__)}"
        f' for x of {x_BLD.shape}: expected the same shape (batch, length, width)'
      )
    return Mixed(blank(y_BLD.astype(x_BLD.dtype), mask_BL), Aux({}, {}, {}), None)


def function_mixer(name: str, function: Callable, causal: bool, uses_fft: bool) -> type[Function]:
  """The mixer of a function."""
  fields = {
    'label': name,
    'function': staticmethod(function),
    'sees_future': not causal,
    'spreads': uses_fft,
    '__doc__': function.__doc__ or f'The function {name}.',
    '__module__': __name__,
    '__annotations__': {},
  }
  return type(name, (Function,), fields)
