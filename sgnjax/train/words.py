"""What a run says of itself: as it begins, and where it ends too soon."""

from collections.abc import Iterator
from pathlib import Path

import jax
from jax.sharding import Mesh
from ml_collections import ConfigDict

from sgnjax.errors import UserError
from sgnjax.models import DECODERS
from sgnjax.train.checkpoint import committed
from sgnjax.train.tasks import Task


def introduction(
  config: ConfigDict, tasks: dict[str, Task], mesh: Mesh, parameters: int, leaky: bool
) -> Iterator[str]:
  """Lines of what runs here."""
  sources = '; '.join(task.corpus.source for task in tasks.values())
  yield f'{parameters:,} parameters; {sources}'
  if jax.process_count() > 1:
    yield f'{jax.process_count()} processes, {mesh.size} devices'
  if config.data.task not in DECODERS:
    yield f'no language model (data.task={config.data.task}): it sees the whole row by design'
    if config.data.task == 'classify' and not config.data.mask_padding:
      yield 'data.mask_padding=False: padding is a token that every layer reads, as any other'
  if leaky:
    yield 'allow_leak: this model sees the future; every number of it says LEAKY'


def last_saved(workdir: Path) -> str:
  """Where a run that ends without a word of its own will be taken up."""
  steps = committed(workdir)
  where = f'the last saved step is {steps[-1]}' if steps else 'nothing was saved yet'
  return f'{where} ({workdir}); the same command resumes'


def not_finite(
  config: ConfigDict, workdir: Path, step: int, last: int | None, what: str
) -> UserError:
  """The error of a step whose numbers overflow; last: the newest step that is saved."""
  batch = config.train.batch
  rows = 'windows' if config.data.task == 'lm' else 'rows'
  good = (
    'there is no checkpoint yet' if last is None else f'the last good checkpoint is step {last}'
  )
  return UserError(
    f'step {step} is not finite ({what}); its batch is {rows} {(step - 1) * batch:,} to '
    f'{step * batch - 1:,} of the shuffled order of seed {config.seed}\n'
    f'{good} ({workdir}); nothing was saved after it; a lower optim.lr is the usual cure'
  )
