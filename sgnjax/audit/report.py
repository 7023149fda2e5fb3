"""What an audit found, as a table, a verdict and JSON."""

import dataclasses
import json
import math
from collections.abc import Container, Sequence

from sgnjax.audit.causality import Row

FLOAT32 = ' (float32)'  # ends the names of the checks that were made in float32


@dataclasses.dataclass(frozen=True)
class Report:
  """What an audit found. `declared`: whether the model calls itself causal; None: it says nothing.

  encoder: no language model; it sees the whole row by design, other examples and padding not.
  how: in what precision it was computed, and where.
  """

  rows: tuple[Row, ...]
  model: str
  length: int
  batch: int
  declared: bool | None
  encoder: bool = False
  how: str = 'float64 on a CPU'

  @property
  def leaks(self) -> tuple[Row, ...]:
    """The rows in which something was seen that may not be; decoding is a matter of its own."""
    return tuple(row for row in self.rows if row.fails and row.check != 'decoding')

  @property
  def leaky(self) -> bool:
    return bool(self.leaks)

  @property
  def decodes(self) -> bool:
    """Whether decoding with the cache gives what the whole sequence gives."""
    return not any(row.fails for row in self.rows if row.check == 'decoding')

  @property
  def layer(self) -> str:
    """The first layer that leaks, over all rows, or ''."""
    order = {'embedding': -1, 'head': math.inf}
    named = [row.layer for row in self.leaks if row.layer]
    return min(named, key=lambda name: order.get(name) or int(name.split()[1]), default='')

  @property
  def size(self) -> float:
    """The largest leak, over the logits' scale."""
    return max((row.relative for row in self.leaks), default=0.0)

  def finding(self) -> str:
    """What was seen, in a few words."""
    if self.leaky:
      seen = dict.fromkeys(row.check.removesuffix(FLOAT32) for row in self.leaks)
      where = f', first in {self.layer}' if self.layer else ''
      return f'sees {" and ".join(seen)}, up to {self.size:.1e} of the largest logit{where}'
    if not self.decodes:
      return 'gives other logits when it decodes with its cache than for the whole sequence'
    compared = [
      row for row in self.rows if row.check != 'decoding' and not math.isnan(row.relative)
    ]
    checks = ', '.join(dict.fromkeys(row.check.removesuffix(FLOAT32) for row in compared))
    worst = max(row.relative for row in compared)
    size = 'exactly 0' if worst == 0 else f'at most {worst:.1e} of the largest logit'
    return f'is blind to: {checks} (differences {size})'

  @property
  def contradiction(self) -> str:
    """Where the model's own word, or its cache, disagrees with what was found; '' where not."""
    if self.encoder or self.declared is None:
      return ''
    if not self.leaky and not self.declared and self.length > 1:
      return (
        f'{self.model} declares that it leaks, but nothing was seen to: '
        'its property `causal` or the audit is wrong'
      )
    if self.leaky and self.declared:
      return f'{self.model} declares itself causal, but it {self.finding()}'
    return '' if self.decodes else f'{self.model} {self.finding()}'

  def verdict(self) -> str:
    """One line."""
    if self.encoder:
      word = 'LEAKY' if self.leaky else 'ENCODER'
      return f'{word}: {self.model} sees the whole row by design, and {self.finding()}'
    word = 'LEAKY' if self.leaky else 'CAUSAL' if self.decodes else 'WRONG CACHE'
    return f'{word}: {self.model} {self.finding()}'

  def table(self) -> str:
    """Plain text, a row a comparison."""
    head = ('check', 'from', 'difference', 'of scale', 'limit', 'first layer, or note')
    cells = [head] + [
      (
        row.check,
        '' if row.position is None else str(row.position),
        _number(row.difference),
        _number(row.relative),
        _number(row.limit),
        f'LEAK {row.layer}'.strip() if row in self.leaks else row.note,
      )
      for row in self.rows
    ]
    lines = aligned(cells, right=range(1, 5))
    title = f'{self.model}, {self.batch} x {self.length} tokens, {self.how}'
    return '\n'.join([title, *lines])

  def to_json(self) -> dict:
    """All of it as JSON values."""
    rows = [
      {k: None if isinstance(v, float) and math.isnan(v) else v for k, v in row.items()}
      | {'fails': source.fails}
      for source in self.rows
      for row in [dataclasses.asdict(source)]
    ]
    keys = ('model', 'length', 'batch', 'declared', 'encoder', 'how')
    facts = {key: getattr(self, key) for key in keys}
    found = {'leaky': self.leaky, 'decodes': self.decodes, 'layer': self.layer, 'size': self.size}
    return json.loads(json.dumps(facts | found | {'verdict': self.verdict(), 'rows': rows}))


def aligned(rows: Sequence[Sequence[str]], *, right: Container[int] = ()) -> list[str]:
  """Lines of a plain-text table; columns of `right` are set to the right."""
  widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
  return [
    '  '.join(
      cell.rjust(width) if i in right else cell.ljust(width)
      for i, (cell, width) in enumerate(zip(row, widths, strict=True))
    ).rstrip()
    for row in rows
  ]


def _number(x: float) -> str:
  return '-' if math.isnan(x) else '0' if x == 0 else f'{x:.1e}'
