"""What a claim of a paper is here, and what was found about it."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
  from sgnjax.analysis.claims.lab import Lab

HOLDS = 'holds'
WITH_LEAK = 'holds only with the leak'
FAILS = 'does not hold'
UNDECIDED = 'undecided at this size'
OPEN = 'not decided here'
VERDICTS = (HOLDS, WITH_LEAK, FAILS, UNDECIDED, OPEN)

PAPERS = {'sgn': 'SGN', 'fqk': 'FourierQK', 'chi': 'CHIAR-Former', 'ega': 'EGA'}
NEEDS = {
  'P': 'a formula',
  'S': 'seconds to minutes on two processor cores',
  'C': 'runs of hours on two processor cores; smaller ones decide a sign',
  'G': 'a GPU',
}


@dataclass(frozen=True)
class Decision:
  """What would decide a claim: a command, the hardware, and the cost that is predicted for it."""

  command: str
  hardware: str
  cost: str


@dataclass(frozen=True)
class Table:
  """Evidence: rows of cells under a head, with a title."""

  title: str
  head: tuple[str, ...]
  rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Finding:
  """A verdict with its reasons.

  said: one or two sentences with the numbers that decide. setting: how what was done differs from
  the paper ('' where it does not). runs: of trainings, their workdir, config hash, seed, and loss.
  decision: for what is not decided here, what would do it. commit, when, machine: of the code that
  gave the verdict, the day, and where ('' where it was not recorded); the job fills them in.
  """

  verdict: str
  said: str
  setting: str = ''
  tables: tuple[Table, ...] = ()
  runs: tuple[dict[str, Any], ...] = ()
  decision: Decision | None = None
  commit: str = ''
  when: str = ''
  machine: str = ''

  def __post_init__(self):
    if self.verdict not in VERDICTS:
      raise ValueError(f'verdict {self.verdict!r}: expected one of {VERDICTS}')
    if self.verdict == OPEN and self.decision is None:
      raise ValueError('a claim that is not decided needs what would decide it')

  def to_json(self) -> dict[str, Any]:
    return asdict(self)

  @classmethod
  def from_json(cls, found: dict[str, Any]) -> 'Finding':
    tables = tuple(
      Table(t['title'], tuple(t['head']), tuple(tuple(row) for row in t['rows']))
      for t in found['tables']
    )
    decision = found['decision'] and Decision(**found['decision'])
    return cls(**found | {'tables': tables, 'runs': tuple(found['runs']), 'decision': decision})


@dataclass(frozen=True)
class Claim:
  """One claim: its identifier, what the paper says, what deciding it needs, and how it is decided.

  needs: letters of `NEEDS`, as SC. decide: a function of the `Lab`. arms: how many models it trains
  a seed, by which a budget is shared out.
  """

  id: str
  text: str
  needs: str
  decide: 'Callable[[Lab], Finding]' = field(repr=False)
  arms: int = 0

  @property
  def paper(self) -> str:
    return PAPERS[self.id.partition('-')[0]]
