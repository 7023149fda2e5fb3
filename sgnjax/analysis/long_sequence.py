"""One training step on a sequence too long for a device: `python -m sgnjax.analysis.long_sequence`.

Flags: `--length` tokens, `--devices` (fake, of this machine's CPU), `--width`, `--layers`. Prints
the memory that a device takes with the length in parts, and what one device alone would need.
"""

import argparse
import resource
import time

import jax
import jax.numpy as jnp

GIB = 2**30


def config_of(length: int, devices: int, width: int, layers: int):
  """A causal SGN language model of one sequence a batch, its length over all devices."""
  from configs import base

  config = base.get_config().unlock()
  m = config.model
  m.mixer, m.context, m.width, m.layers, m.heads, m.vocab = 'sgn', length, width, layers, 1, 61
  m.remat = 'all'
  config.train.batch, config.mesh.data, config.mesh.sequence = 1, 1, devices
  return config.lock()


def lowered(config):
  """The mesh, the step compiled for it, and the shapes of what it takes."""
  from sgnjax.models import build
  from sgnjax.parallel.mesh import batch_sharding, make_mesh
  from sgnjax.train.optim import make_optimiser
  from sgnjax.train.state import abstract
  from sgnjax.train.step import make_train_step

  mesh, model, optimiser = make_mesh(config), build(config), make_optimiser(config)
  state = abstract(config, model, optimiser, mesh)
  shape = (config.train.batch, config.model.context)
  tokens = jax.ShapeDtypeStruct(shape, jnp.int32, sharding=batch_sharding(mesh))
  batch = {'tokens': tokens, 'targets': tokens}
  return mesh, make_train_step(model, optimiser, config, mesh).lower(state, batch).compile(), state


def peak(program) -> int:
  """Bytes a device holds at most: what it is given, what it gives and what it needs between."""
  m = program.memory_analysis()
  return (
    m.argument_size_in_bytes + m.output_size_in_bytes + m.temp_size_in_bytes - m.alias_size_in_bytes
  )


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('--length', type=int, default=2**20)
  parser.add_argument('--devices', type=int, default=8)
  parser.add_argument('--width', type=int, default=64)
  parser.add_argument('--layers', type=int, default=2)
  flags = parser.parse_args()
  jax.config.update('jax_platforms', 'cpu')
  jax.config.update('jax_num_cpu_devices', flags.devices)
  from sgnjax.analysis.machine import in_words, machine
  from sgnjax.models import build
  from sgnjax.parallel.mesh import batch_sharding
  from sgnjax.train.optim import make_optimiser
  from sgnjax.train.state import create

  config = config_of(flags.length, flags.devices, flags.width, flags.layers)
  started = time.monotonic()
  mesh, step, _ = lowered(config)
  alone = lowered(config_of(flags.length, 1, flags.width, flags.layers))[1]
  print(in_words(machine()))
  print(
    f'{flags.length:,} tokens, causal SGN, width {flags.width}, {flags.layers} layers, float32; '
    f'both programs compiled in {time.monotonic() - started:.0f} s'
  )
  print(f'a device of {flags.devices}: {peak(step) / GIB:.3f} GiB at most')
  print(f'one device alone: {peak(alone) / GIB:.3f} GiB (compiled, not run)')
  state = create(config, build(config), make_optimiser(config), mesh)
  key = jax.random.key(0)
  tokens_BL = jax.random.randint(key, (1, flags.length + 1), 0, config.model.vocab, jnp.int32)
  where = batch_sharding(mesh)
  batch = {
    'tokens': jax.device_put(tokens_BL[:, :-1], where),
    'targets': jax.device_put(tokens_BL[:, 1:], where),
  }
  for number in range(2):
    started = time.monotonic()
    state, metrics = step(state, batch)
    found = jax.device_get(metrics)
    print(
      f'step {number + 1}: loss {found["loss"]:.4f}, gradient norm {found["grad_norm"]:.4f}, '
      f'{time.monotonic() - started:.1f} s'
    )
  resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
  print(f'the process, with all {flags.devices} devices in it: {resident / GIB:.2f} GiB at most')


if __name__ == '__main__':
  main()
