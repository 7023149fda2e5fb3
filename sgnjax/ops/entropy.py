"""Spectral entropy of a token over its width, and the thresholds that route by it."""

import math

import jax
import jax.numpy as jnp
import numpy as np

from sgnjax.errors import UserError
from sgnjax.ops.dtypes import wide
from sgnjax.ops.width import analyse

EPSILON = 1e-8


def spectral_entropy(x: jax.Array, *, basis: str = 'dct', released: bool = False) -> jax.Array:
  """`-sum p log(p + 1e-8) / log D` over the last axis, `p = X^2 / (sum X^2 + 1e-8)`, X = dct(x).

  x: (..., D), D at least 2. Result: (...), in [0, 1] up to the epsilons, in float32 or wider
  whatever x is: a threshold needs the digits. basis: of X, see `sgnjax.ops.width`. released: the
  scaling of the paper's code, coefficients twice the orthonormal ones, 2 sqrt(2) times at k = 0,
  over log D + 1e-8; routes differ where x has a mean. Raises UserError for D < 2. Source:
  CHIAR-Former, spectral router.
  """
  width = x.shape[-1]
  if width < 2:
    raise UserError(f'spectral entropy needs a width of at least 2, but x has width {width}')
  return coefficient_entropy(analyse(x.astype(wide(x.dtype)), basis), released=released)


def coefficient_entropy(coefficients: jax.Array, *, released: bool = False) -> jax.Array:
  """`spectral_entropy` of the orthonormal coefficients of tokens."""
  power = coefficients**2
  log_width = math.log(coefficients.shape[-1])
  if released:
    power = 4 * power.at[..., 0].multiply(2)
    log_width += EPSILON
  p = power / (jnp.sum(power, -1, keepdims=True) + EPSILON)
  return -jnp.sum(p * jnp.log(p + EPSILON), -1) / log_width


def white_entropy(width: int) -> float:
  """Mean spectral entropy of white noise, `1 - (psi(3/2) + ln 2) / ln D`, psi(3/2) the digamma.

  The same in every orthonormal basis. For wide D; exactly `(psi(D/2 + 1) - psi(3/2)) / ln D`, the
  relative powers being Dirichlet(1/2).
  """
  return 1 - (2 - np.euler_gamma - math.log(2)) / math.log(width)


def thresholds(entropy, low: float = 33, high: float = 67) -> tuple[float, float]:
  """The `low`th and `high`th percentile of all given entropies, interpolated linearly, on the host.

  The published threshold is their midpoint. Source: CHIAR-Former, calibration of tau.
  """
  tau_low, tau_high = np.percentile(np.asarray(entropy, np.float64), [low, high])
  return float(tau_low), float(tau_high)
