"""How a process on a CPU keeps its memory."""

import ctypes
import glob
import os

# Where the devices of the accelerators that JAX knows appear on Linux.
ACCELERATORS = ('/dev/nvidia[0-9]*', '/dev/accel*', '/dev/vfio/[0-9]*', '/dev/kfd')
# glibc's malloc.h: M_TRIM_THRESHOLD never, M_MMAP_MAX none, M_ARENA_MAX one.
KEPT = ((-1, -1), (-4, 0), (-8, 1))


def keep_freed() -> bool:
  """Has the C library keep what is freed, where computations run on the CPU; whether it does.

  A training step on a CPU asks for its temporaries at every call, and glibc gives large ones back
  to the system, which hands out fresh pages, one fault and one clearing each, at the next call.
  To be called before threads begin. False, and nothing done, where there is an accelerator or
  another C library.
  """
  platforms = os.environ.get('JAX_PLATFORMS')
  if platforms != 'cpu' and (platforms or any(glob.glob(path) for path in ACCELERATORS)):
    return False
  try:
    mallopt = ctypes.CDLL('libc.so.6').mallopt
  except (OSError, AttributeError):  # not Linux, or not glibc
    return False
  return all(mallopt(*setting) == 1 for setting in KEPT)
