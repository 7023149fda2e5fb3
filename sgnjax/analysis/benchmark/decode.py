"""Generation, a token at a time with its cache."""

from collections.abc import Iterator, Sequence

from sgnjax.analysis import decoding
from sgnjax.analysis.benchmark import scaffold
from sgnjax.analysis.benchmark.page import Row
from sgnjax.analysis.benchmark.settings import Settings


def tokens(
  settings: Settings,
  *,
  lengths: Sequence[int] = (256, 4096),
  steps: int = 128,
  repeats: int = 3,
  layers: int = 3,
  width: int = 64,
) -> Iterator[Row | str]:
  """Tokens a second with a cache

  Greedy steps in one compiled loop, by `sgnjax.analysis.decoding`: one row, 3 layers, width 64, 4
  heads; a step costs what its cache has room for, the context. Worst: of a schedule whose steps
  differ."""
  config = scaffold.config('softmax', context=256, batch=1, layers=layers, width=width, heads=4)
  del settings  # best of a few runs, as that page says
  for kind, context, timed in decoding.measure(
    config, tuple(lengths), steps=steps, repeats=repeats
  ):
    yield {
      'mixer': kind,
      'context': context,
      'us a token': 1e6 * timed.mean,
      'tokens/s': 1 / timed.mean,
      'worst step, ms': None if timed.worst is None else 1e3 * timed.worst,
      'cache, MiB': timed.cache_bytes / 2**20,
    }


SECTIONS = {'tokens': tokens}
