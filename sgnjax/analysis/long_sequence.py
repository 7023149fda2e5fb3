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
from sgnjax.analysis import layout, targets
from sgnjax.machine import in_words, machine
from sgnjax.models import build
from sgnjax.parallel.mesh import batch_sharding, make_mesh
from sgnjax.train.optim import make_optimiser
from sgnjax.train.state import create

GIB = 2**30


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('--config', default='configs/sgn_million.py')
  parser.add_argument('--devices', type=int, default=8)
  flags = parser.parse_args()
  targets.prepare(targets.find(f'cpu-{flags.devices}'))
  config, one = (
    config_lib.load(flags.config, ['model.vocab=64', *changes])
    for changes in ((), ('mesh.sequence=1',))
  )
  m = config.model
  started = time.monotonic()
  mesh = make_mesh(config)
  step, alone = (layout.lower(c, make_mesh(c)).compile() for c in (config, one))
  seconds = time.monotonic() - started
  peak, whole = (layout.Program(seconds, **layout.buffers(p)).peak for p in (step, alone))
  print(in_words(machine()))
  print(
    f'{m.context:,} tokens, {m.mixer}, width {m.width}, {m.layers} layers, {m.dtype}; '
    f'both programs compiled in {seconds:.0f} s'
  )
  print(f'a device of {flags.devices}: {peak / GIB:.3f} GiB at most')
  print(f'one device alone: {whole / GIB:.3f} GiB (compiled, not run)')
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
