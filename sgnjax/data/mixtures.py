"""Several data sets in one training: one each step, and now and then one of the others.

As CHIAR-Former was trained: WikiText-103 at each step and, with probability 0.25, a loss on one of
WikiText-2, IMDB and ListOps, each with a head of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from ml_collections import ConfigDict

from sgnjax.data import pipeline, sources
from sgnjax.data.rows import Batch
from sgnjax.data.steps import Shuffled, generator
from sgnjax.errors import UserError, check_choice


class Choices:
  """Which of some things each step draws, if any, and how often that one was drawn before.

  With probability `rate` a step draws one of them, by weight; a function of seed and step alone.
  """

  BLOCK = 4096

  def __init__(self, seed: int, weights: Sequence[float], rate: float):
    self._seed, self._rate = seed, rate
    self._edges = np.cumsum(weights) / np.sum(weights)
    self._before = [np.zeros(len(weights), np.int64)]  # draws of each before each block

  def _block(self, number: int) -> np.ndarray:
    """Of each step of a block: the number of what it draws, or -1."""
    drawn, which = generator(self._seed, number, 1).random((2, self.BLOCK))
    chosen = np.minimum(np.searchsorted(self._edges, which, side='right'), len(self._edges) - 1)
    return np.where(drawn < self._rate, chosen, -1)

  def at(self, step: int) -> tuple[int, int] | None:
    """The number of what `step` draws, and how many earlier steps drew the same; or None."""
    number, place = divmod(step, self.BLOCK)
    before = self._before
    if len(before) <= number:
      before = list(before)  # threads may read at once: each extends a list of its own
      for block in range(len(before) - 1, number):
        drawn = self._block(block)
        before.append(before[-1] + np.bincount(drawn[drawn >= 0], minlength=len(self._edges)))
      self._before = before
    drawn = self._block(number)
    chosen = int(drawn[place])
    if chosen < 0:
      return None
    return chosen, int(before[number][chosen] + np.sum(drawn[:place] == chosen))


@dataclass(frozen=True)
class _Mixed:
  """The batches of a step by task: the main set's, and perhaps one of the others'."""

  batches: dict[str, Shuffled]
  choices: Choices

  def __getitem__(self, step: int) -> dict[str, Batch]:
    main, *others = self.batches
    found = {main: self.batches[main][step]}
    chosen = self.choices.at(step)
    if chosen is not None:
      name = others[chosen[0]]
      found[name] = self.batches[name][chosen[1]]
    return found


def load(config: ConfigDict) -> dict[str, tuple[ConfigDict, pipeline.Corpus]]:
  """The main set of `config.data` and those of `data.mixture`, by name, all of one tokenizer.

  Each comes with its own config: a set with labels has the task classify. Raises UserError as
  `pipeline.load`, and for a mixture of other than (name, weight) or (name, weight, path).
  """
  main = pipeline.load(config)
  found = {config.data.name: (config, main)}
  for entry in config.data.mixture:
    if not (
      isinstance(entry, tuple)
      and len(entry) in (2, 3)
      and isinstance(entry[0], str)
      and isinstance(entry[1], int | float)
      and entry[1] > 0
    ):
      raise UserError(f'data.mixture: {entry!r} is not (name, weight) or (name, weight, path)')
    name, _, *path = entry
    if name in found:
      raise UserError(f'data.mixture: {name} is there twice')
    own = config.copy_and_resolve_references().unlock()
    own.data.name, own.data.path = name, path[0] if path else None
    own.data.slice, own.data.mixture = None, ()
    check_choice('data.mixture', name, sources.names())
    labelled = sources.labelled(name)
    own.data.task = 'classify' if labelled else 'lm'
    own.data.packing = config.data.packing and not labelled
    found[name] = own.lock(), pipeline.load(own, main.tokenizer)
  return found


def train_iterator(
  config: ConfigDict,
  corpora: dict[str, tuple[ConfigDict, pipeline.Corpus]],
  rows: slice | None = None,
) -> pipeline.Steps:
  """Endless steps {name: batch}: the main set's, and with `data.mixture_rate` one other's.

  Which other, by the weights of `data.mixture`, is a function of seed and step; the n-th step that
  draws a set has the n-th batch of its own shuffled order, so that its epochs are whole. The names
  of a step are few and plain strings: a compiled step is one program for each. State, threads and
  workers as in `train_iterator`. Raises UserError for a rate outside 0 to 1.
  """
  batches = {name: pipeline.shuffled(own, corpus, rows) for name, (own, corpus) in corpora.items()}
  weights = [float(entry[1]) for entry in config.data.mixture]
  rate = config.data.mixture_rate if weights else 0.0
  return pipeline.steps(config, _Mixed(batches, Choices(config.seed, weights or [1.0], rate)))
