"""The data sets of a run: one, or a mixture whose sets are trained on together."""

import hashlib
from typing import NamedTuple

from jax.sharding import Mesh
from ml_collections import ConfigDict

from sgnjax.data import mixtures, pipeline
from sgnjax.data.images import Images
from sgnjax.errors import UserError
from sgnjax.parallel import feed


class Task(NamedTuple):
  """A data set with its own config. head: of the model's that answers; None: that of tokens."""

  config: ConfigDict
  corpus: pipeline.Data
  head: str | None = None


def load(config: ConfigDict) -> dict[str, Task]:
  """The data sets of `config.data` by name, the main one first.

  In a mixture texts share the head of tokens, and each set with labels has a head of its own.
  Raises UserError as `pipeline.load` and `mixtures.load`, and for a mixture with images or around
  another task than lm.
  """
  if not config.data.mixture:
    return {config.data.name: Task(config, pipeline.load(config))}
  if config.data.task != 'lm':
    raise UserError(f'data.mixture is of data.task=lm, and this is {config.data.task}')
  tasks = {}
  for name, (own, corpus) in mixtures.load(config).items():
    if isinstance(corpus, Images):
      raise UserError(f'data.mixture: {name} holds images, and the model reads text')
    labelled = own.data.task == 'classify'
    tasks[name] = Task(own, corpus, name.replace('/', '_') if labelled else None)
  return tasks


def identity(tasks: dict[str, Task]) -> str:
  """Names the data of all sets."""
  found = [task.corpus.identity for task in tasks.values()]
  return found[0] if len(found) == 1 else hashlib.sha256(' '.join(found).encode()).hexdigest()


def batches(config: ConfigDict, tasks: dict[str, Task], rows: slice) -> pipeline.Steps:
  """The training batches: of the one set, or of a mixture by name."""
  if len(tasks) == 1:
    (task,) = tasks.values()
    return pipeline.train_iterator(config, task.corpus, rows=rows)
  return mixtures.train_iterator(config, {n: (t.config, t.corpus) for n, t in tasks.items()}, rows)


def place(batch: dict, tasks: dict[str, Task], mesh: Mesh, *part: int) -> dict:
  """A step's batch on the mesh, or those of a mixture by name. part: as of `feed.place`."""
  if len(tasks) == 1:
    return feed.place(batch, mesh, *part)
  return {name: feed.place(own, mesh, *part) for name, own in batch.items()}
