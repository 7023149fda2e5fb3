"""Profiles of chosen steps (`config.profile_steps`), as JAX's profiler writes them."""

from pathlib import Path

import jax
from ml_collections import ConfigDict

from sgnjax.errors import UserError


def check_profile(config: ConfigDict) -> None:
  """Raises UserError unless profile_steps is empty or (first, last)."""
  given, steps = config.profile_steps, config.train.steps
  whole = all(type(step) is int for step in given)
  if given and not (whole and len(given) == 2 and 1 <= given[0] <= given[1] <= steps):
    raise UserError(
      f'profile_steps={given}: expected (first, last) of the steps 1 to train.steps={steps}, '
      'as --config.profile_steps=10,12'
    )


class Trace:
  """Traces the steps of a run into `workdir/profile`; a resumed run those still to come."""

  def __init__(self, config: ConfigDict, workdir: Path):
    self._first, self._last = config.profile_steps or (0, 0)
    self._folder, self._runs = workdir / 'profile', False

  def before(self, step: int) -> None:
    """Begins with the first step, after whatever is still on the device."""
    if self._first <= step <= self._last and not self._runs:
      jax.effects_barrier()
      jax.profiler.start_trace(str(self._folder))
      self._runs = True

  def after(self, step: int, metrics) -> None:
    """Ends when the last step is done, not when it is dispatched."""
    if self._runs and step >= self._last:
      jax.block_until_ready(metrics)
      self.close()

  def close(self) -> None:
    """Writes what there is of a trace that was cut short."""
    if self._runs:
      self._runs = False
      jax.profiler.stop_trace()
