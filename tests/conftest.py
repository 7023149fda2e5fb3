"""Hostile defaults: eight devices; strict dtype and rank promotion around the mathematics."""

import os
from importlib.metadata import version
from pathlib import Path

# Before jax starts: fake devices, and no accelerator that a machine may have.
# Programs here are tiny: without LLVM's optimisations, and fused kernels where jax can still leave
# them out, they compile in a quarter of the time; one module each saves a fifth of a test's.
os.environ['XLA_FLAGS'] = ' '.join(
  [
    os.environ.get('XLA_FLAGS', ''),
    '--xla_force_host_platform_device_count=8',
    '--xla_backend_optimization_level=0',
    '--xla_cpu_parallel_codegen_split_count=1',
    '--xla_cpu_use_fusion_emitters=false' if version('jax').startswith('0.10.') else '',
  ]
).strip()
os.environ.setdefault('JAX_PLATFORMS', 'cpu')
os.environ.setdefault('MPLBACKEND', 'agg')

import jax
import numpy as np
import pytest

STRICT = ('ops', 'mixers', 'models', 'audit', 'theorems')
HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def _strict(request):
  """Strict promotion for the mathematics; Optax needs the standard one."""
  if Path(request.path).relative_to(HERE).parts[0] not in STRICT:
    yield
    return
  with jax.numpy_dtype_promotion('strict'), jax.numpy_rank_promotion('raise'):
    yield


@pytest.fixture
def float64():
  """Double precision, for all tests of a file that names it in its `pytestmark`."""
  with jax.enable_x64(True):
    yield


@pytest.fixture
def golden(record_property):
  """`golden(name)`: the arrays of one golden file, as a dict."""

  def load(name: str) -> dict[str, np.ndarray]:
    record_property('golden', name)
    with np.load(HERE / 'golden' / f'{name}.npz', allow_pickle=False) as arrays:
      return dict(arrays)

  return load


def pytest_configure(config):
  """With all variants, the table of what they fulfil is printed at the end."""
  if os.environ.get('SGNJAX_VARIANTS') != 'all' or hasattr(config, 'workerinput'):
    return
  from tests.theorems.table import Table

  if not any(isinstance(plugin, Table) for plugin in config.pluginmanager.get_plugins()):
    config.pluginmanager.register(Table())


def pytest_collection_modifyitems(items):
  """Slow tests first, so that none is left alone at the end; golden files are theorems too."""
  items.sort(key=lambda item: item.get_closest_marker('slow') is None)
  for item in items:
    if HERE / 'theorems' in item.path.parents or 'golden' in item.fixturenames:
      item.add_marker('theorem')


@pytest.fixture(scope='session')
def real_data() -> Path:
  """The folder of real data, or a skip that says how to name one."""
  folder = os.environ.get('SGNJAX_DATA')
  if not folder:
    pytest.skip('set SGNJAX_DATA to a folder of real data')
  return Path(folder)
