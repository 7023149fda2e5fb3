"""Exports the best checkpoint of the workdir, after the audit: weights, programs, a model card."""

from pathlib import Path

import jax
import numpy as np
from ml_collections import ConfigDict

from sgnjax import audit
from sgnjax.export import card, programs, weights
from sgnjax.jobs.language import check_same_model
from sgnjax.models import build
from sgnjax.train.checkpoint import load_params
from sgnjax.train.log import mark


def run(config: ConfigDict, workdir: Path) -> int:
  """Writes the folder, tries the forward program here, and prints what there is."""
  trained, params, tokenizer, step = load_params(workdir)
  check_same_model(workdir, trained, config, 'export')
  model = build(trained, vocab=tokenizer.vocab_size)
  folder = Path(config.export.folder or Path(workdir) / 'export')
  if config.export.programs:
    programs.check(config, model)
  report = audit.gate(config, vocab=tokenizer.vocab_size)
  weights.save(folder, trained, params, tokenizer, step)
  written = {}
  if config.export.programs:
    with trained.unlocked():
      trained.export = config.export
    written = programs.save(folder, trained, model, params)
    print(f'forward, run from its file: {_tried(folder, trained, model, params)}')
  card.write(folder, workdir, trained, model, params, tokenizer, step, report, written)
  for path in sorted(folder.iterdir()):
    print(f'{path}  {path.stat().st_size:,} bytes')
  print(f'--- step {step}{mark(report.leaky)}; sgnjax.load({str(folder)!r}) reads it back')
  return 0


def _tried(folder: Path, config: ConfigDict, model, params) -> str:
  """How far the forward program is from the model, on random inputs."""
  if jax.default_backend() not in [p.replace('cuda', 'gpu') for p in config.export.platforms]:
    return f'not here, where {jax.default_backend()} is'
  rng, rows = np.random.default_rng(0), config.export.batch or 2
  if config.model.image is not None:
    inputs = rng.random((rows, *config.model.image), np.float32)
  else:
    inputs = rng.integers(0, model.vocab, (rows, config.model.context), np.int32)
  raw = bytearray((folder / f'forward{programs.ENDING}').read_bytes())
  found = np.asarray(jax.export.deserialize(raw).call(weights.flat(params), inputs))
  expected = np.asarray(jax.jit(programs.forward(model))(weights.flat(params), inputs))
  scale = np.max(np.abs(expected)) or 1.0
  return f'logits within {np.max(np.abs(found - expected)) / scale:.1e} of the model'
