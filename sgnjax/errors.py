"""The error of a user's mistake: shown as one or two lines, never as a traceback."""

import difflib
from collections.abc import Iterable
from pathlib import Path


class UserError(Exception):
  """Names what was given, what was expected and the nearest right choice; exit status 2."""


class LeakError(UserError):
  """A language model sees the future, and `allow_leak` is not set; exit status 3."""


def nearest(given: str, choices: Iterable[str]) -> str:
  """The end of an error message: `; did you mean 'sgn'?` or the list of choices."""
  choices = [str(c) for c in choices]
  close = difflib.get_close_matches(str(given), choices, n=1, cutoff=0.5)
  if close:
    return f"; did you mean '{close[0]}'?"
  return f'; choose one of: {", ".join(choices)}'


def nearest_path(given: str | Path) -> str:
  """The end of a message on a path that is not there: the one most like it beside, or nothing."""
  given = Path(given)
  beside = [p.name for p in given.parent.iterdir()] if given.parent.is_dir() else []
  close = difflib.get_close_matches(given.name, beside, n=1, cutoff=0.7)
  return f"; did you mean '{given.parent / close[0]}'?" if close else ''


def check_choice(what: str, given, choices: Iterable[str]) -> None:
  """Raises UserError unless `given` is one of `choices`."""
  choices = list(choices)
  if given not in choices:
    raise UserError(f"{what} '{given}' is not known{nearest(given, choices)}")
