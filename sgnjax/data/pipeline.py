"""From a config to batches, in an order that seed and step alone decide.

Targets are shifted here, never in a model: `targets[:, j]` is the token after `tokens[:, j]`. A
target of -1 is not scored. B: rows, L: context.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from sgnjax.data import augment as augment_lib
from sgnjax.data import cache, images, recall, sources, tokenizers
from sgnjax.data.masking import FixedMasks, Masking, ReadPadding
from sgnjax.data.rows import Batch, InOrder, Labelled, Packed, Rows, SideBySide, Sliding, Windows
from sgnjax.data.steps import Augment, Shuffled, Steps, part
from sgnjax.errors import UserError, check_choice

TASKS = ('lm', 'mlm', 'classify', 'recall')


@dataclass(frozen=True)
class Corpus:
  """Tokens (N,) of each split, with what their losses are compared by.

  splits: int32, or uint16 where that is enough; they may lie on the disk.
  bytes_per_token: UTF-8 bytes of a split's text over its tokens; nats per token over (ln 2 times
    this) are bits per byte.
  characters_per_token: the same for characters (an invalid byte counts as one).
  unigram_nats: cross-entropy, nats per token, of a split's tokens under the frequencies of the
    train split's tokens with one added to each count. A model that learnt anything is below it.
  source: a phrase that says where the text came from.
  words_per_token: words by white space, an end of line being one, and that of a document among
    others: nats per token over this are those per word of PTB, WikiText and One Billion Words.
  ends: (D,) where the documents of a split end. labels: (D,) of each, where there are any; classes:
    how many there are, None where labels are numbers.
  targets: (N,) what is asked after each token, -1 where nothing; of data.task recall alone.
  identity: names text and tokens of all splits; equal for the same ones, wherever they lie.
  """

  splits: dict[str, np.ndarray]
  bytes_per_token: dict[str, float]
  characters_per_token: dict[str, float]
  unigram_nats: dict[str, float]
  tokenizer: tokenizers.Tokenizer
  source: str
  words_per_token: dict[str, float] = field(default_factory=dict)
  ends: dict[str, np.ndarray] = field(default_factory=dict)
  labels: dict[str, np.ndarray] = field(default_factory=dict)
  classes: int | None = None
  targets: dict[str, np.ndarray] = field(default_factory=dict)
  identity: str = ''


Data = Corpus | images.Images


def load(config: ConfigDict, tokenizer: tokenizers.Tokenizer | None = None) -> Data:
  """Reads and tokenizes what `config.data` names; tokenizer: instead of the one it names.

  A set of images gives `images.Images`.

  Raises UserError for every wrong `data` key, and for a split that is too short for a row.
  """
  tokenizers.check_kind(config.data.tokenizer)
  check_choice('data.task', config.data.task, TASKS)
  augment_lib.check(config)
  if config.data.packing and config.data.task == 'classify':
    raise UserError('data.packing is of data.task=lm and mlm, and this is classify')
  if config.data.name in images.SETS:
    return images.load(config)
  recall.check(config)
  if config.data.task == 'recall':
    return _recall(recall.load(config))
  texts, origin, classes = sources.load(config)
  if config.data.task == 'classify' and texts['train'].labels is None:
    raise UserError(f'data.task=classify needs labels, and {origin} has none')
  tokenizer = tokenizer or _tokenizer(config, texts)
  found = {
    split: cache.tokenize(config, documents, tokenizer, f'{config.data.name} {split}')
    for split, documents in texts.items()
  }
  splits = {split: tokens.ids for split, tokens in found.items()}
  counts = found['train'].counts + 1
  nats = np.log(counts.sum()) - np.log(counts)
  each = {split: max(1, len(tokens.ids)) for split, tokens in found.items()}
  identity = hashlib.sha256(json.dumps([[s, t.key] for s, t in found.items()]).encode())
  corpus = Corpus(
    splits=splits,
    bytes_per_token={s: t.text_bytes / each[s] for s, t in found.items()},
    characters_per_token={s: t.characters / each[s] for s, t in found.items()},
    unigram_nats={s: float(t.counts @ nats) / each[s] for s, t in found.items()},
    tokenizer=tokenizer,
    source=origin,
    words_per_token={
      s: (t.words + texts[s].separate * len(t.ends)) / each[s] for s, t in found.items()
    },
    ends={s: t.ends for s, t in found.items()},
    labels={s: t.labels for s, t in found.items() if t.labels is not None},
    classes=classes,
    identity=identity.hexdigest(),
  )
  _check_lengths(config, corpus)
  return corpus


def _recall(found: recall.Found) -> Corpus:
  """Symbols are no text: bytes and characters are of what they are called."""
  sizes = [len(word) + 1 for word in found.tokenizer.words]
  each = {split: float(np.mean(np.take(sizes, ids))) for split, ids in found.tokens.items()}
  return Corpus(
    splits=found.tokens,
    bytes_per_token=each,
    characters_per_token=each,
    unigram_nats=found.unigram_nats,
    tokenizer=found.tokenizer,
    source=found.source,
    targets=found.targets,
    identity=found.identity,
  )


def _tokenizer(config: ConfigDict, texts: dict[str, sources.Documents]) -> tokenizers.Tokenizer:
  """What `config.data` names; a vocabulary that takes a pass over long texts is kept."""
  data = config.data

  def every() -> Iterator[sources.Text]:
    for documents in texts.values():
      yield from documents.texts()
      if documents.separate:
        yield cache.END

  def make() -> tokenizers.Tokenizer:
    return tokenizers.for_texts(config, texts['train'].texts, every)

  if data.tokenizer not in ('char', 'word') or data.tokenizer_path is not None:
    return make()
  keys = [(documents.key, documents.separate) for documents in texts.values()]
  what = f'{data.tokenizer} {data.vocab_size} {keys[:1] if data.tokenizer == "word" else keys}'
  size = sum(documents.size for documents in texts.values())
  return tokenizers.from_json(cache.remembered(config, size, what, lambda: make().to_json()))


def _check_lengths(config: ConfigDict, corpus: Corpus) -> None:
  context = config.model.context
  if config.data.task == 'classify':
    least, sizes, unit = 1, {s: len(e) for s, e in corpus.ends.items()}, 'documents'
  elif config.data.packing:
    least, unit = 1, 'documents of two tokens'
    sizes = {s: int(np.sum(np.diff(e, prepend=0) > 1)) for s, e in corpus.ends.items()}
  else:
    least, sizes, unit = context + 1, {s: len(t) for s, t in corpus.splits.items()}, 'tokens'
  if min(sizes.values()) < least:
    lengths = ', '.join(f'{split} {size:,}' for split, size in sizes.items())
    why = f'model.context={context} needs {least:,}' if unit == 'tokens' else 'one is needed'
    raise UserError(
      f'{corpus.source} is too short: {unit} {lengths}, and {why} in each; lower model.context, '
      'give more text, or change data.validation'
    )


def _rows(config: ConfigDict, corpus: Data, split: str, stride: int) -> Rows:
  """The rows of a split under the config's task."""
  if isinstance(corpus, images.Images):
    return images.Pictures(corpus.splits[split], corpus.shape, corpus.kind)
  tokens, context = corpus.splits[split], config.model.context
  if config.data.task == 'recall':
    return recall.Asked(tokens, corpus.targets[split], context)
  if config.data.task == 'classify':
    rows = Labelled(tokens, corpus.ends[split], corpus.labels[split], context)
    masked = config.data.mask_padding
    return rows if masked else ReadPadding(rows, corpus.tokenizer.vocab_size)
  if config.data.packing:
    return Packed(tokens, corpus.ends[split], context)
  return Windows(tokens, context, stride)


def _masking(config: ConfigDict, corpus: Corpus) -> Masking:
  rate = config.data.mask_rate
  if not 0 < rate < 1:
    raise UserError(f'data.mask_rate={rate}: expected more than 0 and less than 1')
  return Masking(corpus.tokenizer.vocab_size, rate)


def _fixed(config: ConfigDict, corpus: Data, split: str) -> Rows:
  """The rows of a split as evaluation draws them, always with the same tokens masked."""
  if config.data.task == 'mlm':
    packing, masking = config.data.packing, _masking(config, corpus)
    if packing:
      rows = _rows(config, corpus, split, 1)
    else:
      rows = SideBySide(corpus.splits[split], config.model.context)
    return FixedMasks(rows, masking, keep_mask=packing)
  return _rows(config, corpus, split, 1)


def shuffled(
  config: ConfigDict, corpus: Data, rows: slice | None = None, augment: Augment | None = None
) -> Shuffled:
  """The batches of `train_iterator` by the number of their step."""
  batch, stride = _at_least(1, config, 'train.batch'), _at_least(1, config, 'data.stride')
  mine, seed = part(rows, batch), _at_least(0, config, 'seed')
  if not mine:
    raise UserError(f'rows {rows} of train.batch={batch}: expected at least one')
  mix = None
  if config.data.task == 'mlm':
    augment = _masking(config, corpus)
  elif isinstance(corpus, images.Images):
    augment = augment or augment_lib.of(config, corpus)
    mix = augment_lib.mixing(config, corpus)
  return Shuffled(_rows(config, corpus, 'train', stride), seed, batch, mine, augment, mix)


def steps(config: ConfigDict, batches: Any) -> Steps:
  """Iterates over what `batches[step]` is, read ahead as `config.data` says."""
  if not 0 <= config.data.mixture_rate <= 1:
    raise UserError(f'data.mixture_rate={config.data.mixture_rate}: expected 0 to 1')
  return Steps(
    batches,
    threads=_at_least(0, config, 'data.threads'),
    workers=_at_least(0, config, 'data.workers'),
    prefetch=_at_least(1, config, 'data.prefetch'),
  )


def train_iterator(
  config: ConfigDict, corpus: Data, rows: slice | None = None, *, augment: Augment | None = None
) -> Steps:
  """Endless batches of the train split: `rows` of the global batch of train.batch (None: all).

  data.task lm: {'tokens', 'targets'} (b, L) int32. Windows start at the multiples of `data.stride`;
  with `data.packing` they are documents instead (`rows.Packed`), with a mask, segments and
  positions. Task mlm: the same rows, some tokens masked, and targets these alone
  (`masking.Masking`). Task classify: a document and its label a row (`rows.Labelled`), with
  `data.mask_padding` false without a mask (`masking.ReadPadding`), or images (`images.Pictures`),
  changed as `data.augment` says and mixed as `data.mixup` says: labels are then shares of all
  classes, (b, classes) float32. Task recall: an example a row, and what it asks (`recall.Asked`).

  Rows are shuffled anew each epoch. Row i of the global batch of step s is element
  s * train.batch + i of that order, whatever rows are read here. An epoch may end inside a batch.

  augment: changes each example by a generator that depends on (seed, step, row) alone, instead of
  `data.augment`.

  The iterator's state (`get_state`, `set_state`) is the number of the next step. `data.threads`
  threads or `data.workers` processes read `data.prefetch` batches ahead. Raises UserError for keys
  out of range, and for a mixture, which `mixtures.train_iterator` reads.
  """
  if config.data.mixture:
    raise UserError(f'data.mixture={config.data.mixture}: this training reads one data set')
  return steps(config, shuffled(config, corpus, rows, augment))


def random_batches(
  config: ConfigDict, corpus: Data, split: str, count: int, seed: int
) -> Iterator[Batch]:
  """The papers' evaluation: `count` batches of train.batch windows at uniformly random places.

  Packed documents and labelled ones are drawn as rows. Batches as in training, every target scored,
  the same for the same seed. Raises UserError for an unknown split.
  """
  check_choice('split', split, corpus.splits)
  batch = _at_least(1, config, 'train.batch')
  rows = _fixed(config, corpus, split)
  places = np.random.default_rng(seed).integers(0, len(rows), (count, batch))
  return (rows.take(drawn) for drawn in places)


def eval_windows(config: ConfigDict, corpus: Data, split: str) -> InOrder:
  """The whole split in order, each token but the first of a text scored exactly once.

  Windows advance by `eval.stride` tokens (None: half the context), so a scored token has at least
  context - stride tokens before it, but in the first window. Packed documents are read as they are
  packed: a document longer than the context goes on without what was before. Task mlm: windows side
  by side, always the same tokens masked. Labelled documents are a row each. Raises UserError for an
  unknown split or a stride or batch out of range.
  """
  check_choice('eval.split', split, corpus.splits)
  context, batch = config.model.context, _at_least(1, config, 'eval.batch')
  if config.data.task != 'lm' or config.data.packing:
    return InOrder(_fixed(config, corpus, split), batch)
  stride = max(1, context // 2)
  if config.eval.stride is not None:
    stride = _at_least(1, config, 'eval.stride')
  if stride > context:
    raise UserError(
      f'eval.stride={stride} would skip tokens: expected 1 to model.context={context}'
    )
  return InOrder(Sliding(corpus.splits[split], context, stride), batch)


def _at_least(least: int, config: ConfigDict, key: str) -> int:
  value = config
  for name in key.split('.'):
    value = value[name]
  if value < least:
    raise UserError(f'{key}={value}: expected at least {least}')
  return value
