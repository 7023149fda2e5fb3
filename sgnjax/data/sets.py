"""The data sets by name: which fields are text and label, and how plain files of them are read."""

import gzip
import hashlib
import io
import json
import lzma
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from sgnjax.data import prepared
from sgnjax.data.sources import Documents, Example, Source, cut, decode, held_out, read_texts
from sgnjax.errors import UserError

OPENERS = {'': open, '.xz': lzma.open, '.gz': gzip.open}
SPLITS = {split: split for split in ('train', 'validation', 'test')}
LISTOPS_FILES = {'train': 'train', 'validation': 'val', 'test': 'test'}


@dataclass(frozen=True)
class Set:
  """A text data set.

  fields: of a TFDS example, joined by ends of line. label: its field. kind: what a label is: class
  or number. splits: ours to TFDS's; one that a set lacks is left out, and validation is then cut
  from train. whole: its parts are one text, to be cut anew. separate: documents of their own.
  files: candidates for the name of a split's file, and the reader of its bytes.
  """

  fields: tuple[str, ...] = ('text',)
  label: str | None = None
  kind: str | None = None
  classes: int | None = None
  splits: dict[str, str] = field(default_factory=lambda: dict(SPLITS))
  whole: bool = False
  separate: bool = False
  files: Callable[[str], tuple[str, ...]] | None = None
  parse: Callable[[str, bytes], Iterator[Example]] | None = None


def _whole_file(name: str, raw: bytes) -> Iterator[Example]:
  yield decode(name, raw), None


def _ptb_characters(name: str, raw: bytes) -> Iterator[Example]:
  from sgnjax.data.builders.ptb import characters

  yield characters(decode(name, raw)), None


def _articles(name: str, raw: bytes) -> Iterator[Example]:
  from sgnjax.data.builders.wikitext import articles

  return ((text, None) for text in articles(io.StringIO(decode(name, raw), newline='\n')))


def _json_lines(name: str, raw: bytes) -> Iterator[Example]:
  rows = map(json.loads, filter(None, decode(name, raw).split('\n')))
  return ((row['text'], int(row['label'])) for row in rows)


def _label_first(name: str, raw: bytes) -> Iterator[Example]:
  """Lines `1 a sentence`."""
  for line in decode(name, raw).split('\n'):
    if line:
      label, _, text = line.partition(' ')
      yield text, int(label)


def _listops(name: str, raw: bytes) -> Iterator[Example]:
  from sgnjax.data.builders.list_ops import released

  return released(io.StringIO(decode(name, raw)))


def _wikitext(split: str) -> tuple[str, ...]:
  part = _part(split)
  return f'wiki.{part}.tokens', f'{part}.txt'


def _part(split: str) -> str:
  return 'valid' if split == 'validation' else split


def _classes(count: int, *fields: str, **options) -> Set:
  return Set(fields or ('text',), 'label', 'class', count, separate=True, **options)


_PTB = {'files': lambda split: (f'ptb.{_part(split)}.txt',)}
_LISTOPS = {'files': lambda split: (f'basic_{LISTOPS_FILES[split]}.tsv',), 'parse': _listops}
_NO_TEST = {'train': 'train', 'validation': 'validation'}  # labels of GLUE's test splits are secret
_NO_VALIDATION = {'train': 'train', 'test': 'test'}
_GLUE = {
  'cola': ('sentence',),
  'sst2': ('sentence',),
  'mrpc': ('sentence1', 'sentence2'),
  'qqp': ('question1', 'question2'),
  'mnli': ('premise', 'hypothesis'),
  'qnli': ('question', 'sentence'),
  'rte': ('sentence1', 'sentence2'),
  'wnli': ('sentence1', 'sentence2'),
}
_SUPER_GLUE = {
  'boolq': ('question', 'passage'),
  'cb': ('premise', 'hypothesis'),
  'copa': ('premise', 'question', 'choice1', 'choice2'),
  'multirc': ('paragraph', 'question', 'answer'),
  'rte': ('premise', 'hypothesis'),
  'wic': ('word', 'sentence1', 'sentence2'),
  'wsc.fixed': ('text', 'span1_text', 'span2_text'),
}

SETS: dict[str, Set] = {
  'tiny_shakespeare': Set(whole=True),
  'wikitext2': Set(files=_wikitext, parse=_articles),
  'wikitext2/raw': Set(files=lambda s: (f'wiki.{_part(s)}.raw',), parse=_articles),
  'wikitext103': Set(files=_wikitext, parse=_articles),
  'wikitext103/raw': Set(files=lambda s: (f'wiki.{_part(s)}.raw',), parse=_articles),
  'ptb': Set(parse=_whole_file, **_PTB),
  'ptb/char': Set(parse=_ptb_characters, **_PTB),
  'lm1b': Set(separate=True, splits={'train': 'train', 'validation': 'test'}),
  'c4': Set(separate=True, splits=_NO_TEST),
  'text_folder': Set(separate=True),
  'imdb_reviews': _classes(
    2, splits=_NO_VALIDATION, files=lambda s: (f'imdb.{s}.jsonl',), parse=_json_lines
  ),
  'sst2': _classes(
    2,
    files=lambda s: (f'stsa.binary.{"dev" if s == "validation" else s}',),
    parse=_label_first,
  ),
  'list_ops': _classes(10, **_LISTOPS),
  'list_ops/released': _classes(10, **_LISTOPS),
  'glue/stsb': Set(('sentence1', 'sentence2'), 'label', 'number', separate=True, splits=_NO_TEST),
}
for _task, _fields in _GLUE.items():
  _splits = _NO_TEST | ({'validation': 'validation_matched'} if _task == 'mnli' else {})
  SETS[f'glue/{_task}'] = _classes(3 if _task == 'mnli' else 2, *_fields, splits=_splits)
for _task, _fields in _SUPER_GLUE.items():
  SETS[f'super_glue/{_task}'] = _classes(3 if _task == 'cb' else 2, *_fields, splits=_NO_TEST)

PLAIN_ONLY = ('sst2',)  # TFDS has it in another form, as glue/sst2


def from_files(name: str, given: str, share: float, *, raw: bool) -> Source:
  """The set in a folder of its plain files, compressed (.xz, .gz) or not.

  raw: texts as bytes. Raises UserError for a set without plain files, and where one is missing.
  """
  found = SETS[name]
  folder, origin = Path(given).expanduser(), f"{name} of '{given}'"
  if found.whole:
    texts = [decode(file, content) for file, content in read_texts(given)]
    return cut([t.encode() if raw else t for t in texts], share, origin)
  if found.files is None or found.parse is None:
    raise UserError(f'{name} is not read from plain files: unset data.path, and TFDS is asked')
  splits = {}
  for split in SPLITS:
    if split not in found.splits:
      continue
    contents = _content(folder, found.files(split))
    if contents is None:
      continue
    examples = _examples(name, *contents)
    if raw:
      examples = [(text.encode(), label) for text, label in examples]
    splits[split] = examples
  if 'train' not in splits:
    expected = ' or '.join(found.files('train'))
    what = '' if folder.is_dir() else 'is no folder, and '
    raise UserError(
      f"data.path '{given}' {what}holds no train split of {name}: expected {expected}"
    )
  if 'validation' not in splits:
    parts: tuple[list[Example], list[Example]] = ([], [])
    for example, held in zip(splits['train'], held_out(len(splits['train']), share), strict=True):
      parts[int(held)].append(example)
    splits['train'], splits['validation'] = parts
  options = {'separate': found.separate, 'labels': found.kind}
  return Source(
    {split: Documents.of(examples, **options) for split, examples in splits.items()},
    origin,
    found.classes,
  )


def _examples(name: str, path: str, content: bytes) -> list[Example]:
  """The examples of a split's file. Raises UserError that names the first which is none."""
  found, examples = SETS[name], []
  try:
    for text, label in found.parse(path, content):
      if found.classes is not None and label not in range(found.classes):
        raise ValueError(f'a label of {label} among {found.classes} classes')
      examples.append((text, label))
  except (ValueError, KeyError, TypeError) as error:
    raise UserError(
      f"'{path}' is not as {name} should be, at example {len(examples) + 1:,}: "
      f'{type(error).__name__}: {error}'
    ) from None
  return examples


def _content(folder: Path, candidates: tuple[str, ...]) -> tuple[str, bytes] | None:
  """Path and bytes of the first candidate that is there."""
  for name in candidates:
    for suffix, opener in OPENERS.items():
      path = folder / f'{name}{suffix}'
      try:
        with opener(path, 'rb') as file:
          return str(path), file.read()
      except (FileNotFoundError, NotADirectoryError):
        continue
      except (OSError, EOFError, lzma.LZMAError) as error:
        raise UserError(f"cannot read '{path}': {error}") from None
  return None


def from_tfds(
  name: str, data_dir: str | None, share: float, slice_: str | None, *, raw: bool
) -> Source:
  """The set as TFDS prepared it, read document by document.

  slice_: what to take of the train split, as TFDS writes it: ':1%' or ':100000'. Raises UserError
  where it is not prepared, and for a slice that is none.
  """
  found = SETS[name]
  if name in PLAIN_ONLY:
    raise UserError(f'data.name={name} needs data.path=FOLDER of its plain files')
  builder = prepared.ready(name, data_dir)
  origin = f'TFDS {builder.info.full_name}'
  if found.whole:
    texts = [
      bytes(builder.as_data_source(split=split)[0][found.fields[0]]) for split in found.splits
    ]
    return cut(texts if raw else [decode(name, text) for text in texts], share, origin)
  count = builder.info.splits['train'].num_examples
  parts = dict(found.splits)
  parts = {ours: theirs for ours, theirs in parts.items() if theirs in builder.info.splits}
  if slice_ is not None:
    parts['train'] = f'train[{slice_}]'
    try:
      count = builder.info.splits[parts['train']].num_examples
    except (ValueError, AssertionError) as error:
      raise UserError(
        f"data.slice={slice_}: expected what TFDS takes, ':1%' or ':100000' ({error})"
      ) from None
  if 'validation' not in parts:
    kept = int((1 - share) * count)
    if slice_ is not None:
      raise UserError(f'data.slice: {name} has no validation split to leave whole')
    parts['train'], parts['validation'] = f'train[:{kept}]', f'train[{kept}:]'
  return Source(
    {ours: _documents(builder, part, found, raw) for ours, part in parts.items()},
    origin,
    found.classes,
  )


def _documents(builder, part: str, found: Set, raw: bool) -> Documents:
  def read() -> Iterator[Example]:
    source = builder.as_data_source(split=part)
    for index in range(len(source)):
      example = source[index]
      text = b'\n'.join(_bytes(example[name]) for name in found.fields)
      label = None if found.label is None else example[found.label]
      label = label if label is None else (float if found.kind == 'number' else int)(label)
      yield (text if raw else decode(builder.info.full_name, text)), label

  # What lies prepared: the records' names and sizes, beside the set's name and version.
  records = sorted(builder.data_path.glob('*.array_record*'))
  digest = hashlib.sha256(f'{builder.info.full_name} {part}'.encode())
  digest.update(repr([(path.name, path.stat().length) for path in records]).encode())
  info = builder.info.splits[part]
  return Documents(
    read,
    digest.hexdigest(),
    int(info.num_bytes or 0),
    separate=found.separate,
    labels=found.kind,
  )


def _bytes(value) -> bytes:
  return value.encode() if isinstance(value, str) else bytes(value)
