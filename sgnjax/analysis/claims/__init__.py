"""The claims of the four papers as code: each gives a verdict with its evidence."""

from collections.abc import Sequence

from sgnjax.analysis.claims import chiar, ega, fourier_qk, sgn
from sgnjax.analysis.claims.claim import Claim
from sgnjax.errors import UserError, nearest

CLAIMS: dict[str, Claim] = {
  c.id: c for c in (*sgn.CLAIMS, *fourier_qk.CLAIMS, *chiar.CLAIMS, *ega.CLAIMS)
}


def chosen(words: str) -> Sequence[Claim]:
  """Claims by identifier or by how it begins, comma-separated; `all`. In the order of the list.

  Raises UserError for a word that no claim begins with.
  """
  wanted = [word.strip() for word in words.split(',') if word.strip()]
  if not wanted:
    raise UserError(f"no claim in '{words}': expected identifiers such as ega-03, or all")
  found = set()
  for word in wanted:
    own = [name for name in CLAIMS if word == 'all' or name.startswith(word)]
    if not own:
      raise UserError(f"claim '{word}' is not known{nearest(word, CLAIMS)}")
    found.update(own)
  return [claim for name, claim in CLAIMS.items() if name in found]
