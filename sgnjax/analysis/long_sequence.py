"""What a long sequence takes: `python -m sgnjax.analysis.long_sequence`.

Flags: `--config` (its length over all devices), `--devices` (fake ones of this machine's CPU).
Prints the memory that a device takes with the length in parts, what one device alone would need,
and two training steps on random tokens.
"""

import argparse
import resource
import time

import jax
import jax.numpy as jnp

from sgnjax import config as config_lib

GIB = 2**30


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
  return mesh, make_train_step(model, optimiser, config, mesh).lower(state, batch).compile()


def peak(program) -> int:
  """Bytes a device holds at most: what it is given, what it gives and what it needs between."""
  m = program.memory_analysis()
  return (
    m.argument_size_in_bytes + m.output_size_in_bytes + m.temp_size_in_bytes - m.alias_size_in_bytes
  )


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('--config', default='configs/sgn_million.py')
  parser.add_argument('--devices', type=int, default=8)
  flags = parser.parse_args()
  jax.config.update('jax_platforms', 'cpu')
  jax.config.update('jax_num_cpu_devices', flags.devices)
  from sgnjax.analysis.machine import in_words, machine
  from sgnjax.models import build
  from sgnjax.parallel.mesh import batch_sharding
  from sgnjax.train.optim import make_optimiser
  from sgnjax.train.state import create

  vocab = 'model.vocab=64'
  config = config_lib.load(flags.config, [vocab])
  m = config.model
  started = time.monotonic()
  mesh, step = lowered(config)
  alone = lowered(config_lib.load(flags.config, [vocab, 'mesh.sequence=1']))[1]
  print(in_words(machine()))
  print(
    f'{m.context:,} tokens, {m.mixer}, width {m.width}, {m.layers} layers, {m.dtype}; '
    f'both programs compiled in {time.monotonic() - started:.0f} s'
  )
  print(f'a device of {flags.devices}: {peak(step) / GIB:.3f} GiB at most')
  print(f'one device alone: {peak(alone) / GIB:.3f} GiB (compiled, not run)')
  state = create(config, build(config), make_optimiser(config), mesh)
  key = jax.random.key(0)
  tokens_BL = jax.random.randint(key, (1, m.context + 1), 0, m.vocab, jnp.int32)
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
