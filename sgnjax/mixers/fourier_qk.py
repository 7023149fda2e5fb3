"""FourierQK: queries and keys band-pass filtered over the length before the dot product."""

from typing import ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from sgnjax.errors import UserError, check_choice
from sgnjax.mixers.base import Aux, Mixed
from sgnjax.mixers.softmax import Attention
from sgnjax.ops import filters
from sgnjax.ops.attention import attention, visible
from sgnjax.ops.kernels import causal_conv, even_conv, even_kernel, one_sided_kernel

FILTERS = ('gaussian', 'mexican_hat', 'dc', 'nyquist')


def response(kind: str, cycles_HK: jax.Array, n: int, *, length: int, sigma: float, norm: str):
  """Frequency responses `(H, K, F)` of a bank of filters for context n (FourierQK, section 3).

  cycles_HK: centres in cycles per token (gaussian), or scales in tokens (mexican_hat). sigma: bins
  of the context. Evaluated on the length//2 + 1 points of an rFFT grid of `length` (2n for a causal
  kernel that covers the whole context), normalised on the n//2 + 1 bins of the context.
  """

  def raw(length: int):
    points = length // 2 + 1
    frequency_F = jnp.arange(points, dtype=cycles_HK.dtype) / length  # cycles per token
    if kind == 'gaussian':
      flat = filters.gaussian(frequency_F * n, cycles_HK.reshape(-1) * n, sigma)
      return flat.reshape(*cycles_HK.shape, points)
    if kind == 'mexican_hat':
      return filters.mexican_hat(2 * jnp.pi * frequency_F, cycles_HK)
    one_hot = filters.dc if kind == 'dc' else filters.nyquist
    return one_hot(length, cycles_HK.shape[0]).astype(cycles_HK.dtype)[:, None, :]

  return filters.normalise(raw(length), norm, reference=raw(n))


def initial_centres(kind: str, heads: int, n: int, bin: float, periods) -> np.ndarray:
  """Logarithms `(H, K)` of the starting centres (cycles per token) or scales (tokens)."""
  if kind == 'mexican_hat':  # the response peaks at its period: s = sqrt(2) p / 2 pi
    start_K = np.asarray(periods) * (2**0.5 / (2 * np.pi))
  else:
    start_K = np.asarray([bin / n])
  return np.broadcast_to(np.log(start_K)[None, :], (heads, len(start_K)))


class FourierQK(Attention):
  """Softmax attention whose scores are those of filtered queries and keys; V is not filtered.

  Learned centres: heads x filters parameters (`log_centre`; 1 filter, or one a Mexican-hat period).
  Forms: published, circular filter over the whole sequence (leaks unless the filter is dc); causal,
  the one-sided kernel with the filter as real part of its response; bidirectional, the two-sided
  kernel without a causal mask.
  """

  group: ClassVar[str] = 'fourier_qk'

  filter: str = 'gaussian'
  sigma: float = 2.0
  bin: float = 4.0
  learned: bool = True
  norm: str = 'sum'
  periods: tuple[float, ...] = (50.0, 26.0, 10.0, 5.0)

  @property
  def causal(self) -> bool:
    # The published DC filter gives constant scores: uniform attention over the past, no leak. Not
    # so once RoPE turns the constants by their positions.
    uniform = self.filter == 'dc' and self.positions != 'rope'
    return self.form == 'causal' or (self.form == 'published' and uniform)

  @property
  def uses_fft(self) -> bool:
    return True

  def check(self) -> None:
    check_choice('model.fourier_qk.filter', self.filter, FILTERS)
    check_choice('model.fourier_qk.norm', self.norm, ('sum', 'l2'))
    for key in ('sigma', 'bin'):
      if not getattr(self, key) > 0:
        raise UserError(f'model.fourier_qk.{key}={getattr(self, key)}: expected more than 0')
    if not self.periods or not all(period > 0 for period in self.periods):
      raise UserError(f'model.fourier_qk.periods={self.periods}: expected numbers above 0')

  @nn.compact
  def __call__(
    self, x_BLD, *, positions_BL=None, mask_BL=None, segments_BL=None, cache=None, train=False
  ) -> Mixed:
    published = self.form == 'published'
    self.refuse(
      cache=cache,
      mask_BL=mask_BL if published else None,
      segments_BL=segments_BL,
      why="use form 'causal' or 'bidirectional' for padding, and one document a row",
    )
    start = initial_centres(self.filter, self.heads, self.context, self.bin, self.periods)
    if self.learned and self.filter in ('gaussian', 'mexican_hat'):
      log_HK = self.param('log_centre', lambda _: jnp.asarray(start, self.param_dtype))
    else:
      log_HK = jnp.asarray(start, self.param_dtype)
    response_HKF = response(
      self.filter,
      jnp.exp(log_HK),
      self.context,
      length=x_BLD.shape[1] if published else 2 * self.context,
      sigma=self.sigma,
      norm=self.norm,
    )
    q_BLHE, k_BLHE, v_BLHE = (self.split(x_BLD, name) for name in 'qkv')
    scales = response_HKF.shape[1]
    q_BLHF, k_BLHF = (
      self.filtered(a, response_HKF, mask_BL, positions_BL) for a in (q_BLHE, k_BLHE)
    )
    y_BLHE = attention(
      q_BLHF,
      k_BLHF,
      v_BLHE,
      scale=(self.width // self.heads) ** -0.5 / scales,
      visible_BLS=visible(x_BLD.shape[1], causal=self.form != 'bidirectional', mask_BL=mask_BL),
      dropout=self.weight_dropout(train),
    )
    debug = {'response': response_HKF, 'centre': jnp.exp(log_HK)} if self.capture else {}
    return Mixed(self.join(y_BLHE, mask_BL, train), Aux({}, {}, debug), None)

  def filtered(self, x_BLHE, response_HKF, mask_BL, positions_BL):
    """The filtered copies of x, one a scale, side by side as features."""
    if mask_BL is not None:
      x_BLHE = jnp.where(mask_BL[:, :, None, None], x_BLHE, jnp.zeros((), x_BLHE.dtype))
    copies = []
    for k in range(response_HKF.shape[1]):
      response_HF = response_HKF[:, k]
      if self.form == 'published':
        copy = filters.band_pass(x_BLHE, response_HF)
      elif self.form == 'causal':
        copy = causal_conv(x_BLHE, one_sided_kernel(response_HF.T)[:, :, None])
      else:
        copy = even_conv(x_BLHE, even_kernel(response_HF.T)[:, :, None])
      copies.append(self.rotate(copy, positions_BL))
    return jnp.concatenate(copies, axis=-1)
