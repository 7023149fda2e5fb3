"""The training loop: resumes by itself, never waits for the device, saves before it leaves."""

import collections
import contextlib
import json
import math
import time
from pathlib import Path

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from sgnjax import audit
from sgnjax import config as config_lib
from sgnjax.errors import UserError
from sgnjax.models import count
from sgnjax.parallel import feed
from sgnjax.parallel.agree import Votes, check_same, check_shared, first, of_first, wait_for_all
from sgnjax.parallel.hosts import say_when_lost
from sgnjax.parallel.mesh import make_mesh, row_shards
from sgnjax.train import learned, objectives, tasks
from sgnjax.train import state as state_lib
from sgnjax.train.before import check_same_run, check_settings, use_compile_cache
from sgnjax.train.boards import Boards
from sgnjax.train.checkpoint import Checkpoints, check_same_tokenizer, committed
from sgnjax.train.evaluation import describe, evaluate, interval, that_counts
from sgnjax.train.initial import start_from
from sgnjax.train.leave import Clock, Stop
from sgnjax.train.log import (
  JsonLines,
  Progress,
  Silent,
  check_writable,
  mark,
  note_start,
  read_records,
  write_atomically,
)
from sgnjax.train.model import model_of
from sgnjax.train.optim import make_optimiser
from sgnjax.train.step import check_batch, make_eval_step, make_train_step
from sgnjax.train.trace import Trace, check_profile
from sgnjax.train.words import introduction, last_saved, not_finite


def train(config: ConfigDict, workdir: str | Path, *, audited: audit.Report | None = None) -> dict:
  """Trains to `train.steps` steps, from the newest committed checkpoint of the workdir on.

  Returns `status` ('finished', 'wall time' or a signal's name), `signal` (its number or None),
  `step`, `leaky`, and `final`: the evaluation record that counts (`eval.pick` in protocol 'paper',
  else the last one), None before the first. A finished run returns at once.

  A resumed run is the straight one bit for bit: parameters, optimiser, batches and logged losses.

  audited: what `audit.gate` said of this very model, from a caller that trains it several times.

  Several processes (`sgnjax.parallel.hosts`) call this together, with one workdir; all return the
  same, and the first writes and prints for all.

  Raises UserError for a workdir that cannot be written or holds another run, for settings that
  cannot be, and for a loss that is not finite; LeakError when the audit fails.
  """
  started, workdir = time.monotonic(), Path(workdir)
  check_writable(workdir)
  check_same_run(config, workdir)
  check_settings(config)
  check_profile(config)
  optimiser = make_optimiser(config)
  check_shared(workdir)
  check_same(config=config_lib.fingerprint(config))
  if of_first(config.train.steps in committed(workdir)):
    records = read_records(workdir)
    leaky = any(r.get('leaky') for r in records)
    if first():
      print(f'{workdir} is finished: {config.train.steps} steps')
    return _result(config, 'finished', config.train.steps, records, leaky)
  mesh = make_mesh(config)
  check_batch(config, row_shards(mesh))
  if config.train.compile_cache:
    use_compile_cache()
  sets = tasks.load(config)
  corpus = sets[config.data.name].corpus
  check_same_tokenizer(workdir, corpus.tokenizer)
  check_same(**{'the text (data.*)': tasks.identity(sets)})
  model = model_of(sets)
  audited = audited or audit.gate(config, vocab=model.vocab)
  with contextlib.ExitStack() as stack:
    checkpoints = Checkpoints(workdir, config, corpus.tokenizer)
    stack.callback(checkpoints.close)
    say_when_lost(lambda: last_saved(workdir))
    if first():
      serialised = json.dumps(config_lib.serialise(config), indent=2)
      write_atomically(workdir / 'config.json', serialised + '\n')
      write_atomically(workdir / 'audit.json', json.dumps(audited.to_json(), indent=2) + '\n')
      write_atomically(workdir / 'tokenizer.json', json.dumps(corpus.tokenizer.to_json()) + '\n')
    run = _Run(config, workdir, sets, model, optimiser, mesh, checkpoints, audited.leaky)
    if first():
      note_start(workdir, run.step)
    for writer in (run.trace, run.jsonl, run.board, run.progress):
      stack.callback(writer.close)
    run.introduce()
    votes = Votes(mesh) if jax.process_count() > 1 else None
    return run.go(stack.enter_context(Stop(started, config.train.wall_minutes, votes)))


def _result(
  config: ConfigDict, status: str, step: int, records: list[dict], leaky: bool, number=None
) -> dict:
  final = that_counts(config, records)
  return {'status': status, 'signal': number, 'step': step, 'leaky': leaky, 'final': final}


class _Run:
  """One process's share of a run: the state, what is in flight, and where it is written."""

  def __init__(self, config, workdir, sets, model, optimiser, mesh, checkpoints, leaky):
    self.config, self.workdir, self.leaky = config, workdir, leaky
    self.sets, self.text = sets, tasks.identity(sets)
    self.corpus = sets[config.data.name].corpus
    self.mesh, self.checkpoints = mesh, checkpoints
    self.model, self.objective = model, objectives.of(config)
    self.rows = feed.rows(mesh, config.train.batch)
    self.part = self.rows.start, config.train.batch
    self.batches = tasks.batches(config, sets, self.rows)
    # All resume from what the first process sees: a network file system may show others less.
    self.resumed = of_first(checkpoints.latest or 0)
    self.best = min(checkpoints.scores.values(), default=math.inf)
    if not self.resumed:
      self.state = state_lib.create(config, model, optimiser, mesh)
      self.pending, step = [], 0
    else:
      abstract = state_lib.abstract(config, model, optimiser, mesh)
      self.state, data = checkpoints.restore(abstract, self.resumed)
      if data['text'] != self.text:
        raise UserError(
          f"the text ({self.corpus.source}) is not the one that '{workdir}' was trained on; resume "
          'with the same text, or use another --workdir=DIR'
        )
      self.batches.set_state(data['iterator'])
      self.pending, step = data['pending'], self.resumed
    self.step = step  # dispatched steps
    self.in_flight: collections.deque = collections.deque()
    self.clock, self.interval = Clock(), Clock()
    self.trace = Trace(config, workdir)
    self.jsonl = self.board = self.progress = Silent()
    if first():
      self.jsonl = JsonLines(workdir, step, leaky=leaky)
      self.board = Boards(config, workdir, step, leaky=leaky)
      self.progress = Progress(
        config.train.steps,
        step,
        show=config.train.progress,
        leaky=leaky,
        unit=f'{self.objective.unit}s'.replace('_', ' '),
      )
    self.train_step = make_train_step(model, optimiser, config, mesh, sets)
    self.eval_steps = {
      name: make_eval_step(model, mesh, objectives.of(task.config).sums, task.head)
      for name, task in sets.items()
    }
    self.learned = learned.reader(self.state.params)
    self.finite = jax.jit(
      lambda tree: jnp.all(jnp.stack([jnp.all(jnp.isfinite(a)) for a in jax.tree.leaves(tree)]))
    )

  def introduce(self) -> None:
    """Says what runs here, and takes the weights of `init_from` at the start of a run."""
    from clu import parameter_overview

    say = self.progress.say
    if self.resumed:
      say(f'resuming {self.workdir} from step {self.resumed}')
    elif self.config.init_from is not None:
      params, lines = start_from(self.config, self.corpus.tokenizer, self.state.params)
      # Copies: the step consumes each array, and one array cannot be two.
      average = self.state.average and jax.tree.map(jnp.copy, params)
      self.state = self.state.replace(params=params, average=average)
      say('\n'.join(lines))
    total = count(self.model, self.state.params)
    if first():
      table = parameter_overview.get_parameter_overview(self.state.params, include_stats=False)
      write_atomically(
        self.workdir / 'parameters.txt',
        f'{table}\nWithout the padding of the vocabulary: {total:,}\n',
      )
    for line in introduction(self.config, self.sets, self.mesh, total, self.leaky):
      say(line)

  def go(self, stop: Stop) -> dict:
    """Steps until the end or a reason to leave."""
    c, reason, self.stop = self.config.train, None, stop
    while self.step < c.steps and reason is None:
      batch = tasks.place(next(self.batches), self.sets, self.mesh, *self.part)
      self.trace.before(self.step + 1)
      self.state, metrics = self.train_step(self.state, batch)
      self.step += 1
      self.in_flight.append((self.step, metrics, stop.vote()))
      self.trace.after(self.step, metrics)
      self.collect(1)  # the step before; this one is on the device
      last = self.step == c.steps
      validation = None
      if last or self.step % c.eval_every == 0:
        validation = self.evaluate()
      reason = None if last else stop.reason
      best = validation is not None and validation < self.best
      if last or reason or self.step % c.checkpoint_every == 0 or best:
        self.save(validation)
    self.checkpoints.wait()
    wait_for_all('the last record is written')
    records = read_records(self.workdir)
    if reason is None:
      return _result(self.config, 'finished', self.step, records, self.leaky)
    self.progress.say(
      f'{reason}: saved step {self.step} of {c.steps}; the same command resumes from there'
    )
    return _result(self.config, reason, self.step, records, self.leaky, stop.signal)

  def collect(self, leave: int) -> None:
    """Reads the metrics of finished steps, all but the newest `leave`, and what was voted there."""
    while len(self.in_flight) > leave:
      step, metrics, vote = self.in_flight.popleft()
      self.stop.hear(vote)
      found = {k: v.item() for k, v in jax.device_get(metrics).items()}
      if not (math.isfinite(found['loss']) and math.isfinite(found['grad_norm'])):
        said = f'loss {found["loss"]}, gradient norm {found["grad_norm"]}{mark(self.leaky)}'
        self._not_finite(step, said)
      self.pending.append(found)
      for clock in (self.clock, self.interval):
        clock.tick(found['tokens'])
      rate = self.clock.rate()
      left = rate['step_seconds'] * (self.config.train.steps - step) if rate else None
      self.progress.update(step, found['loss'], rate.get('tokens_per_second'), left)
      if step % self.config.train.log_every == 0 or step == self.config.train.steps:
        self.log(step)

  def _not_finite(self, step: int, what: str) -> None:
    self.checkpoints.wait()
    raise not_finite(self.config, self.workdir, step, self.checkpoints.latest, what)

  def log(self, step: int) -> None:
    """Writes the record of the interval that ends with `step`."""
    values = interval(self.config, self.corpus, self.pending, self.interval.rate())
    unit = f'{self.objective.unit}s'
    scored = sum(p['tokens'] for p in self.pending)
    losses = [p['loss'] for p in self.pending]
    self.jsonl.write({'step': step, 'kind': 'train', unit: scored, **values, 'losses': losses})
    self.board.write(step, 'train', values)
    self.pending = []
    self.interval.restart()

  def evaluate(self) -> float:
    """Evaluates the newest state on every set, writes the records, returns the main set's loss."""
    self.collect(0)
    main = self.config.data.name
    for name, task in self.sets.items():
      record = evaluate(
        task.config, task.corpus, self.eval_steps[name], self.state.evaluated, self.mesh, self.step
      )
      if not math.isfinite(record['loss']):
        self._not_finite(self.step, f'{record["split"]} loss {record["loss"]}{mark(self.leaky)}')
      if name == main:
        loss = record['loss']
        if found := self.learned(self.state.evaluated):
          record['learned'] = found
      else:
        record |= {'kind': 'mixture', 'set': name}
      self.jsonl.write(record)
      numbers = {k: v for k, v in record.items() if isinstance(v, float)}
      group = record['split'] if name == main else f'{record["split"]}/{name}'
      self.board.write(self.step, group, numbers)
      if name != main or self.step < self.config.train.steps:  # the job says the last one
        self.progress.say(('' if name == main else f'{name}, ') + describe(record, self.leaky))
    for clock in (self.clock, self.interval):
      clock.resume()
    return loss

  def save(self, validation: float | None) -> None:
    """Starts a checkpoint of the newest state, which must be finite."""
    self.collect(0)
    if not self.finite((self.state.params, self.state.opt_state)):
      self._not_finite(self.step, 'its update overflows')
    data = {
      'iterator': self.batches.get_state(),
      'pending': self.pending,
      'text': self.text,
    }
    self.checkpoints.save(self.state, data, validation)
    self.best = min(self.best, math.inf if validation is None else validation)
    for clock in (self.clock, self.interval):
      clock.resume()
