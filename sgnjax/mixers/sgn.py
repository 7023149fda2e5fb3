"""SGN, spectral gated networks: a learned gate on the DCT of the sequence, and its causal forms."""

from typing import ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from sgnjax.errors import UserError, check_choice
from sgnjax.mixers.base import Aux, Mixed, Mixer, blank
from sgnjax.ops.dct import dct, idct
from sgnjax.ops.dtypes import wide
from sgnjax.ops.kernels import (
  causal_conv,
  even_conv,
  even_kernel,
  one_sided_kernel,
  truncated_dct_operator,
)


def spectral_gate(x_BLD: jax.Array, gate_ND: jax.Array) -> jax.Array:
  """`IDCT(G * DCT(x))` over the length, which sees all of it: the published layer (SGN, section 3).

  The gate is resampled when the length is not N.
  """
  gate_LD = resample_gate(gate_ND, x_BLD.shape[1])
  compute = wide(x_BLD.dtype)
  coefficients_BLD = dct(x_BLD.astype(compute), axis=1) * gate_LD.astype(compute)[None]
  return idct(coefficients_BLD, axis=1).astype(x_BLD.dtype)


def resample_gate(gate_ND: jax.Array, length: int) -> jax.Array:
  """The gate for another length: linear in normalised frequency k/N; ends are held."""
  n = gate_ND.shape[0]
  if length == n:
    return gate_ND
  at_L = jnp.clip(jnp.arange(length, dtype=gate_ND.dtype) * (n / length), 0, n - 1)
  low_L = jnp.minimum(at_L.astype(jnp.int32), max(n - 2, 0))
  share_L1 = (at_L - low_L.astype(at_L.dtype))[:, None]
  return gate_ND[low_L] * (1 - share_L1) + gate_ND[jnp.minimum(low_L + 1, n - 1)] * share_L1


def causal_gate(x_BLD: jax.Array, gate_MD: jax.Array) -> jax.Array:
  """Causal filter whose response has the gate (M = N + 1 points) as its real part; lags 0..N."""
  return causal_conv(x_BLD, one_sided_kernel(gate_MD))


def masked_gate(x_BLD: jax.Array, gate_ND: jax.Array) -> jax.Array:
  """`tril(C^T diag(G) C) x`: the published operator without its view of the future, O(L^2)."""
  length = x_BLD.shape[1]
  operator_TSD = truncated_dct_operator(gate_ND)[:length, :length].astype(x_BLD.dtype)
  return jnp.einsum('tsd,bsd->btd', operator_TSD, x_BLD)


def even_gate(x_BLD: jax.Array, gate_MD: jax.Array) -> jax.Array:
  """Two-sided filter with the gate as its response: sees both sides, untouched by zeros behind."""
  return even_conv(x_BLD, even_kernel(gate_MD))


class SGN(Mixer):
  """Spectral gated mixing over the length.

  Gate: N x width in the published and the masked form, (N + 1) x width in the kernel forms, N being
  the context. `gated` adds 3 width^2 + width: project to (u, z), filter u, multiply by silu(z).
  Causal kernels truncate for shorter inputs; beyond N + 1 tokens the filter's memory ends at lag N.

  operator, of the causal form: kernel (O(L log L)) or masked (dense reference, O(L^2)).
  """

  group: ClassVar[str] = 'sgn'
  attends: ClassVar[bool] = False

  operator: str = 'kernel'
  gated: bool = True
  gate_std: float = 0.02

  @property
  def uses_fft(self) -> bool:
    return not (self.form == 'causal' and self.operator == 'masked')

  def check(self) -> None:
    check_choice('model.sgn.operator', self.operator, ('kernel', 'masked'))
    if self.operator == 'masked' and self.form != 'causal':
      raise UserError(
        f"model.sgn.operator='masked' belongs to form 'causal', but model.form is '{self.form}'"
      )

  @nn.compact
  def __call__(
    self, x_BLD, *, positions_BL=None, mask_BL=None, segments_BL=None, cache=None, train=False
  ) -> Mixed:
    published = self.form == 'published'
    self.refuse(
      cache=cache,
      mask_BL=mask_BL if published else None,
      segments_BL=segments_BL,
      why="use form 'causal' or 'bidirectional' for padding, one document a row, or attention",
    )
    masked = self.form == 'causal' and self.operator == 'masked'
    if masked and x_BLD.shape[1] > self.context:
      raise UserError(
        f"mixer 'sgn' with operator 'masked' has {self.context} positions and was given "
        f"{x_BLD.shape[1]}; operator 'kernel' takes any length"
      )
    points = self.context + (0 if published or masked else 1)
    gate_ND = self.param(
      'gate', nn.initializers.normal(self.gate_std), (points, self.width), self.param_dtype
    )
    if published:
      mix = spectral_gate
    elif masked:
      mix = masked_gate
    else:
      mix = causal_gate if self.form == 'causal' else even_gate
    u_BLD = x_BLD
    if self.gated:
      u_BLD, z_BLD = jnp.split(self.dense(2 * self.width, 'in', False)(x_BLD), 2, axis=-1)
    y_BLD = mix(blank(u_BLD, mask_BL), gate_ND)
    if self.gated:
      y_BLD = self.dense(self.width, 'out', self.out_bias)(y_BLD * nn.silu(z_BLD))
    y_BLD = nn.Dropout(self.dropout)(y_BLD, deterministic=not train)
    debug = {'gate': gate_ND} if self.capture else {}
    return Mixed(blank(y_BLD, mask_BL), Aux({}, {}, debug), None)
