"""What mechanisms have learned, as a few numbers beside each evaluation."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from sgnjax.train.optim import path_of

# Parameters that mean something one by one: thresholds and slopes of EGA, centres of filters.
SHOWN = ('tau', 'alpha', 'log_centre')


def reader(params) -> Callable[[dict], dict[str, list[float]]]:
  """`read(params) -> {name: [mean, lowest, highest]}` over all layers, heads and scales.

  params: shapes are enough. A model without any of `SHOWN` gives an empty dict.
  """
  paths = [path_of(p).split('/') for p, _ in jax.tree_util.tree_leaves_with_path(params)]
  names = [name for name in SHOWN if any(path[-1] == name for path in paths)]
  if not names:
    return lambda _: {}

  @jax.jit
  def sums(params):
    found = {}
    for name in names:
      leaves = jax.tree_util.tree_leaves_with_path(params)
      own = jnp.concatenate([a.ravel() for p, a in leaves if path_of(p).split('/')[-1] == name])
      found[name] = jnp.stack([own.mean(), own.min(), own.max()])
    return found

  return lambda params: {k: v.tolist() for k, v in jax.device_get(sums(params)).items()}
