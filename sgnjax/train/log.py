"""What a run leaves to read: metrics.jsonl, TensorBoard event files, and lines on the screen.

A line of metrics.jsonl is one of two records, both with `step` (finished steps) and `kind`:

`train`, one an interval of `log_every` steps: `loss` (nats/token over the interval, weighted by
tokens), `losses` (of each of its steps, exactly as computed), `perplexity`, `bits_per_byte`,
`tokens`, `lr` and `grad_norm` (last step), `tokens_per_second` and `step_seconds` (absent before
the second step of a process; pauses left out), and the model's own metrics (interval mean).

`evaluation`: `split`, `protocol`, `stride` (fresh tokens a window, where windows slide), `loss`,
`perplexity`, `word_perplexity` (of a text in words, under tokens that are none), `bits_per_byte`,
`bits_per_character`, `tokens`, `unigram` and `unigram_bits_per_byte` (of token frequencies alone);
`learned`: mean, lowest and highest of what mechanisms learn (`sgnjax.train.learned`).

Tasks mlm, recall and classify: `masked_tokens`, `asked_tokens` or `examples` in place of `tokens`,
in rates too; `accuracy` in place of perplexity and bits; an evaluation of classify has what
`sgnjax.train.objectives.tell_labels` tells.

A mixture has, beside those of its main set, records of `kind` mixture for each other `set`, and
`<set>/loss` and `<set>/accuracy` in its train records: means over the steps that had the set.

A run that sees the future has `"leaky": true` in every record.

A line of starts.jsonl tells where and with what code the run began or went on: `step` (finished by
then), `time` (UTC), `commit` (null outside a clone), `argv`, `processes`, `device`, `machine` and
`versions`, as in `sgnjax.machine`.
"""

import json
import os
import sys
import time
from importlib.metadata import version
from pathlib import Path

import jax

from sgnjax import machine
from sgnjax.errors import UserError

LEAKY = ' LEAKY'
METRICS, STARTS = 'metrics.jsonl', 'starts.jsonl'
PACKAGES = ('jaxlib', 'flax', 'optax', 'orbax-checkpoint', 'grain', 'numpy')


def mark(leaky: bool) -> str:
  """What stands beside every number of a run that sees the future."""
  return LEAKY if leaky else ''


def write_atomically(path: str | Path, text: str) -> None:
  """Replaces a file in one move, so that no reader meets half of it."""
  path = Path(path)
  part = path.with_name(f'.{path.name}.part')
  part.write_text(text, encoding='utf-8')
  os.replace(part, path)


def read_records(workdir: str | Path, name: str = METRICS) -> list[dict]:
  """The records of a file of the run; a line cut short by a kill ends them."""
  path = Path(workdir) / name
  records = []
  for line in path.read_text(encoding='utf-8').splitlines() if path.is_file() else []:
    try:
      records.append(json.loads(line))
    except json.JSONDecodeError:
      break
  return records


def note_start(workdir: Path, step: int) -> None:
  """Adds a line to starts.jsonl: where and with what code the run goes on from this step."""
  where = machine.machine()
  where['versions'] |= {name: version(name) for name in PACKAGES}
  record = {
    'step': step,
    'time': time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime()),
    'commit': machine.commit(),
    'argv': sys.argv,
    'processes': jax.process_count(),
    **where,
  }
  lines = [json.dumps(start) + '\n' for start in (*read_records(workdir, STARTS), record)]
  write_atomically(workdir / STARTS, ''.join(lines))


class JsonLines:
  """Appends records to metrics.jsonl; what lies beyond step `keep_until` is forgotten first."""

  def __init__(self, workdir: Path, keep_until: int, *, leaky: bool = False):
    kept = [r for r in read_records(workdir) if r['step'] <= keep_until]
    path = workdir / METRICS
    write_atomically(path, ''.join(json.dumps(r) + '\n' for r in kept))
    self._file = path.open('a', encoding='utf-8')
    self._leaky = leaky

  def write(self, record: dict) -> None:
    """Adds one record; numbers must be finite."""
    record = record | ({'leaky': True} if self._leaky else {})
    self._file.write(json.dumps(record, allow_nan=False) + '\n')
    self._file.flush()

  def close(self) -> None:
    self._file.close()


class Silent:
  """In place of any writer here, on the processes that leave writing to the first."""

  def write(self, *_) -> None:
    pass

  update = say = close = write


class TensorBoard:
  """Event files under workdir/tensorboard; a resumed run hides what came after its step.

  The writer is made when there is something to write: its import takes a second, in which the
  device is busy by then.
  """

  def __init__(self, workdir: Path, step: int, *, leaky: bool = False):
    self._folder, self._step, self._writer = str(workdir / 'tensorboard'), step, None
    self._suffix = mark(leaky).replace(' ', '_')  # tags have no blanks

  def write(self, step: int, group: str, values: dict[str, float]) -> None:
    """Adds each value as the scalar `group/key` at `step`."""
    if self._writer is None:
      from tensorboardX import SummaryWriter

      self._writer = SummaryWriter(self._folder, purge_step=self._step + 1)
    for key, value in values.items():
      self._writer.add_scalar(f'{group}/{key}{self._suffix}', value, step)

  def close(self) -> None:
    if self._writer is not None:
      self._writer.close()


class Progress:
  """Where the run is, its rate and the time left: a bar on a terminal, else a line now and then."""

  EVERY = 5.0  # seconds between plain lines

  def __init__(
    self, steps: int, step: int, *, show: bool = True, leaky: bool = False, unit: str = 'tokens'
  ):
    self._unit = unit
    self._steps, self._suffix = steps, mark(leaky)
    self._show, self._bar, self._last = show, None, 0.0
    if show and sys.stdout.isatty():
      from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

      self._bar = Progress(
        BarColumn(), MofNCompleteColumn(), TextColumn('{task.description}'), refresh_per_second=4
      )
      self._task = self._bar.add_task('compiling', total=steps, completed=step)
      self._bar.start()

  def update(self, step: int, loss: float, tokens_per_second: float | None, left: float | None):
    """Shows a finished step; `left`: seconds to the end, None while nobody knows."""
    now = time.monotonic()
    if not self._show:
      return
    text = f'loss {loss:.4f}{self._suffix}'
    if tokens_per_second is not None:
      text += f'  {tokens_per_second:,.0f} {self._unit}/s{self._suffix}'
    if left is not None:
      text += f'  {duration(left)} left'
    if self._bar is not None:
      self._bar.update(self._task, completed=step, description=text)
    elif now - self._last >= self.EVERY or step == self._steps:
      self._last = now
      print(f'step {step}/{self._steps}  {text}', flush=True)

  def say(self, line: str) -> None:
    """Prints a line of its own, above the bar where there is one."""
    if self._bar is not None:
      self._bar.console.print(line, highlight=False, markup=False, soft_wrap=True)
    else:
      print(line, flush=True)

  def close(self) -> None:
    if self._bar is not None:
      self._bar.stop()


def duration(seconds: float) -> str:
  """`75` -> `1:15`, `4000` -> `1:06:40`."""
  minutes, rest = divmod(round(seconds), 60)
  hours, minutes = divmod(minutes, 60)
  return f'{hours}:{minutes:02d}:{rest:02d}' if hours else f'{minutes}:{rest:02d}'


def check_writable(workdir: Path) -> None:
  """Makes the folder and tries to write in it. Raises UserError."""
  probe = workdir / f'.write-test-{os.uname().nodename}-{os.getpid()}'
  try:
    workdir.mkdir(parents=True, exist_ok=True)
    probe.write_text('')
    probe.unlink()
  except OSError as error:
    raise UserError(
      f"workdir '{workdir}' cannot be written ({error.strerror}); name another with --workdir=DIR"
    ) from None
