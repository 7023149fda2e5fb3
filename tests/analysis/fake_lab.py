"""A laboratory that trains nothing: what a training would give is a function of its config."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from sgnjax.analysis.claims.lab import Lab
from sgnjax.analysis.claims.trial import Run, Size

TRY = Size('try', 1, 32, 1, 32, 4, 3)


class FakeLab(Lab):
  """A `Lab` whose runs are made up.

  gives: of a config the loss, or the whole last evaluation record (`loss` and what a claim reads
  beside it). A run of a config with `allow_leak` is leaky unless its record says otherwise. Runs
  are numbered in the order of `asked`, and nothing lies in their workdirs: a test of a claim that
  reads weights puts its own in place of `load_params`. kept: what `once` gives, by name.

  Losses that do not depend on `config.seed` have intervals of no width; to leave a difference
  undecided, let its sign change with the seed.
  """

  def __init__(
    self,
    gives: Callable[[ConfigDict], float | Mapping[str, Any]],
    *,
    size: Size = TRY,
    data=None,
    workdir: Path = Path('fake'),
    kept: Mapping[str, Any] | None = None,
  ):
    super().__init__(workdir, data, size)
    self.gives, self.kept, self.asked = gives, kept or {}, []

  def once(self, name: str, make: Callable[[], Any]) -> Any:
    return self.kept[name]

  def train(self, config: ConfigDict) -> Run:
    self.trained += 1
    self.asked.append(config)
    given = self.gives(config)
    record = dict(given) if isinstance(given, Mapping) else {'loss': float(given)}
    record = {'kind': 'evaluation', 'leaky': config.allow_leak} | record
    return Run(self.workdir / f'{self.trained:03}', config, record)
