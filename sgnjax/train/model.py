"""The model that a config and its data ask for together."""

from typing import Any

from ml_collections import ConfigDict

from sgnjax.data.images import Images
from sgnjax.errors import UserError
from sgnjax.models import Model, build
from sgnjax.train.tasks import Task


def make_model(
  config: ConfigDict,
  tokenizer: Any,
  classes: int | None = None,
  heads: tuple[tuple[str, int], ...] = (),
) -> Model:
  """The model for this tokenizer, and this many classes (1: labels are numbers).

  heads: for further tasks, by name.

  Raises UserError where model.vocab or model.classes is another number.
  """
  m = config.model
  if m.image is None and m.vocab not in (None, tokenizer.vocab_size):
    raise UserError(
      f'model.vocab={m.vocab}, but the tokenizer of this text has {tokenizer.vocab_size} tokens; '
      'set --config.model.vocab=none to take its number'
    )
  if classes is not None and m.classes not in (None, classes):
    raise UserError(
      f'model.classes={m.classes}, but the labels of this data set are of {classes} classes; set '
      '--config.model.classes=none to take their number'
    )
  return build(config, vocab=tokenizer.vocab_size, classes=classes, heads=heads)


def model_of(tasks: dict[str, Task]) -> Model:
  """The model for the data sets of a run.

  Raises UserError as `make_model`, and where model.image is not the shape of the data's images.
  """
  (config, corpus, _), *others = tasks.values()
  shape = corpus.shape if isinstance(corpus, Images) else None
  if shape != (None if config.model.image is None else tuple(config.model.image)):
    wanted = 'none' if shape is None else shape
    what = 'text' if shape is None else f'images of {shape} (rows, columns, channels)'
    raise UserError(
      f'model.image={config.model.image}, but {corpus.source} is {what}; set '
      f'--config.model.image={wanted}'
    )
  classes = (corpus.classes or 1) if config.data.task == 'classify' else None
  heads = tuple((task.head, task.corpus.classes or 1) for task in others if task.head)
  return make_model(config, corpus.tokenizer, classes, heads)
