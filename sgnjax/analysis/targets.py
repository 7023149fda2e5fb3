"""Machines to plan for: what their chips do, and devices that programs are compiled for."""

import contextlib
import importlib.util
import math
import os
import re
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from sgnjax.errors import UserError, nearest


@dataclass(frozen=True)
class Chip:
  """One accelerator, by its maker's data sheet.

  kind: 'tpu' | 'gpu'. flops: a second, dense, of matrix products in bfloat16; flops_float32: of
  JAX's default precision for float32. memory: bytes. bandwidth: of the memory, bytes a second. The
  next two are bytes a second in ONE direction: link: of one of a TPU's links to its neighbours, or
  of all NVLinks of a GPU together; network: of a GPU's own adapter between nodes. node: GPUs of a
  node; for TPUs the side of a slice whose ends are joined, so that its links form rings.
  """

  kind: str
  flops: float
  flops_float32: float
  memory: int
  bandwidth: float
  link: float
  node: int
  network: float | None = None
  cores: int = 1  # that the name of a slice counts a chip as


GIB = 2**30
CHIPS = {
  # cloud.google.com/tpu/docs/v5e: 197 TFLOPs bf16, 16 GB at 819 GB/s, links of 4 x 400 Gbit/s
  # (400 GB/s a chip, both directions), a torus of 16 x 16 chips.
  'v5e': Chip('tpu', 197e12, 197e12, 16 * GIB, 819e9, 50e9, 16),
  # cloud.google.com/tpu/docs/v6e: 918 TFLOPs, 32 GB at 1600 GB/s, 4 links, 800 GB/s both ways.
  'v6e': Chip('tpu', 918e12, 918e12, 32 * GIB, 1600e9, 100e9, 16),
  # cloud.google.com/tpu/docs/v5p: 459 TFLOPs, 95 GiB at 2765 GB/s, 6 links, 1200 GB/s both ways,
  # cubes of 4 x 4 x 4 joined to a torus; names count TensorCores, two a chip.
  'v5p': Chip('tpu', 459e12, 459e12, 95 * GIB, 2765e9, 100e9, 4, cores=2),
  # NVIDIA H100 SXM data sheet: 989.4 TFLOP/s bf16 and 494.7 TF32 dense, 80 GB at 3.35 TB/s, NVLink
  # 900 GB/s both ways. DGX H100: one adapter of 400 Gbit/s a GPU, 8 GPUs a node.
  'h100': Chip('gpu', 989.4e12, 494.7e12, 80 * 10**9, 3.35e12, 450e9, 8, 50e9),
  # NVIDIA H200 SXM data sheet: as H100, with 141 GB at 4.8 TB/s.
  'h200': Chip('gpu', 989.4e12, 494.7e12, 141 * 10**9, 4.8e12, 450e9, 8, 50e9),
}
# Slices that are rented, from the same pages: sides of the torus.
FLAT = ((1, 1), (2, 2), (2, 4), (4, 4), (4, 8), (8, 8), (8, 16), (16, 16))
CUBIC = (
  *((2, 2, 1), (2, 2, 2), (2, 2, 4), (2, 4, 4), (4, 4, 4), (4, 4, 8), (4, 8, 8), (8, 8, 8)),
  *((8, 8, 16), (8, 16, 16), (16, 16, 16)),
)
SLICES = {'v5e': FLAT, 'v6e': FLAT, 'v5p': CUBIC}
# `device_kind` of devices here -> chip.
KINDS = (('H100', 'h100'), ('H200', 'h200'), ('v5 lite', 'v5e'), ('v5p', 'v5p'), ('v6 lite', 'v6e'))


@dataclass(frozen=True)
class Target:
  """So many chips. name: as the user wrote it; chip: None where nothing is known of its speed.

  sides: of a TPU slice. compiler: 'libtpu' | 'cpu' (stands in) | 'here'.
  """

  name: str
  chip: Chip | None
  devices: int
  compiler: str
  sides: tuple[int, ...] = ()

  @property
  def family(self) -> str:
    return self.name.partition('-')[0]

  @property
  def backend(self) -> str:
    """What the traced program is for. A program that a CPU stands in for is a CPU's."""
    if self.compiler == 'here':
      return jax.default_backend()
    return 'tpu' if self.compiler == 'libtpu' else 'cpu'


def find(name: str) -> Target:
  """The target called so, as 'v5e-64' or 'h100-8'. Raises UserError with the nearest right name."""
  match = re.fullmatch(r'(\w+)-([1-9]\d*)', name)
  family, count = (match[1], int(match[2])) if match else (name, 0)
  if family in SLICES:
    chip = CHIPS[family]
    for sides in SLICES[family]:
      if math.prod(sides) * chip.cores == count:
        return Target(name, chip, math.prod(sides), 'libtpu', sides)
  elif match and family == 'cpu':
    return Target(name, None, count, 'cpu')
  elif match and family in CHIPS:
    chip = CHIPS[family]
    if count < chip.node or count % chip.node == 0:
      return Target(name, chip, count, 'cpu')
    raise UserError(
      f"target '{name}': nodes have {chip.node} GPUs; {family}-{count // chip.node * chip.node} or "
      f'{family}-{-(-count // chip.node) * chip.node} would do'
    )
  raise UserError(f"target '{name}' is not known{nearest(name, names())}")


def names() -> list[str]:
  """Names of slices, and of some numbers of GPUs and CPU devices."""
  found = [
    f'{family}-{math.prod(sides) * CHIPS[family].cores}'
    for family, slices in SLICES.items()
    for sides in slices
  ]
  return found + [f'{family}-{n}' for family in ('h100', 'h200', 'cpu') for n in (1, 8, 16, 64)]


def resize(target: Target, count: int) -> Target | None:
  """The same machine with so many devices; None where there is none of that size."""
  if target.compiler == 'here':
    return Target('here', target.chip, count, 'here')
  chip = target.chip
  try:
    return find(f'{target.family}-{count * (chip.cores if chip else 1)}')
  except UserError:
    return None


def here() -> Target:
  """The devices of this process."""
  devices = jax.devices()
  kind = devices[0].device_kind
  chip = next((CHIPS[name] for part, name in KINDS if part in kind), None)
  return Target('here', chip, len(devices), 'here')


class TooFewDevicesError(Exception):
  """This process started with fewer CPU devices than a target needs; a new one can have them."""


def prepare(target: Target) -> None:
  """For a process that plans for another machine: accelerators of this one are left alone.

  Has an effect before JAX has looked for devices.
  """
  jax.config.update('jax_platforms', 'cpu')
  if target.compiler == 'cpu':
    with contextlib.suppress(RuntimeError):  # too late: there may be enough
      jax.config.update('jax_num_cpu_devices', target.devices)


def devices(target: Target) -> list:
  """Devices to compile for: those here, a TPU slice that libtpu describes, or fake CPU devices.

  Raises UserError where libtpu is not installed, TooFewDevicesError for CPU devices.
  """
  if target.compiler == 'here':
    return jax.devices()
  if target.compiler == 'libtpu':
    return _slice(target)
  prepare(target)
  found = jax.devices('cpu')
  if len(found) < target.devices:
    raise TooFewDevicesError
  return found[: target.devices]


def _slice(target: Target) -> list:
  if importlib.util.find_spec('libtpu') is None:
    raise UserError(
      f"target '{target.name}' is compiled by libtpu, which is not installed: "
      "pip install 'sgnjax[tpu-plan]', or choose a GPU target such as h100-8"
    )
  import libtpu
  from jax.experimental import topologies

  # Read when libtpu is loaded: it asks no metadata server where it runs, says what it would have
  # found there, and shares the machine with other plans. Of a machine with TPUs all is set.
  for key, value in {
    'TPU_SKIP_MDS_QUERY': '1',
    'TPU_ACCELERATOR_TYPE': 'v5litepod-8',
    'TPU_WORKER_HOSTNAMES': 'localhost',
    'TPU_LIBRARY_PATH': libtpu.get_library_path(),
    'ALLOW_MULTIPLE_LIBTPU_LOAD': 'true',
  }.items():
    os.environ.setdefault(key, value)
  shape = 'x'.join(map(str, target.sides))
  options = {}
  if math.prod(target.sides) < 4:
    options['chips_per_host_bounds'] = [*target.sides, 1][:3]
  with _without_flags():
    name = f'{target.family}:{shape}'
    found = topologies.get_topology_desc(name, platform='tpu', **options).devices
    everywhere = NamedSharding(Mesh(np.asarray(found), ('all',)), PartitionSpec())
    number = jax.ShapeDtypeStruct((), jnp.float32, sharding=everywhere)
    jax.jit(jnp.negative).lower(number).compile()
  return found


@contextlib.contextmanager
def _without_flags():
  """libtpu reads XLA_FLAGS at its first compilation, and ends the process at one not its own."""
  flags = os.environ.pop('XLA_FLAGS', None)
  try:
    yield
  finally:
    if flags is not None:
      os.environ['XLA_FLAGS'] = flags
