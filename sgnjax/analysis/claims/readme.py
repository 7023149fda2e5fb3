"""The README's table of the four mechanisms, from the ledger.

`python -m sgnjax.analysis.claims.readme README.md docs/results/claims.json` writes it between its
two markers.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from sgnjax.analysis.claims import CLAIMS, ledger
from sgnjax.analysis.claims.claim import VERDICTS, Claim
from sgnjax.analysis.claims.trial import SMALLER
from sgnjax.errors import UserError
from sgnjax.train.log import write_atomically

BEGIN, END = '<!-- mechanisms: written from the ledger -->', '<!-- mechanisms end -->'


class Mechanism(NamedTuple):
  """published: the operation that sees the future. causal: what stands in its place here.

  headline: the claim whose verdict is shown by itself.
  """

  published: str
  causal: str
  headline: str


MECHANISMS = {
  'SGN': Mechanism(
    'DCT over the whole sequence',
    'one-sided kernel whose frequency response has the gate as its real part',
    'sgn-11',
  ),
  'FourierQK': Mechanism(
    'circular band-pass of Q and K', 'the same one-sided kernel of the filter', 'fqk-12'
  ),
  'CHIAR-Former': Mechanism(
    "MetaRouter's mean over batch and time", "mean over each token's own prefix", 'chi-12'
  ),
  'EGA': Mechanism(
    'z-norm of energies over the whole sequence',
    "statistics over the keys a query sees (`query`), or over the key's prefix (`prefix`)",
    'ega-03',
  ),
}


def table(claims: Sequence[Claim], findings: ledger.Findings) -> str:
  """The table, as Markdown: each mechanism, its forms, and what was found of its paper's claims."""
  rows = [('mechanism', 'published operation that sees the future', 'causal form here')]
  rows[0] += ('its main claim, and the verdict here', 'all its claims')
  counts = {paper: cells for paper, *cells in ledger.summary(claims, findings)}
  for paper, mechanism in MECHANISMS.items():
    claim = next(c for c in claims if c.id == mechanism.headline)
    found = findings.get(claim.id)
    verdict = f'**{found.verdict if found else "not tried"}**'
    if found and found.setting.startswith(SMALLER):
      verdict += f' ({SMALLER})'
    *verdicts, untried, total = map(int, counts[paper])
    said = [f'{what}: {n}' for what, n in zip(VERDICTS, verdicts, strict=True) if n]
    said += [f'not tried: {untried}'] if untried else []
    rows.append(
      (
        paper,
        mechanism.published,
        mechanism.causal,
        f'{claim.text} ({claim.id}): {verdict}',
        f'{total}; {", ".join(said)}',
      )
    )
  return '\n'.join(ledger.markdown_table(rows))


def write(readme: Path, record: Path) -> None:
  """Writes the table between the README's markers. Raises UserError where it has not both."""
  text = readme.read_text(encoding='utf-8')
  before, begin, rest = text.partition(BEGIN)
  _, end, after = rest.partition(END)
  if not (begin and end):
    raise UserError(f"'{readme}' has not the lines '{BEGIN}' and '{END}'")
  if not record.is_file():
    raise UserError(f"'{record}' does not exist; --job=reproduce writes one")
  found = table(list(CLAIMS.values()), ledger.read(record))
  write_atomically(readme, f'{before}{BEGIN}\n\n{found}\n\n{END}{after}')


def main() -> int:
  if len(sys.argv) != 3:
    sys.exit(f'usage: python -m {__spec__.name} README.md CLAIMS.json')
  try:
    write(*map(Path, sys.argv[1:]))
  except UserError as error:
    sys.exit(f'error: {error}')
  return 0


if __name__ == '__main__':
  sys.exit(main())
