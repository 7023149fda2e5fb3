"""How fast a run is, and when it must leave."""

import math
import os
import signal
import threading
import time
from typing import Any


class Stop:
  """Why to leave early: a signal or the time limit. The second signal leaves at once."""

  def __init__(self, started: float, minutes: float | None):
    self._deadline = math.inf if minutes is None else started + 60 * minutes
    self.signal: int | None = None
    self._old: dict[int, Any] = {}

  def __enter__(self):
    if threading.current_thread() is threading.main_thread():
      self._old = {s: signal.signal(s, self._heard) for s in (signal.SIGTERM, signal.SIGINT)}
    return self

  def __exit__(self, *_):
    for number, handler in self._old.items():
      signal.signal(number, handler)

  def _heard(self, number: int, _frame) -> None:
    if self.signal is not None:
      os._exit(128 + number)
    self.signal = number
    os.write(2, b'\nfinishing this step, then saving; once more leaves at once\n')

  @property
  def reason(self) -> str | None:
    """'SIGTERM', 'SIGINT', 'wall time' or None."""
    if self.signal is not None:
      return signal.Signals(self.signal).name
    return 'wall time' if time.monotonic() >= self._deadline else None


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
