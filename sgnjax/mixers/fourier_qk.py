"""FourierQK: queries and keys band-pass filtered over the length before the dot product."""

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from sgnjax.errors import UserError, check_choice
from sgnjax.mixers.softmax import Attention
from sgnjax.ops import filters, streaming
from sgnjax.ops.kernels import (
  causal_conv,
  even_kernel,
  odd_kernel,
  one_sided_kernel,
  quadrature_kernel,
  two_sided_conv,
)
from sgnjax.parallel.sequence import PARTS, P, over_length

RESPONSES = ('gaussian', 'mexican_hat', 'paul', 'morlet', 'ladder', 'random', 'dc', 'nyquist')
TAPS = ('gaussian', 'mexican_hat', 'morlet', 'spectral')
COMPLEX_TAPS = ('morlet', 'spectral')
FIXED = ('ladder', 'random', 'dc', 'nyquist')  # without a place of their own, or a fixed one
CHOICES = {
  'filter': (*RESPONSES, 'spectral'),
  'kernel': ('response', 'taps'),
  'scores': ('real', 'analytic'),
  'norm': filters.NORMS,
  'surrogate': filters.SURROGATES,
  'streaming': streaming.FORMS,
}


class FourierQK(Attention):
  """Softmax attention whose scores are those of filtered queries and keys; V is not filtered.

  Scores are the mean over the filters of a head. Beside those of softmax attention, heads x filters
  parameters where centres are learned (`log_centre`: of frequencies in cycles per token, or of
  scales and widths in tokens), none where not; filters: len(bins) for gaussian and spectral,
  len(periods) for mexican_hat, paul and morlet, len(widths) for taps other than spectral, else 1.

  kernel 'response': a frequency response. Forms: published, circular over the whole sequence (leaks
  unless the filter is dc); causal, the one-sided kernel with the response as its real part;
  bidirectional, the two-sided kernel without a causal mask. kernel 'taps': a causal FIR filter of
  unit L2 norm, one and the same in the causal and the published form.
  scores 'analytic': the quadrature branch too, side by side as features; complex taps (morlet,
  spectral) have it by nature, and with scores 'real' leave it out.
  surrogate: phases of queries and keys over the whole sequence are changed, in evaluation alone,
  the random ones alike in all layers. Source: FourierQK, sections 3 and 4, and its ablations.

  Cache: keys and values as of softmax attention, filtered keys (`feature_width` a head), and, with
  T lags (N, or taps - 1), X filters in all (branches x copies) and B examples, numbers a layer:
    ring     queries and keys before the filters, 2 (T + 1) B D, of `dtype`; kernels 2 (T + 1) X H.
    blocked  2 (P + 1) X B D, kernels at most (P + 1) X H (from 8 X H), their responses
             4 P X H + O(log P) X H at most; all float32 or wider.
  P is the power of two from T on. streaming: ring, blocked or the quicker one (auto). Kernels are
  there after the first chunk only. The published dc filter keeps none of this.
  """

  group: ClassVar[str] = 'fourier_qk'

  filter: str = 'gaussian'
  kernel: str = 'response'
  scores: str = 'real'
  bins: tuple[float, ...] = (4.0,)
  sigma: float = 2.0
  periods: tuple[float, ...] = (50.0, 26.0, 10.0, 5.0)
  widths: tuple[float, ...] = (8.0,)
  taps: int = 128
  order: int = 4
  omega0: float = 6.0
  learned: bool = True
  norm: str = 'sum'
  surrogate: str | None = None
  streaming: str = 'auto'

  @property
  def causal(self) -> bool:
    if self.form == 'published' and self.filter == 'dc':
      # Constant scores, surrogate or not: uniform attention over the past, no leak. ALiBi keeps it
      # so; RoPE turns the constants by their positions.
      return self.positions != 'rope'
    return self.surrogate is None and (
      self.form == 'causal' or (self.form == 'published' and self.kernel == 'taps')
    )

  @property
  def uses_fft(self) -> bool:
    return True

  @property
  def placed_by(self) -> str:
    """The option that places this instance's filters, one each; '' where their place is fixed."""
    if self.filter in FIXED:
      return ''
    if self.filter == 'spectral' or (self.filter == 'gaussian' and self.kernel == 'response'):
      return 'bins'
    return 'widths' if self.kernel == 'taps' else 'periods'

  @property
  def copies(self) -> int:
    return len(getattr(self, self.placed_by)) if self.placed_by else 1

  @property
  def branches(self) -> int:
    """The real one and, with analytic scores, its quadrature."""
    return 2 if self.scores == 'analytic' else 1

  @property
  def bank(self) -> int:
    """Filters of a head, branches apart: X."""
    return self.copies * self.branches

  @property
  def feature_width(self) -> int:
    return self.bank * (self.width // self.heads)

  @property
  def circular(self) -> bool:
    """Whether the filters are the published ones, over the whole row."""
    return self.form == 'published' and self.kernel == 'response'

  def check(self) -> None:
    super().check()
    for key, choices in CHOICES.items():
      if key != 'surrogate' or self.surrogate is not None:
        check_choice(f'model.fourier_qk.{key}', getattr(self, key), choices)
    for key in ('sigma', 'omega0', 'taps', 'order'):
      if not getattr(self, key) > 0:
        raise UserError(f'model.fourier_qk.{key}={getattr(self, key)}: expected more than 0')
    for key in ('bins', 'periods', 'widths'):
      values = getattr(self, key)
      zero = key == 'bins' and not self.learned  # a learned centre is kept as its logarithm
      if not values or not all(value > 0 or (zero and value == 0) for value in values):
        what = 'numbers from 0' if zero else 'numbers above 0'
        raise UserError(f'model.fourier_qk.{key}={values}: expected {what}')
    if self.placed_by == 'bins' and max(self.bins) > self.context // 2:
      raise UserError(
        f'model.fourier_qk.bins={self.bins}: a context of {self.context} has bins up to '
        f'{self.context // 2}'
      )
    known = TAPS if self.kernel == 'taps' else RESPONSES
    if self.filter not in known:
      raise UserError(
        f"model.fourier_qk.filter='{self.filter}': kernel '{self.kernel}' has {', '.join(known)}"
      )
    if self.kernel == 'taps' and self.form == 'bidirectional':
      raise UserError(
        "model.fourier_qk.kernel='taps': causal filters, not for form 'bidirectional'; "
        "kernel 'response' has a two-sided one"
      )
    if self.scores == 'analytic' and self.kernel == 'taps' and self.filter not in COMPLEX_TAPS:
      raise UserError(
        f"model.fourier_qk.scores='analytic': the taps of '{self.filter}' are real; "
        f'complex ones: {", ".join(COMPLEX_TAPS)}'
      )
    if self.filter == 'spectral' and self.context < 6:
      raise UserError(f"model.fourier_qk.filter='spectral': a context of {self.context} is below 6")

  def honours(self, mask_BL, segments_BL) -> None:
    super().honours(mask_BL, segments_BL)
    why = "use form 'causal' or 'bidirectional'"
    why = why if self.circular else 'a surrogate turns whole rows'
    # The published dc filter is blind: its scores are constant, whatever a row is padded with.
    if mask_BL is not None and not self.causal and (self.circular or self.surrogate):
      self.refuse(mask_BL=mask_BL, why=why)
    self.refuse(segments_BL=segments_BL, why='its filters run over the row: one document a row')

  def qk_features(self, q_BLHE, k_BLHE, *, positions_BL, mask_BL, segments_BL, state, train):
    if mask_BL is not None:
      zero = jnp.zeros((), q_BLHE.dtype)
      q_BLHE, k_BLHE = (jnp.where(mask_BL[:, :, None, None], a, zero) for a in (q_BLHE, k_BLHE))
    if self.surrogate and state is None and not train:
      q_BLHE, k_BLHE = filters.surrogate(self.surrogate, q_BLHE, k_BLHE)
    # Queries and keys side by side: one transform of them serves all filters, which are axis X.
    both_BLHE = jnp.concatenate([q_BLHE, k_BLHE], axis=-1)
    batch, length, *channels = both_BLHE.shape
    debug = {}
    if self.circular and state is not None:  # the published dc filter, whose scores are a constant
      both_BLXHE = jnp.zeros((batch, length, self.bank, *channels), both_BLHE.dtype)
    elif self.circular:
      response_FXH, debug = self.responses(length)
      both_BLXHE = over_length(
        lambda both_BL1HE, response_FXH: filters.band_pass(both_BL1HE[:, :, 0], response_FXH),
        both_BLHE[:, :, None],
        response_FXH,
        specs=(PARTS, P(None, None, 'tensor')),
      )
    elif state is None:
      past_TXH1, future_TXH1, debug = self.kernels()
      kernels = [past_TXH1] if future_TXH1 is None else [past_TXH1, future_TXH1]
      both_BLXHE = over_length(
        causal_conv if future_TXH1 is None else two_sided_conv,
        both_BLHE[:, :, None],
        *kernels,
        specs=(PARTS, *(P(None, None, 'tensor') for _ in kernels)),
      )
    else:
      past_TXH1 = None
      if streaming.fresh(state) or self.capture:
        past_TXH1, _, debug = self.kernels()
      both_BLXHE, state = streaming.stream(state, both_BLHE, lambda: past_TXH1, mask_BL)

    def side_by_side(x_BLXHE):
      copies = [self.rotate(x_BLXHE[:, :, i], positions_BL) for i in range(self.bank)]
      return jnp.concatenate(copies, axis=-1)

    q_BLXHE, k_BLXHE = jnp.split(both_BLXHE, 2, axis=-1)
    return side_by_side(q_BLXHE), side_by_side(k_BLXHE), state, debug

  def init_filter(self, batch: int, dtype):
    if self.circular:
      return ()
    lags = self.taps - 1 if self.kernel == 'taps' else self.context
    channels = (self.heads, 2 * (self.width // self.heads))
    return streaming.begin(self.streaming, batch, lags, self.bank, channels, dtype)

  def centres(self) -> jax.Array | None:
    """Centres in cycles per token, or scales or widths in tokens: (H, K); None without any."""
    if self.filter == 'ladder':
      start_HK = filters.ladder(self.context, self.heads)[:, None] / self.context
    elif self.placed_by:
      unit = {'bins': 1 / self.context, 'widths': 1.0, 'periods': self.peak / (2 * np.pi)}
      start_K = np.asarray(getattr(self, self.placed_by), np.float64) * unit[self.placed_by]
      start_HK = np.broadcast_to(start_K[None, :], (self.heads, len(start_K)))
    else:
      return None
    if self.learned and self.placed_by:
      return jnp.exp(
        self.param('log_centre', lambda _: jnp.asarray(np.log(start_HK), self.param_dtype))
      )
    return jnp.asarray(start_HK, self.param_dtype)

  @property
  def peak(self) -> float:
    """Where a response over (scale x frequency) peaks, radians: a scale of peak p / 2 pi has p."""
    return {'mexican_hat': 2**0.5, 'paul': self.order, 'morlet': self.omega0}.get(self.filter, 1.0)

  def response(self, centre_HK, length: int) -> jax.Array:
    """Responses (H, K, length//2 + 1) on the rFFT grid of `length`.

    Their norm is that on the n//2 + 1 bins of the context n; a causal kernel that covers it whole
    needs a grid of 2n.
    """
    n = self.context

    def raw(length):
      dtype = self.param_dtype
      if centre_HK is None:
        one = {'random': filters.random_response, 'dc': filters.dc, 'nyquist': filters.nyquist}
        return one[self.filter](length, self.heads).astype(dtype)[:, None, :]
      frequency_F = jnp.arange(length // 2 + 1, dtype=dtype) / length  # cycles per token
      omega_F = 2 * jnp.pi * frequency_F
      if self.filter == 'mexican_hat':
        return filters.mexican_hat(omega_F, centre_HK)
      if self.filter == 'paul':
        return filters.paul(omega_F, centre_HK, self.order)
      if self.filter == 'morlet':
        return filters.morlet(omega_F, centre_HK, self.omega0)
      return filters.gaussian(frequency_F * n, centre_HK * n, self.sigma)

    return filters.normalise(raw(length), self.norm, reference=raw(n))

  def tap_weights(self, centre_HK) -> jax.Array:
    """Taps (1 or 2, H, K, taps): real, and with analytic scores imaginary, part."""
    if self.filter == 'gaussian':
      return filters.half_gaussian(centre_HK, self.taps)
    if self.filter == 'mexican_hat':
      return filters.half_mexican_hat(centre_HK, self.taps)
    width_HK, omega_HK = centre_HK, self.omega0 / centre_HK
    if self.filter == 'spectral':  # the released code keeps the centre inside these bins
      bin_HK = jnp.clip(centre_HK * self.context, 2, self.context // 2 - 1)
      omega_HK = bin_HK * (2 * np.pi / self.context)
      width_HK = jnp.full_like(centre_HK, self.context / (2 * np.pi * self.sigma))
    taps_PHKT = filters.half_morlet(omega_HK, width_HK, self.taps)
    return taps_PHKT if self.scores == 'analytic' else taps_PHKT[:1]

  def responses(self, length: int) -> tuple[jax.Array, dict[str, jax.Array]]:
    """The published filters for rows of a length, (F, X, H), and debug arrays."""
    centre_HK = self.centres()
    response_HKF = self.response(centre_HK, length)
    real_FHK = jnp.moveaxis(response_HKF, -1, 0)
    parts = [real_FHK]
    if self.branches == 2:
      zero_FHK = jnp.zeros_like(real_FHK)
      parts = [jax.lax.complex(real_FHK, zero_FHK), jax.lax.complex(zero_FHK, real_FHK)]
    debug = self.report(centre_HK, response_HKF=response_HKF) if self.capture else {}
    return banked(parts), debug

  def kernels(self) -> tuple[jax.Array, jax.Array | None, dict[str, jax.Array]]:
    """Kernels over the past and, bidirectional, over the future, (T, X, H, 1); debug arrays."""
    centre_HK, future_TXH1 = self.centres(), None
    if self.kernel == 'taps':
      taps_PHKT = self.tap_weights(centre_HK)
      past_TXH1 = banked([jnp.moveaxis(part_HKT, -1, 0) for part_HKT in taps_PHKT])[..., None]
      given = {'taps_PHKT': taps_PHKT}
    else:
      response_HKF = self.response(centre_HK, 2 * self.context)
      given, response_FHK = {'response_HKF': response_HKF}, jnp.moveaxis(response_HKF, -1, 0)
      two_sided = self.form == 'bidirectional'
      makers = (even_kernel, odd_kernel) if two_sided else (one_sided_kernel, quadrature_kernel)
      parts = [make(response_FHK) for make in makers[: self.branches]]
      past_TXH1 = banked(parts)[..., None]
      if two_sided:
        future_TXH1 = banked([parts[0], *(-odd_THK for odd_THK in parts[1:])])[..., None]
    debug = self.report(centre_HK, **given) if self.capture else {}
    return past_TXH1, future_TXH1, debug

  def report(self, centre_HK, *, response_HKF=None, taps_PHKT=None) -> dict[str, jax.Array]:
    """Debug arrays: response, centre, and of each head and filter coverage, period, admissibility.

    Of a causal kernel the response is what it was made from; its admissibility is its own.
    """
    n = self.context
    fine_F = np.arange(4 * max(n, self.taps) + 1) / (8 * max(n, self.taps))
    if taps_PHKT is not None:
      whole_HKF = filters.taps_response(taps_PHKT, fine_F)
      bins_HKF = filters.taps_response(taps_PHKT, np.arange(n // 2 + 1) / n)
      response_HKF = jnp.abs(filters.taps_response(taps_PHKT, np.arange(n + 1) / (2 * n)))
    else:
      whole_HKF, bins_HKF = response_HKF, self.response(centre_HK, n)
      if self.form == 'causal':
        kernel_HKT = jnp.moveaxis(one_sided_kernel(jnp.moveaxis(response_HKF, -1, 0)), 0, -1)
        whole_HKF = filters.taps_response(kernel_HKT[None], fine_F)
    return ({} if centre_HK is None else {'centre': centre_HK}) | {
      'response': response_HKF,
      'coverage': filters.coverage(bins_HKF),
      'period': filters.effective_period(bins_HKF, np.arange(n // 2 + 1) / n),
      'admissibility': filters.admissibility(whole_HKF),
    }


def banked(parts: list[jax.Array]) -> jax.Array:
  """The branches' (Z, H, K) as one bank (Z, X, H): of each filter its branches in turn."""
  stacked_ZHKP = jnp.stack(parts, axis=-1)
  return jnp.moveaxis(stacked_ZHKP.reshape(*stacked_ZHKP.shape[:2], -1), 1, 2)
