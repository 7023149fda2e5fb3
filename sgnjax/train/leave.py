"""How fast a run is, and when it must leave."""

import math
import os
import signal
import threading
import time
from typing import Any

import jax

from sgnjax.parallel.agree import Votes

WALL_TIME = 1  # a vote: less than that of SIGINT (2) and of SIGTERM (15)


class Stop:
  """Why to leave early: a signal or the time limit. The second signal leaves at once.

  One process (`votes` None) leaves after the step in which it hears. Several vote with every step,
  and all learn the outcome one step later, with the metrics: they leave after the same step,
  whichever of them heard.
  """

  def __init__(self, started: float, minutes: float | None, votes: Votes | None = None):
    self._deadline = math.inf if minutes is None else started + 60 * minutes
    self._votes, self._verdict = votes, 0
    self._heard_signal: int | None = None
    self._old: dict[int, Any] = {}

  def __enter__(self):
    if threading.current_thread() is threading.main_thread():
      self._old = {s: signal.signal(s, self._heard) for s in (signal.SIGTERM, signal.SIGINT)}
    return self

  def __exit__(self, *_):
    for number, handler in self._old.items():
      signal.signal(number, handler)

  def _heard(self, number: int, _frame) -> None:
    if self._heard_signal is not None:
      os._exit(128 + number)
    self._heard_signal = number
    os.write(2, b'\nfinishing this step, then saving; once more leaves at once\n')

  def _wish(self) -> int:
    """A signal's number, WALL_TIME, or 0 to go on."""
    return self._heard_signal or WALL_TIME * (time.monotonic() >= self._deadline)

  def vote(self) -> jax.Array | None:
    """What this process wishes, on its way to all; None where there is one."""
    return None if self._votes is None else self._votes.cast(self._wish())

  def hear(self, vote: jax.Array | None) -> None:
    """Takes the outcome of an earlier vote."""
    if vote is not None:
      self._verdict = max(self._verdict, int(vote))

  def _decided(self) -> int:
    return self._wish() if self._votes is None else self._verdict

  @property
  def signal(self) -> int | None:
    """The number of the signal to leave for, if it is one; the same on all processes."""
    decided = self._decided()
    return decided if decided > WALL_TIME else None

  @property
  def reason(self) -> str | None:
    """'SIGTERM', 'SIGINT', 'wall time' or None; the same on all processes."""
    decided = self._decided()
    if decided > WALL_TIME:
      return signal.Signals(decided).name
    return 'wall time' if decided else None


class Clock:
  """Seconds of training: pauses for evaluation and everything before the first step left out."""

  def __init__(self):
    self._mark: float | None = None
    self.restart()

  def tick(self, tokens: int) -> None:
    """A step has ended."""
    now = time.monotonic()
    if self._mark is not None:
      self.seconds += now - self._mark
      self.tokens += tokens
      self.steps += 1
    self._mark = now

  def resume(self) -> None:
    """Forgets the time since the last step."""
    if self._mark is not None:
      self._mark = time.monotonic()

  def restart(self) -> None:
    """Counts from here."""
    self.seconds, self.tokens, self.steps = 0.0, 0, 0

  def rate(self) -> dict[str, float]:
    """Tokens a second and seconds a step; empty before there is anything to say."""
    if not self.steps:
      return {}
    return {
      'tokens_per_second': self.tokens / self.seconds,
      'step_seconds': self.seconds / self.steps,
    }
