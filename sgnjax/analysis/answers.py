"""What a report says of a model that answers: how often it is right, beside a blind guess."""

import numpy as np
from ml_collections import ConfigDict

from sgnjax.analysis.capture import WINDOWS
from sgnjax.analysis.page import escape, table
from sgnjax.data import pipeline
from sgnjax.train.log import mark

# Of an evaluation record: how a number is called and written. `loss` is named by its task.
NAMES = {
  'accuracy': ('accuracy', '{:.2%}'),
  'f1': ('F1', '{:.4f}'),
  'matthews': ('Matthews correlation', '{:.4f}'),
  'pearson': ('Pearson correlation', '{:.4f}'),
}
GUESSES = {
  'majority': ('accuracy of the most frequent class alone', '{:.2%}'),
  'entropy': ('nats per example from class frequencies alone', '{:.3f}'),
  'variance': ('squared error of the mean alone', '{:.3f}'),
  'unigram': ('{} from token frequencies alone', '{:.3f}'),
}


def loss_unit(record: dict) -> str:
  """What a loss of this record is measured in."""
  if 'variance' in record:
    return 'squared error'
  of = {'masked_tokens': 'masked token', 'asked_tokens': 'asked token'}
  return f'nats per {next((said for key, said in of.items() if key in record), "example")}'


def guess(record: dict) -> tuple[float, str]:
  """The loss of a guess without looking, and what it knows."""
  for key, what in (
    ('entropy', 'class frequencies'),
    ('variance', 'the mean'),
    ('unigram', 'token frequencies'),
  ):
    if key in record:
      return record[key], f'{what} alone'
  raise KeyError(f'no guess in {sorted(record)}')


def headline(evaluations: list[dict], step: int, settings: ConfigDict, leaky: bool) -> str:
  """The result as tiles, and every evaluation as a table, as HTML."""
  if not evaluations:
    return '<p class="bad">This run was stopped before its first evaluation.</p>'
  best = next((r for r in evaluations if r['step'] == step), evaluations[-1])
  said = escape(mark(leaky))
  names = {k: v for k, v in NAMES.items() if k in best}
  names['loss'] = (loss_unit(best), '{:.4f}')
  guesses = {k: v for k, v in GUESSES.items() if k in best}
  tiles = [(form.format(best[k]) + said, name) for k, (name, form) in names.items()]
  tiles += [
    (form.format(best[k]), name.format(loss_unit(best))) for k, (name, form) in guesses.items()
  ]
  boxes = ''.join(f'<div class="tile"><b>{value}</b>{escape(name)}</div>' for value, name in tiles)
  counted = next(k for k in ('examples', 'masked_tokens', 'asked_tokens') if k in best)
  line = (
    f'On the {escape(settings.eval.split)} split ({best[counted]:,} '
    f'{counted.replace("_", " ")}) after step {best["step"]:,}.'
  )
  rows = [
    (f'{r["step"]:,}', *(form.format(r[k]) + said for k, (_, form) in names.items()))
    for r in evaluations
  ]
  listed = table(rows, ('step', *(escape(name) for name, _ in names.values())))
  every = f'<details><summary>All {len(rows)} evaluations</summary>{listed}</details>'
  return f'<div class="tiles">{boxes}</div>\n<p>{line}</p>\n{every}'


class PatchNumbers:
  """In a tokenizer's place for pictures of images: a patch is called by its number."""

  def decode(self, ids: list[int]) -> str:
    return ' '.join(map(str, ids))


def shown_images(settings: ConfigDict, data: pipeline.Data) -> tuple[np.ndarray, np.ndarray]:
  """Images of the evaluated split (B, *image), and the numbers of their patches (B, L)."""
  batch = next(iter(pipeline.eval_windows(settings, data, settings.eval.split)))
  images = batch['image'][:WINDOWS]
  length = settings.model.context
  return images, np.broadcast_to(np.arange(length), (len(images), length))
