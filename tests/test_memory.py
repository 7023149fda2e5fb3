"""A process whose freed memory is kept touches no fresh pages when it asks again."""

import subprocess
import sys

import pytest

SCRIPT = """
import ctypes, resource, sys
from sgnjax.memory import keep_freed
if sys.argv[1] == 'kept':
  assert keep_freed()
libc = ctypes.CDLL('libc.so.6')
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
for _ in range(2):
  before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
  block = libc.malloc(ctypes.c_size_t(64 << 20))
  ctypes.memset(block, 1, 64 << 20)
  libc.free(block)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how: str) -> int:
  run = [sys.executable, '-c', SCRIPT, how]
  done = subprocess.run(run, capture_output=True, text=True, check=True)
  return int(done.stdout)


@pytest.mark.skipif(sys.platform != 'linux', reason='glibc alone has these settings')
def test_freed_memory_is_kept(monkeypatch):
  monkeypatch.setenv('JAX_PLATFORMS', 'cpu')
  assert faults('kept') < 100 < 1000 < faults('given back')


def test_nothing_is_done_beside_an_accelerator(monkeypatch):
  from sgnjax.memory import keep_freed

  monkeypatch.setenv('JAX_PLATFORMS', 'cuda')
  assert not keep_freed()
