"""Evaluates the best checkpoint of the workdir on a split; writes eval.json."""

import json
from pathlib import Path

import numpy as np
from ml_collections import ConfigDict

from sgnjax import audit
from sgnjax import config as config_lib
from sgnjax.data import pipeline
from sgnjax.errors import UserError
from sgnjax.parallel.agree import first
from sgnjax.parallel.mesh import make_mesh, replicated
from sgnjax.train import objectives
from sgnjax.train.checkpoint import load_params
from sgnjax.train.evaluation import check_eval, describe, evaluate
from sgnjax.train.log import check_writable, write_atomically
from sgnjax.train.model import model_of
from sgnjax.train.step import make_eval_step
from sgnjax.train.tasks import Task

# What may differ from the run that is evaluated: nothing of the model or of its text.
FREE = ('eval.', 'train.', 'optim.', 'seed', 'allow_leak', 'init_from', *config_lib.RESUME_FREE)
FREE += ('model.classes',)  # which the data say


def run(config: ConfigDict, workdir: Path) -> int:
  import jax

  check_eval(config)
  trained, params, tokenizer, step = load_params(workdir)
  check_writable(workdir)
  changed = config_lib.differences(trained, config, FREE)
  if changed:
    raise UserError(
      f"workdir '{workdir}' was trained with another config ({', '.join(changed[:5])}); leave out "
      '--config to evaluate the one that it holds'
    )
  leaky = audit.gate(config, vocab=tokenizer.vocab_size).leaky
  corpus = pipeline.load(config)
  if corpus.tokenizer.to_json() != tokenizer.to_json():
    raise UserError(
      f"the text ({corpus.source}) has another vocabulary than that of workdir '{workdir}'"
    )
  mesh = make_mesh(config)
  params = jax.device_put(jax.tree.map(np.asarray, params), replicated(mesh))
  eval_step = make_eval_step(
    model_of({config.data.name: Task(config, corpus)}), mesh, objectives.of(config).sums
  )
  record = evaluate(config, corpus, eval_step, params, mesh, step)
  if leaky:
    record['leaky'] = True
  record['config_hash'] = config_lib.fingerprint(trained)
  if first():
    write_atomically(workdir / 'eval.json', json.dumps(record, indent=2) + '\n')
    print(describe(record, leaky))
  return 0
