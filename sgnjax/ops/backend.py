"""The kind of device that a program is for: this process's own, or one that it is planned for."""

import contextlib
import contextvars

import jax

_UNTILED: contextvars.ContextVar[bool] = contextvars.ContextVar('untiled', default=False)
_ASSUMED: contextvars.ContextVar[str | None] = contextvars.ContextVar('backend', default=None)


def backend() -> str:
  """'cpu', 'gpu' or 'tpu': what operations with a choice of algorithms choose by."""
  return _ASSUMED.get() or jax.default_backend()


@contextlib.contextmanager
def assumed(kind: str):
  """What is traced inside is for a device of this kind."""
  token = _ASSUMED.set(kind)
  try:
    yield
  finally:
    _ASSUMED.reset(token)


def tiles() -> bool:
  """Whether operations may be cut into tiles, one after another in a loop."""
  return not _UNTILED.get()


@contextlib.contextmanager
def untiled():
  """What is traced inside is whole, for counts by a compiler, which sees a loop's body once."""
  token = _UNTILED.set(True)
  try:
    yield
  finally:
    _UNTILED.reset(token)
