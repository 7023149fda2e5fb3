import json
import os
import signal
import time

import pytest

from sgnjax.train.leave import Clock, Stop
from sgnjax.train.log import JsonLines, Progress, duration, read_records, write_atomically


def test_a_resumed_log_forgets_what_came_after(tmp_path):
  log = JsonLines(tmp_path, 0)
  for step in (4, 8, 12):
    log.write({'step': step, 'loss': 0.1 * step})
  log.close()
  with (tmp_path / 'metrics.jsonl').open('a') as file:
    file.write('{"step": 16, "lo')  # cut off by a kill
  assert [r['step'] for r in read_records(tmp_path)] == [4, 8, 12]
  log = JsonLines(tmp_path, 8, leaky=True)
  log.write({'step': 12})
  log.close()
  lines = [json.loads(line) for line in (tmp_path / 'metrics.jsonl').read_text().splitlines()]
  assert [r['step'] for r in lines] == [4, 8, 12]
  assert lines[1] == {'step': 8, 'loss': 0.8}
  assert lines[2]['leaky'] is True


def test_numbers_that_are_not_finite_are_not_logged(tmp_path):
  log = JsonLines(tmp_path, 0)
  with pytest.raises(ValueError, match='JSON'):
    log.write({'step': 1, 'loss': float('nan')})
  log.close()


def test_a_file_is_replaced_in_one_move(tmp_path):
  path = tmp_path / 'a.json'
  write_atomically(path, 'old')
  write_atomically(path, 'new')
  assert path.read_text() == 'new'
  assert list(tmp_path.iterdir()) == [path]


def test_plain_progress(capsys):
  progress = Progress(10, 0, leaky=True)
  progress.update(1, 2.5, None, None)
  progress.update(2, 2.4, 1e4, 75)  # too soon after the last line
  progress.update(10, 2.3, 12345.6, 0)
  progress.close()
  lines = capsys.readouterr().out.splitlines()
  assert lines == [
    'step 1/10  loss 2.5000 LEAKY',
    'step 10/10  loss 2.3000 LEAKY  12,346 tokens/s LEAKY  0:00 left',
  ]
  Progress(10, 0, show=False).update(10, 2.3, None, None)
  assert capsys.readouterr().out == ''


def test_durations():
  assert [duration(s) for s in (0, 75.4, 3599.6, 4000)] == ['0:00', '1:15', '1:00:00', '1:06:40']


def test_the_clock_leaves_out_the_first_step_and_pauses():
  clock = Clock()
  clock.tick(100)
  assert clock.rate() == {}
  clock.tick(100)
  time.sleep(0.2)  # an evaluation
  clock.resume()
  clock.tick(100)
  assert (clock.tokens, clock.steps) == (200, 2)
  assert clock.seconds < 0.1
  clock.restart()
  assert clock.rate() == {}


def test_a_signal_is_a_reason_and_handlers_come_back():
  before = signal.getsignal(signal.SIGINT)
  with Stop(time.monotonic(), None) as stop:
    assert stop.reason is None
    os.kill(os.getpid(), signal.SIGINT)
    assert stop.reason == 'SIGINT'
  assert signal.getsignal(signal.SIGINT) is before


def test_wall_time_is_a_reason():
  now = time.monotonic()
  assert Stop(now, 1.0).reason is None
  assert Stop(now - 61, 1.0).reason == 'wall time'
