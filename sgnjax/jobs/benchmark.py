"""How fast the config's training step is here, or the parts that `benchmark.parts` names."""

import json
from pathlib import Path

import jax
from ml_collections import ConfigDict

from sgnjax import config as config_lib
from sgnjax.analysis import benchmark
from sgnjax.analysis.benchmark import page, settings, step
from sgnjax.errors import UserError, check_choice
from sgnjax.jobs.plan import ASSUMED
from sgnjax.parallel.agree import first
from sgnjax.train.log import check_writable, write_atomically


def run(config: ConfigDict, workdir: Path) -> int:
  """Prints what it measures, and writes it to benchmark.json (and .md) in the workdir."""
  asked, workdir = settings.of(config), Path(workdir)
  sections = benchmark.chosen(asked.parts)
  if sections and jax.process_count() > 1:
    raise UserError(
      f"benchmark.parts={config.benchmark.parts} runs in one process; several measure 'step' alone"
    )
  check_writable(workdir)
  if settings.STEP in asked.parts:
    found = measure(config, repeats=asked.repeats)
    if first():
      # Sections that were measured before stay.
      kept = {k: v for k, v in page.read(workdir / benchmark.FILE).items() if k == 'sections'}
      write_atomically(workdir / benchmark.FILE, json.dumps(found | kept, indent=2) + '\n')
      print(step.describe(found))
  if sections:
    benchmark.run(asked, workdir)
    print('\n' + (workdir / 'benchmark.md').read_text(encoding='utf-8'))
  return 0


def measure(config: ConfigDict, *, repeats: int, size: int | None = None) -> dict:
  """The config's step (`step.measure`); no data are read for its vocabulary and classes."""
  twin = config.copy_and_resolve_references().unlock()
  check_choice('data.tokenizer', config.data.tokenizer, ASSUMED)
  twin.model.vocab = config.model.vocab or ASSUMED[config.data.tokenizer]
  if config.data.task == 'classify':
    twin.model.classes = config.model.classes or 2
  found = step.measure(twin, repeats=repeats, size=size)
  return found | {'config_hash': config_lib.fingerprint(config)}
