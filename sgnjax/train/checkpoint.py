"""Checkpoints: Orbax, and nowhere else. Everything that a run needs lies in each of them.

`workdir/checkpoints/<step>/` holds `params` (arrays), `state` (step and optimiser, arrays), `data`
(where the input and the log were, JSON), `config` and `tokenizer` (JSON), so that weights are read
without an optimiser and without the run's own files. With `train.ema` it holds `average` too, the
averaged parameters, which are then what is read for all uses but going on.
"""

import json
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import jax
from jax.sharding import SingleDeviceSharding
from ml_collections import ConfigDict
from orbax.checkpoint import v1 as ocp

from sgnjax import config as config_lib
from sgnjax.data import tokenizers
from sgnjax.errors import UserError
from sgnjax.parallel.agree import first, wait_for_all
from sgnjax.train.state import TrainState

AVERAGE = 'average'
TREES, JSON = ('params', 'state'), ('data', 'config', 'tokenizer')


class Restored(NamedTuple):
  """A training state, and what `Checkpoints.save` was given as `data` beside it."""

  state: TrainState
  data: dict


def folder(workdir: str | Path) -> Path:
  """Where a run keeps its checkpoints."""
  return Path(workdir).absolute() / 'checkpoints'


def committed(workdir: str | Path) -> list[int]:
  """Steps whose checkpoints are whole, in order. One that was cut off by a kill is none."""
  root = folder(workdir)
  return sorted(int(p.name) for p in root.glob('*') if p.name.isdigit() and _whole(p))


def _whole(path: Path) -> bool:
  try:
    metadata = json.loads((path / '_CHECKPOINT_METADATA').read_text())
  except (OSError, ValueError):
    return False
  return bool(metadata.get('commit_timestamp_nsecs')) and all(
    (path / item).is_dir() for item in TREES + JSON
  )


def _scores(workdir: str | Path) -> dict[int, float]:
  """Validation loss of each committed step that was saved with one, nats/token."""
  found = {}
  for step in committed(workdir):
    path = folder(workdir) / str(step) / 'metrics' / 'metrics'
    if path.is_file():
      found[step] = json.loads(path.read_text())['loss']
  return found


def best_step(workdir: str | Path) -> int | None:
  """The committed step of lowest validation loss; without any evaluation, the newest."""
  found = _scores(workdir)
  if found:
    return min(found, key=found.get)
  return max(committed(workdir), default=None)


def check_same_tokenizer(workdir: str | Path, tokenizer: Any) -> None:
  """Raises UserError where a run would go on with other tokens behind the same ids."""
  path = Path(workdir) / 'tokenizer.json'
  if not (committed(workdir) and path.is_file()):
    return
  if json.loads(path.read_text(encoding='utf-8')) != tokenizer.to_json():
    raise UserError(
      f"the text has another vocabulary than when '{workdir}' was trained on it; resume with the "
      'same text, or use another --workdir=DIR'
    )


def _context(*, alone: bool = False) -> ocp.Context:
  """alone: for what this process does whether or not the others do it too."""
  registry = ocp.handlers.local_registry(include_global_registry=True)
  for name in JSON:
    registry.add(ocp.handlers.JsonHandler, checkpointable_name=name)
  context = ocp.Context()
  context.checkpointables.registry = registry
  if alone:
    context.multiprocessing.primary_host = jax.process_index()
    context.multiprocessing.active_processes = {jax.process_index()}
  return context


class Checkpoints:
  """The checkpoints of one run: the newest `train.keep` and the best by validation loss stay.

  Saving is asynchronous: the arrays are copied, then written while training goes on. `close` waits.
  Opening removes what a kill left half-written. Several processes open, save, restore and close
  together; each writes what its devices hold, into one folder.
  """

  def __init__(self, workdir: str | Path, config: ConfigDict, tokenizer: Any):
    if config.train.keep < 1:
      raise UserError(f'train.keep={config.train.keep}: expected at least 1')
    self._workdir = Path(workdir)
    self._fixed = {
      'config': config_lib.serialise(config),
      'tokenizer': tokenizer.to_json(),
    }
    if first():
      whole = set(committed(workdir))
      for path in folder(workdir).glob('*'):
        if path.name.isdigit() and int(path.name) not in whole:
          shutil.rmtree(path)
    wait_for_all('half-written checkpoints are gone')
    policies = ocp.training.preservation_policies
    self._checkpointer = ocp.training.Checkpointer(
      folder(workdir),
      context=_context(),
      preservation_policy=policies.AnyPreservationPolicy(
        [
          policies.LatestN(config.train.keep),
          policies.BestN(
            get_metric_fn=lambda metrics: metrics['loss'],
            reverse=True,
            n=1,
            keep_checkpoints_without_metrics=False,
          ),
        ]
      ),
      cleanup_tmp_directories=True,
    )

  @property
  def latest(self) -> int | None:
    """The newest committed step."""
    latest = self._checkpointer.latest
    return latest.step if latest else None

  @property
  def scores(self) -> dict[int, float]:
    """Validation loss of each kept step that was saved with one, nats/token."""
    return {c.step: c.metrics['loss'] for c in self._checkpointer.checkpoints if c.metrics}

  @property
  def best(self) -> int | None:
    """The committed step of lowest validation loss, the newest where none was evaluated."""
    scores = self.scores
    return min(scores, key=scores.get) if scores else self.latest

  def save(self, state: TrainState, data: dict, validation: float | None = None) -> None:
    """Saves `state` under its own step, beside `data` (JSON values); returns before it is written.

    validation: loss of this very state, nats/token.
    """
    step = int(state.step)
    items = {'params': state.params, 'state': {'step': state.step, 'opt_state': state.opt_state}}
    if state.average is not None:
      items[AVERAGE] = state.average
    self._checkpointer.save_checkpointables_async(
      step,
      items | {'data': data} | self._fixed,
      force=True,
      metrics=None if validation is None else {'loss': float(validation)},
    )

  def restore(self, abstract: TrainState, step: int | None = None) -> Restored:
    """The state of `step` (the newest), with the shardings of the abstract tree, on any devices."""
    items = {
      'params': abstract.params,
      'state': {'step': abstract.step, 'opt_state': abstract.opt_state},
      'data': None,
    }
    if abstract.average is not None:
      items[AVERAGE] = abstract.average
    found = self._checkpointer.load_checkpointables(self.latest if step is None else step, items)
    state = TrainState(params=found['params'], average=found.get(AVERAGE), **found['state'])
    return Restored(state, found['data'])

  def wait(self) -> None:
    """Waits until what was saved is committed."""
    self._checkpointer.wait()

  def close(self) -> None:
    """Waits, and lets go of the folder."""
    self._checkpointer.close()


def load_params(workdir: str | Path, which: str | int = 'best') -> tuple[ConfigDict, Any, Any, int]:
  """`(config, params, tokenizer, step)` of a run, on this process's first device.

  The number of classes that the data had is in the config.

  which: 'best' (by validation loss), 'latest', or a step. Needs neither the optimiser nor the
  devices of the run. Raises UserError where there is no such checkpoint.
  """
  steps = committed(workdir)
  if not steps:
    raise UserError(f"workdir '{workdir}' holds no checkpoint; train first (--job=train)")
  step = {'best': best_step(workdir), 'latest': steps[-1]}.get(which, which)
  if step not in steps:
    raise UserError(
      f"workdir '{workdir}' holds no checkpoint {which}; choose best, latest or {steps}"
    )
  path = folder(workdir) / str(step)
  with _context(alone=True):
    found = ocp.load_checkpointables(path, {'config': None, 'tokenizer': None})
    config = config_lib.deserialise(found['config'])
    tokenizer = tokenizers.from_json(found['tokenizer'])
    here = SingleDeviceSharding(jax.local_devices()[0])
    kind = AVERAGE if (path / AVERAGE).is_dir() else 'params'
    shapes = ocp.checkpointables_metadata(path).metadata[kind]
    abstract = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=here), shapes)
    params = ocp.load_checkpointables(path, {kind: abstract})[kind]
  if config.data.task == 'classify' and config.model.classes is None:
    with config.unlocked():
      config.model.classes = params['classifier']['kernel'].shape[-1]
  return config, params, tokenizer, step
