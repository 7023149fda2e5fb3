"""How SGN grows with the length, and what the training loop adds to its steps."""

import contextlib
import io
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from sgnjax import config as config_lib
from sgnjax.analysis.benchmark import scaffold, timing
from sgnjax.analysis.benchmark.page import Row
from sgnjax.analysis.benchmark.settings import Settings
from sgnjax.analysis.benchmark.step import Bare
from sgnjax.analysis.scaling.law import fit
from sgnjax.train.log import read_records


def lengths(settings: Settings, **sizes: Any) -> Iterator[Row | str]:
  """SGN's time and memory against the length

  Training steps of gated causal SGN on one row of so many tokens, its context; the exponent e of
  `length^e` by least squares of logarithms over all rows, with a 95 % interval. Memory: what the
  compiled step takes at its peak, parameters and optimiser among it, and its temporaries alone."""
  found = []
  for length in settings.lengths:
    bare = Bare(scaffold.config('sgn', context=length, batch=1, **sizes))
    peak, room = bare.program.peak, timing.room()
    row: Row = {'length': length, 'peak MiB': peak / 2**20}
    if peak > 0.9 * room:
      yield row | {'ms a step': None, 'note': f'not run: {room / 2**20:,.0f} MiB are free'}
      continue
    took = timing.interleaved({'step': bare.ready()}, settings.repeats, settings.seconds)
    found.append((length, took['step'], peak, bare.program.temporaries))
    yield row | {
      'temporaries MiB': bare.program.temporaries / 2**20,
      'ms a step': 1e3 * took['step'],
      'tokens/s': length / took['step'],
      'rounds': took.count,
    }
    del bare  # before the next is made
  if len(found) > 1:
    xs, *ys = zip(*found, strict=True)
    for what, y in zip(('time', 'peak memory', 'temporaries'), ys, strict=True):
      yield f'Exponent of {what}: {fit(xs, y)}; aim: at most 1.1.'


def loop(
  settings: Settings,
  *,
  names: Sequence[str] = ('softmax',),
  steps: int = 30,
  context: int = 256,
  runs: int = 2,
  **sizes: Any,
) -> Iterator[Row | str]:
  """What the training loop adds

  Seconds a step of `--job=train` on the text inside Python itself (median of its log intervals, as
  it writes them), against the bare compiled step on random tokens; runs of both take turns."""
  from sgnjax.train.loop import train

  for name in names:
    every = max(1, steps // 6)
    # No vocabulary is set: `train` takes it from the text, and the bare step then has the same.
    model = scaffold.SIZES | sizes | {'mixer': name, 'context': context, 'vocab': 'none'}
    own = {'batch': scaffold.TOKENS // context, 'steps': steps, 'log_every': every}
    own |= {'eval_every': steps, 'checkpoint_every': steps}
    changes = ['mesh.data=1', 'optim.warmup=1', 'eval.protocol=paper', 'eval.batches=1']
    changes += ['train.progress=false', 'train.compile_cache=false']
    changes += [f'model.{key}={value}' for key, value in model.items()]
    changes += [f'train.{key}={value}' for key, value in own.items()]
    config = config_lib.load(config_lib.CONFIGS / 'quickstart.py', changes)
    bare, looped, inside = None, [], []
    for _ in range(runs):
      with tempfile.TemporaryDirectory() as folder:
        with contextlib.redirect_stdout(io.StringIO()):
          train(config, Path(folder) / 'run')
        records = read_records(Path(folder) / 'run')
      own = [r['step_seconds'] for r in records if r['kind'] == 'train' and 'step_seconds' in r]
      looped += own[1:] or own
      if bare is None:
        twin = config.copy_and_resolve_references().unlock()
        twin.model.vocab = _vocabulary(config)
        bare = Bare(twin)
      took = timing.interleaved({'bare': bare}, len(own) * every, settings.seconds)
      inside.append(took['bare'])
    yield {
      'mixer': name,
      'bare step, ms': 1e3 * median(inside),
      'in the loop, ms': 1e3 * median(looped),
      'loop adds, %': 100 * (median(looped) / median(inside) - 1),
      'aim, %': 3,
      'runs': runs,
      'steps a run': steps,
    }
  yield scaffold.words(config)


def _vocabulary(config) -> int:
  from sgnjax.data import pipeline

  return pipeline.load(config).tokenizer.vocab_size


SECTIONS = {'lengths': lengths, 'loop': loop}
