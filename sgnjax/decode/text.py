"""From text to text: prompts in, continuations out as they are written, up to a stop string."""

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from sgnjax.decode.generate import Generation
from sgnjax.errors import UserError
from sgnjax.models.decoder import Decoder

# Tokens a piece, where someone watches, and where only stop strings are looked for.
SHOWN, STOPPED = 4, 16
UNFINISHED = '\N{REPLACEMENT CHARACTER}'  # at the end: bytes of a character still to come


class Written(NamedTuple):
  """Continuations, one a prompt; the tokens of each, and the seconds that the loop took.

  Of a text that a stop string ended, the tokens up to it are counted, its own included. Compiling
  and reading the prompts are not in the seconds.
  """

  texts: list[str]
  tokens: list[int]
  seconds: float

  @property
  def rate(self) -> float:
    """Tokens a second, all rows together."""
    return sum(self.tokens) / self.seconds


def write(
  model: Decoder,
  params: Any,
  tokenizer: Any,
  prompts: Sequence[str],
  tokens: int,
  *,
  stop: Sequence[str] = (),
  show: Callable[[int, str], None] | None = None,
  slide: bool = True,
  **options,
) -> Written:
  """Continues every prompt by `tokens` tokens at most; other options as in `generate`.

  stop: a text ends before the first of these that it comes to, and the loop ends when all have.
  show: is given a row's number and the next piece of its text, as it is written.
  slide: past the context the oldest tokens are dropped (see `generate`).

  Raises UserError as `generate` does, for an empty stop string, and the tokenizer's for characters
  that it does not know.
  """
  if isinstance(stop, str) or not all(isinstance(s, str) and s for s in stop):
    raise UserError(f'stop {stop!r}: expected a list of texts, none of them empty')
  ids = [tokenizer.encode(prompt) for prompt in prompts]
  chunk = SHOWN if show else STOPPED if stop else None
  generation = Generation(model, params, ids, tokens, slide=slide, chunk=chunk, **options)
  rows = [_Row(tokenizer, stop) for _ in ids]
  start = time.perf_counter()
  for piece_BC in generation:
    for number, (row, piece_C) in enumerate(zip(rows, piece_BC, strict=True)):
      said = row.add(piece_C.tolist())
      if show and said:
        show(number, said)
    if all(row.stopped for row in rows):
      break
  seconds = time.perf_counter() - start
  for number, row in enumerate(rows):
    if show and row.rest():
      show(number, row.rest())
  return Written([row.text for row in rows], [len(row.ids) for row in rows], seconds)


class _Row:
  """One text as it grows."""

  def __init__(self, tokenizer: Any, stop: Sequence[str]):
    self.tokenizer, self.stop = tokenizer, stop
    self.ids, self.text, self.shown, self.stopped = [], '', '', False

  def add(self, ids: list[int]) -> str:
    """Takes tokens, unless the text has ended; what may be shown now and was not yet."""
    if self.stopped:
      return ''
    before = len(self.ids)
    self.ids += ids
    self.text = self.tokenizer.decode(self.ids)
    if self._ends(self.text):
      while before < len(self.ids) and not self._ends(self.tokenizer.decode(self.ids[:before])):
        before += 1
      self.ids, self.stopped = self.ids[:before], True
      self.text = self.text[: min(at for at in map(self.text.find, self.stop) if at >= 0)]
    settled = self.text if self.stopped else self._settled()
    if not settled.startswith(self.shown):  # a decoder that changes its mind: shown at the end
      return ''
    said, self.shown = settled[len(self.shown) :], settled
    return said

  def rest(self) -> str:
    """What was held back."""
    return self.text[len(self.shown) :]

  def _ends(self, text: str) -> bool:
    return any(s in text for s in self.stop)

  def _settled(self) -> str:
    """The text without an end that may be a part of a character or of a stop string."""
    text = self.text.rstrip(UNFINISHED)
    longest = max(map(len, self.stop), default=1)
    for at in range(max(0, len(text) - longest + 1), len(text)):
      if any(s.startswith(text[at:]) for s in self.stop):
        return text[:at]
    return text
