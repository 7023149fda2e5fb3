"""The kind of device that a program is for: this process's own, or one that it is planned for."""

import contextlib
import contextvars

import jax

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
