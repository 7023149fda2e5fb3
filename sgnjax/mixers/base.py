"""The seam: what every mixer is given and what it gives back."""

from typing import Any, ClassVar, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax.linen.dtypes import promote_dtype

from sgnjax.errors import UserError
from sgnjax.ops.averages import running_mean
from sgnjax.ops.statistics import layer_norm
from sgnjax.parallel.sequence import TOKENS, WHOLE_ROWS, P, over_length, product

FORMS = ('causal', 'published', 'bidirectional')


class Aux(NamedTuple):
  """What a mixer reports beside its output, in three flat dicts.

  losses: scalars added to the objective. metrics: scalars. debug: arrays (gates, routes, responses,
  hidden states), filled only where the module was built with `capture=True`.
  """

  losses: dict[str, jax.Array]
  metrics: dict[str, jax.Array]
  debug: dict[str, jax.Array]


class Mixed(NamedTuple):
  """Output of a mixer: `y_BLD`, its `Aux`, and the cache after this chunk (None without one)."""

  y_BLD: jax.Array
  aux: Aux
  cache: Any


class LayerNorm(nn.Module):
  """LayerNorm over the width, eps 1e-5 as in the papers' code: 2 width parameters."""

  param_dtype: Any

  @nn.compact
  def __call__(self, x_BLD: jax.Array) -> jax.Array:
    width = x_BLD.shape[-1:]
    scale_D = self.param('scale', nn.initializers.ones, width, self.param_dtype)
    bias_D = self.param('bias', nn.initializers.zeros, width, self.param_dtype)
    return layer_norm(x_BLD, scale_D, bias_D)


class Mixer(nn.Module):
  """Base of all mixers; called as below, they return a `Mixed`.

  `mixer(x_BLD, positions_BL=, mask_BL=, segments_BL=, cache=, train=)`.

  `mask_BL` is true on real tokens, which come first in each row (padding is on the right); outputs
  at padding are zero. `segments_BL` numbers the documents packed in a row; nothing crosses them. A
  mixer honours both or refuses them by name with UserError.

  width, heads: of the model. context: the configured length N. form: causal, published (as in the
  paper, leak included) or bidirectional. capture: fill `aux.debug`.
  """

  group: ClassVar[str] = ''  # of the config: config.model.<group> holds the mixer's own options
  option_groups: ClassVar[tuple[str, ...]] = ()  # all of them, where there are several
  owns_residual: ClassVar[bool] = False  # true: the output includes residual and norm (chiar block)
  forms: ClassVar[tuple[str, ...]] = FORMS
  attends: ClassVar[bool] = True  # takes part in positions='rope'
  published_leaks: ClassVar[bool] = True  # false: the published form is blind to the future too

  width: int
  heads: int
  context: int
  form: str = 'causal'
  positions: str = 'learned'
  rope_base: float = 10_000.0
  qkv_bias: bool = False
  out_bias: bool = True
  dropout: float = 0.0
  init_std: float = 0.02
  dtype: Any = jnp.float32
  param_dtype: Any = jnp.float32
  capture: bool = False

  @property
  def causal(self) -> bool:
    """Whether this configured instance is blind to the future."""
    return self.form == 'causal' or (self.form == 'published' and not self.published_leaks)

  @property
  def uses_fft(self) -> bool:
    """Whether an FFT over the length spreads rounding over it (causality: 1e-9, not 0)."""
    return False

  def check(self) -> None:
    """Raises UserError for a configuration that contradicts itself."""

  @property
  def streams(self) -> bool:
    """Whether a sequence may come in chunks: causal, and with a cache of its own."""
    return self.causal and type(self).empty_cache is not Mixer.empty_cache

  def init_cache(self, batch: int, max_len: int, dtype: Any) -> Any:
    """An empty cache, or UserError where the mixer has no streaming form."""
    if self.streams:
      return self.empty_cache(batch, max_len, dtype)
    raise UserError(
      f"mixer '{self.label}' keeps no cache: it cannot take a sequence in chunks; "
      'run the whole sequence at once (generation does so by itself)'
    )

  def empty_cache(self, batch: int, max_len: int, dtype: Any) -> Any:
    """What `init_cache` gives where the instance streams; a mixer states its memory here."""
    raise NotImplementedError

  @property
  def label(self) -> str:
    """Name used in messages."""
    return self.group or type(self).__name__

  def refuse(self, cache: Any = None, mask_BL: Any = None, segments_BL: Any = None, why: str = ''):
    """Raises UserError for what was passed and this mixer does not honour."""
    if cache is not None and not self.streams:
      self.init_cache(1, 1, self.dtype)  # raises
    for name, given in (('a padding mask', mask_BL), ('segments', segments_BL)):
      if given is not None:
        if given is mask_BL:
          why += '; data.mask_padding=False: padding is read as a token'
        raise UserError(f"mixer '{self.label}' ({self.form} form) does not honour {name}: {why}")

  def dense(self, features: int | tuple[int, ...], name: str, bias: bool) -> nn.DenseGeneral:
    """A projection with the papers' initial weights, N(0, init_std)."""
    return dense(self, features, name, bias)


def dense(mixer: Mixer, features: int | tuple[int, ...], name: str, bias: bool) -> nn.DenseGeneral:
  """A projection of the calling module, with the dtypes and initial weights of the mixer's."""
  path = '/'.join((*mixer.path, name, 'kernel')).removeprefix('stack/')

  def promote(inputs, kernel, bias, *, dtype):
    inputs, bias = promote_dtype(inputs, bias, dtype=dtype)
    return inputs, kernel, bias

  def dot_general(x, kernel, dimension_numbers, precision=None):
    how = {'dimension_numbers': dimension_numbers, 'precision': precision}
    return product(x, kernel, path, **how)

  return nn.DenseGeneral(
    features,
    use_bias=bias,
    dtype=mixer.dtype,
    param_dtype=mixer.param_dtype,
    kernel_init=nn.initializers.normal(mixer.init_std),
    promote_dtype=promote,
    dot_general_cls=lambda: dot_general,
    name=name,
  )


def blank(x_BLD: jax.Array, mask_BL: jax.Array | None) -> jax.Array:
  """Zero at padding."""
  if mask_BL is None:
    return x_BLD
  return jnp.where(mask_BL[:, :, None], x_BLD, jnp.zeros((), x_BLD.dtype))


def prefix_mean(x_BLD: jax.Array, causal: bool, mask_BL, segments_BL, state=None):
  """`running_mean`, each device with whole rows of its share of the channels."""

  def mean(x_BLD, mask_BL, segments_BL, state):
    what = {'mask_BL': mask_BL, 'segments_BL': segments_BL, 'state': state}
    return running_mean(x_BLD, causal=causal, **what)

  specs = (TOKENS, WHOLE_ROWS, WHOLE_ROWS, P())
  return over_length(mean, x_BLD, mask_BL, segments_BL, state, specs=specs)
