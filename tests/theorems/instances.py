"""Small instances of every variant, built from the config as a model builds its layers."""

import functools
import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs import base
from sgnjax.audit import initial, randomise
from sgnjax.errors import UserError
from sgnjax.mixers import Mixer
from sgnjax.models import maker
from sgnjax.models.variants import VARIANTS, variant
from sgnjax.ops.dtypes import wide
from sgnjax.train.optim import FROZEN

WIDTH, HEADS, N = 16, 2, 24
# What the whole suite takes: every mixer and every form. `python -m tests.theorems` takes all.
CORE = (
  *(
    'sgn',
    'sgn-masked',
    'sgn-published',
    'sgn-bidirectional',
    'fourier_qk',
    'fourier_qk-published',
  ),
  *('chiar', 'chiar-published', 'ega', 'ega-published', 'ega_fourier_qk', 'softmax-rope'),
  *('linear', 'performer', 'haar', 'fnet', 'uniform', 'identity'),
)
CHOSEN = VARIANTS if os.environ.get('SGNJAX_VARIANTS') == 'all' else CORE


def over(names):
  """Theorems of one variant run in one process, which compiles each program once."""
  return pytest.mark.parametrize(
    'name', [pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in names]
  )


every_variant, core_variants = over(CHOSEN), over(CORE)


def inputs(batch: int, length: int, seed: int = 0) -> np.ndarray:
  return np.random.default_rng(seed).normal(size=(batch, length, WIDTH))


class Instance:
  """A variant's mixer in one dtype (the routed one, where a model has several), all random."""

  def __init__(self, name: str, dtype: str):
    config = base.get_config().unlock()
    config.model.width, config.model.heads, config.model.context = WIDTH, HEADS, N
    config.model.ega.lengths, config.model.ega.levels = (3, 5), 2  # few taps compile fast
    config.model.dtype = dtype
    self.config = variant(config, name)
    self.wide = dtype == 'float64'
    with jax.enable_x64(self.wide):
      self.module: Mixer = maker(self.config, self.config.model.mixer)()
      if self.wide:
        given = randomise(initial(self.module, jnp.zeros((1, N, WIDTH), dtype)))
      else:  # the same numbers: a draw depends on its dtype
        given = jax.tree.map(lambda a: np.asarray(a, np.float32), instance(name).params)
      self.params = jax.tree.map(jnp.asarray, given)
    self._forward = jax.jit(self._apply)
    self._backward = jax.jit(jax.value_and_grad(self._loss, (0, 1), has_aux=True))

  def _apply(self, params, x_BLD, cache, call):
    return self.module.apply({'params': params}, x_BLD, cache=cache, **call)

  def _loss(self, params, x_BLD, weights_BLD, call):
    y_BLD = self._apply(params, x_BLD, None, call).y_BLD
    return jnp.sum((y_BLD * weights_BLD).astype(wide(y_BLD.dtype))), y_BLD

  def _own(self, x_BLD):
    return jnp.asarray(x_BLD, self.module.dtype)

  def mixed(self, x_BLD, cache=None, **call):
    """What the mixer returns."""
    with jax.enable_x64(self.wide):
      return self._forward(self.params, self._own(x_BLD), cache, call)

  def __call__(self, x_BLD, **call) -> np.ndarray:
    """The output, as a float array of the host."""
    return np.asarray(self.mixed(x_BLD, **call).y_BLD, np.float64)

  def gradients(self, x_BLD, weights_BLD=None, params=None, **call):
    """`sum(weights * y)`, y, and the gradients of parameters and input."""
    weights_BLD = inputs(*np.shape(x_BLD)[:2], seed=2) if weights_BLD is None else weights_BLD
    params = self.params if params is None else params
    with jax.enable_x64(self.wide):
      arrays = (self._own(x_BLD), self._own(weights_BLD))
      (loss, y_BLD), gradients = self._backward(params, *arrays, call)
    return float(loss), y_BLD, gradients

  def empty_cache(self, batch: int):
    with jax.enable_x64(self.wide):
      return self.module.init_cache(batch, N, self.module.dtype)


@functools.lru_cache(maxsize=4)
def instance(name: str, dtype: str = 'float64') -> Instance:
  return Instance(name, dtype)


def asked(call, *arguments, **options):
  """(result, ''), or (None, what the mixer says) where it refuses."""
  try:
    return call(*arguments, **options), ''
  except UserError as refusal:
    return None, str(refusal)


def frozen(path) -> bool:
  """Whether a parameter is a constant by its name: no gradient reaches it."""
  return any(key.key in FROZEN for key in path)
