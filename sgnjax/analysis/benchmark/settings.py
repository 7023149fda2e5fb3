"""What `config.benchmark` asks for, checked before anything is measured."""

from dataclasses import dataclass

from ml_collections import ConfigDict

from sgnjax.errors import UserError

STEP, ALL = 'step', 'all'  # beside names of parts and sections


@dataclass(frozen=True)
class Settings:
  """repeats: rounds of a comparison; seconds: after which it begins no further one (3 are taken).

  lengths: tokens of the tables over the length. contexts: tokens at which a mixer is compared with
  attention. config: the run's own, which the parts `step` and `gpu` measure.
  """

  config: ConfigDict
  parts: tuple[str, ...]
  repeats: int
  seconds: float
  lengths: tuple[int, ...]
  contexts: tuple[int, ...]
  page: str | None
  resume: bool


def of(config: ConfigDict) -> Settings:
  """The settings. Raises UserError for values that cannot be."""
  if 'benchmark' not in config:
    raise UserError(
      "the config has no group 'benchmark', as one of an older version; name it by --config=FILE"
    )
  b = config.benchmark
  found = Settings(
    config=config,
    parts=tuple(word.strip() for word in b.parts.split(',') if word.strip()),
    repeats=b.repeats,
    seconds=b.seconds,
    lengths=tuple(b.lengths),
    contexts=tuple(b.contexts),
    page=b.page,
    resume=b.resume,
  )
  if not found.parts:
    raise UserError("benchmark.parts is empty: expected 'step', 'all', or names of parts")
  if found.repeats < 1:
    raise UserError(f'benchmark.repeats={found.repeats}: expected at least 1')
  if not found.seconds > 0:
    raise UserError(f'benchmark.seconds={found.seconds}: expected more than 0')
  for key in ('lengths', 'contexts'):
    values = getattr(found, key)
    if not values or any(type(n) is not int or n < 2 for n in values):
      raise UserError(f'benchmark.{key}={values}: expected whole numbers of tokens, from 2')
  return found
