"""What each task is trained on and measured by: sums over a batch, and what their totals say.

Sums add up over microbatches, batches and processes, and are divided once, at the end.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from ml_collections import ConfigDict

from sgnjax.errors import UserError

IGNORED = -1  # a target or a class that is not scored
Sums = dict[str, jax.Array]


class Objective(NamedTuple):
  """A task. Outputs are a model's: logits_BLV of tokens, or (B, K) of examples.

  unit: what is scored, 'token', 'masked_token', 'asked_token' or 'example'. scored: how many of
  these a batch asks for, before the model. sums: `loss_sum`, `tokens` (the number scored, whatever
  the unit), and more to tell by, scalars and vectors; smoothed: with label smoothing, as in
  training. tell: totals of those of a split, float64, as a record's numbers; `loss` is the mean
  that training lowers.
  """

  unit: str
  scored: Callable[[Mapping[str, jax.Array]], jax.Array]
  sums: Callable[[jax.Array, Mapping[str, jax.Array]], Sums]
  smoothed: Callable[[jax.Array, Mapping[str, jax.Array]], Sums]
  tell: Callable[[Mapping[str, Any]], dict[str, float]]


def of(config: ConfigDict) -> Objective:
  """The objective of `data.task`. Raises UserError for a smoothing outside 0 to 1."""
  smoothing = config.train.label_smoothing
  if not 0 <= smoothing < 1:
    raise UserError(f'train.label_smoothing={smoothing}: expected 0 or more and less than 1')
  if config.data.task == 'classify':

    def smoothed(outputs_BK, batch):
      return label_sums(outputs_BK, batch, smoothing)

    return Objective('example', scored_labels, label_sums, smoothed, tell_labels)
  if smoothing:
    raise UserError(f'train.label_smoothing={smoothing} is of data.task=classify')
  unit = {'mlm': 'masked_token', 'recall': 'asked_token'}.get(config.data.task, 'token')
  sums = next_token_sums if unit == 'token' else asked_token_sums
  return Objective(unit, scored_targets, sums, sums, tell_tokens)


def cross_entropy(logits_BLV: jax.Array, targets_BL: jax.Array) -> tuple[jax.Array, jax.Array]:
  """Sum of `-log p(target)` in nats over the targets that are not -1, and their number.

  In float32, or float64 where the logits are.
  """
  wide = jnp.promote_types(logits_BLV.dtype, jnp.float32)
  scored_BL = targets_BL != IGNORED
  nats_BL = optax.softmax_cross_entropy_with_integer_labels(
    logits_BLV.astype(wide), jnp.where(scored_BL, targets_BL, 0)
  )
  return jnp.sum(jnp.where(scored_BL, nats_BL, 0)), jnp.sum(scored_BL).astype(wide)


def scored_targets(batch) -> jax.Array:
  return jnp.sum(batch['targets'] != IGNORED)


def next_token_sums(logits_BLV: jax.Array, batch) -> Sums:
  """`loss_sum` in nats over the targets that are scored, and their number."""
  loss_sum, tokens = cross_entropy(logits_BLV, batch['targets'])
  return {'loss_sum': loss_sum, 'tokens': tokens}


def asked_token_sums(logits_BLV: jax.Array, batch) -> Sums:
  """As of next tokens, and how many tokens are the likeliest one."""
  sums = next_token_sums(logits_BLV, batch)
  right_BL = jnp.argmax(logits_BLV, axis=-1) == batch['targets']  # never of one that is -1
  return sums | {'correct': jnp.sum(right_BL).astype(sums['tokens'].dtype)}


def tell_tokens(totals) -> dict[str, float]:
  """Mean loss, and where some tokens are asked for alone, the accuracy."""
  count = totals['tokens']
  told = {'loss': totals['loss_sum'] / count}
  return told | ({'accuracy': totals['correct'] / count} if 'correct' in totals else {})


def scored_labels(batch) -> jax.Array:
  return jnp.sum(_scored(batch['label']))


def _scored(label: jax.Array) -> jax.Array:
  """(B,): which examples have a class (not -1), shares of classes or a number (not NaN)."""
  if jnp.issubdtype(label.dtype, jnp.integer):
    return label != IGNORED
  return ~jnp.isnan(label if label.ndim == 1 else label[:, 0])


def label_sums(outputs_BK: jax.Array, batch, smoothing: float = 0.0) -> Sums:
  """Sums over examples by what a label is: a class, shares of all classes (B, K), or a number.

  Classes: cross-entropy in nats, and by class (K,) how many examples are of it (`labels`), were
  said to be (`said`) and both (`right`); shares count as the largest. A number: squared error, and
  the moments that correlation takes.
  """
  label = batch['label']
  wide = jnp.promote_types(outputs_BK.dtype, jnp.float32)
  outputs_BK, scored_B = outputs_BK.astype(wide), _scored(label)
  tokens = jnp.sum(scored_B).astype(wide)
  if label.ndim == 1 and not jnp.issubdtype(label.dtype, jnp.integer):
    return {'tokens': tokens, **_number_sums(outputs_BK[:, 0], label.astype(wide), scored_B)}
  classes = outputs_BK.shape[1]
  if label.ndim == 1:
    shares_BK = jax.nn.one_hot(label, classes, dtype=wide)  # zeros where -1
  else:
    shares_BK = jnp.where(scored_B[:, None], label, 0).astype(wide)
  nats_B = optax.softmax_cross_entropy(outputs_BK, optax.smooth_labels(shares_BK, smoothing))
  label_B, said_B = jnp.argmax(shares_BK, axis=1), jnp.argmax(outputs_BK, axis=1)

  def counted(class_B, where_B):
    one_hot_BK = jax.nn.one_hot(class_B, classes, dtype=wide)
    return jnp.sum(jnp.where(where_B[:, None], one_hot_BK, 0), axis=0)

  right_K = counted(label_B, scored_B & (label_B == said_B))
  return {
    'loss_sum': jnp.sum(jnp.where(scored_B, nats_B, 0)),
    'tokens': tokens,
    'correct': jnp.sum(right_K),
    'labels': counted(label_B, scored_B),
    'said': counted(said_B, scored_B),
    'right': right_K,
  }


def _number_sums(said_B: jax.Array, label_B: jax.Array, scored_B: jax.Array) -> Sums:
  label_B, said_B = jnp.where(scored_B, label_B, 0), jnp.where(scored_B, said_B, 0)
  values = {'label': label_B, 'said': said_B, 'product': label_B * said_B}
  values |= {'label_square': label_B**2, 'said_square': said_B**2}
  return {
    'loss_sum': jnp.sum((said_B - label_B) ** 2),
    **{f'{name}_sum': jnp.sum(value_B) for name, value_B in values.items()},
  }


def tell_labels(totals) -> dict[str, float]:
  """Numbers of a split, beside those of the best constant answer.

  Classes: accuracy; `majority`, the share of the most frequent class, and `entropy`, nats of the
  classes' frequencies: what answers without looking reach on this split. Two classes: `f1` of class
  1 and `matthews`, GLUE's measures. A number: `pearson`, and `variance`, the squared error of the
  mean. An undefined quotient is 0.
  """
  count = totals['tokens']
  told = {'loss': totals['loss_sum'] / count}
  if 'labels' in totals:
    labels_K, said_K, right_K = (np.asarray(totals[k], float) for k in ('labels', 'said', 'right'))
    share_K = labels_K[labels_K > 0] / count
    told['accuracy'] = totals['correct'] / count
    told['majority'] = float(labels_K.max() / count)
    told['entropy'] = float(-np.sum(share_K * np.log(share_K)))
    if len(labels_K) == 2:
      told['f1'] = _over(2 * right_K[1], labels_K[1] + said_K[1])
      covariance = right_K[1] * count - labels_K[1] * said_K[1]
      told['matthews'] = _over(covariance, math.sqrt(np.prod(labels_K) * np.prod(said_K)))
  else:
    label, said = totals['label_sum'] / count, totals['said_sum'] / count
    variance = max(0.0, totals['label_square_sum'] / count - label**2)
    of_said = max(0.0, totals['said_square_sum'] / count - said**2)
    covariance = totals['product_sum'] / count - label * said
    told['pearson'] = _over(covariance, math.sqrt(variance * of_said))
    told['variance'] = variance
  return told


def _over(a: float, b: float) -> float:
  return float(a / b) if b else 0.0
