"""CHIAR-Former's operators, one a layer: DCT mixing over the width, attention, RBF mixing."""

import dataclasses
import functools
from typing import Any, ClassVar

import flax.linen as nn
import jax

from sgnjax.errors import UserError, check_choice
from sgnjax.mixers.base import Aux, LayerNorm, Mixed, Mixer, blank
from sgnjax.mixers.rbf import RBF
from sgnjax.mixers.softmax import Softmax
from sgnjax.ops.dtypes import wide
from sgnjax.ops.width import BASES, analyse, width_filter, width_mix
from sgnjax.parallel.sequence import over_width

SHARED = {f.name for f in dataclasses.fields(Mixer)} - {'parent', 'name', 'capture'}


class Operator(Mixer):
  """What the CHIAR operators share: they own their residual and norm."""

  group: ClassVar[str] = 'chiar'
  owns_residual: ClassVar[bool] = True

  router: str = 'threshold'
  tau: float = 0.5
  calibrated: str | None = None
  rbf: bool = False
  tau_low: float = 0.4
  rbf_features: int = 64
  rbf_gamma: float = 1.0
  rate: float = 0.5
  dispatch: str = 'dense'
  route_window: int = 128
  capacity: float | None = None
  kv: str = 'all'
  basis: str = 'dct'
  collapse: float = 0.0
  meta_hard: bool = False  # of the MetaRouter, which the block puts around the layer
  released: bool = False

  def check(self) -> None:
    check_choice('model.chiar.basis', self.basis, BASES)
    if self.released and self.basis == 'orthogonal':
      raise UserError(
        "model.chiar.basis='orthogonal' has no coefficient 0 for model.chiar.released to count "
        'twice; set model.chiar.released=False'
      )
    for key in ('rbf_features', 'rbf_gamma'):
      if not getattr(self, key) > 0:
        raise UserError(f'model.chiar.{key}={getattr(self, key)}: expected more than 0')

  def inner(self, kind: type[Mixer], **more) -> Mixer:
    """A mixer inside this operator, with its sizes and form."""
    return kind(**{field: getattr(self, field) for field in SHARED}, **more)

  def attention_module(self, **names) -> Mixer:
    return self.inner(Softmax, **names)

  def rbf_module(self, **names) -> Mixer:
    return self.inner(RBF, rbf_features=self.rbf_features, rbf_gamma=self.rbf_gamma, **names)

  def coefficients(self, x_BLD: jax.Array) -> jax.Array:
    """Of each token over its width, in the configured basis, in float32 or wider."""
    return over_width(functools.partial(analyse, basis=self.basis), x_BLD.astype(wide(x_BLD.dtype)))

  def dct_path(self, x_BLD: jax.Array, coefficients_BLD: jax.Array | None, train: bool):
    """`LN(x + idct(w dct(x)))`, in the configured basis; coefficients: of x, where they are known.

    Where they are not, w may be folded into one matrix.
    """
    w_D = self.param('w_spectral', nn.initializers.ones, (self.width,), self.param_dtype)
    mix, source_BLD = width_filter, coefficients_BLD
    if coefficients_BLD is None:
      mix, source_BLD = width_mix, x_BLD
    mix = functools.partial(mix, basis=self.basis, released=self.released)
    mixed_BLD = over_width(mix, source_BLD, w_D).astype(x_BLD.dtype)
    mixed_BLD = nn.Dropout(self.dropout)(mixed_BLD, deterministic=not train)
    return LayerNorm(self.param_dtype, name='dct_norm')(x_BLD + mixed_BLD)

  def path(self, module: Mixer, x_BLD: jax.Array, call: dict[str, Any]) -> Mixed:
    """`LN(x + module(x))`."""
    y_BLD, aux, cache = module(x_BLD, **call)
    y_BLD = LayerNorm(self.param_dtype, name=f'{module.name}_norm')(x_BLD + y_BLD)
    return Mixed(y_BLD, aux, cache)


class DCTOperator(Operator):
  """The DCT operator on every token: 3 width parameters, no view of any other token."""

  attends: ClassVar[bool] = False

  @property
  def causal(self) -> bool:
    return True

  @nn.compact
  def __call__(
    self, x_BLD, *, positions_BL=None, mask_BL=None, segments_BL=None, cache=None, train=False
  ) -> Mixed:
    y_BLD = blank(self.dct_path(x_BLD, None, train), mask_BL)
    return Mixed(y_BLD, Aux({}, {}, {}), cache)

  def empty_cache(self, batch: int, max_len: int, dtype):
    return ()  # a token needs no other


class AttentionOperator(Operator):
  """The attention operator on every token: 4 width^2 + biases, and 2 width of norm."""

  published_leaks: ClassVar[bool] = False

  @nn.compact
  def __call__(self, x_BLD, *, mask_BL=None, **call) -> Mixed:
    module = self.attention_module(name='attention')
    y_BLD, aux, cache = self.path(module, x_BLD, {'mask_BL': mask_BL, **call})
    return Mixed(blank(y_BLD, mask_BL), aux, cache)

  def empty_cache(self, batch: int, max_len: int, dtype):
    return self.attention_module(parent=None).init_cache(batch, max_len, dtype)


class RBFOperator(Operator):
  """The RBF operator on every token, `LN(x + RBF(x))`: the parameters of `RBF`, 2 width of norm.

  Blind to the future in the causal form alone.
  """

  attends: ClassVar[bool] = False

  @nn.compact
  def __call__(self, x_BLD, *, mask_BL=None, **call) -> Mixed:
    module = self.rbf_module(name='rbf')
    y_BLD, aux, cache = self.path(module, x_BLD, {'mask_BL': mask_BL, **call})
    return Mixed(blank(y_BLD, mask_BL), aux, cache)

  def empty_cache(self, batch: int, max_len: int, dtype):
    return self.rbf_module(parent=None).init_cache(batch, max_len, dtype)
