import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.fft

from sgnjax.errors import UserError
from sgnjax.ops.kernels import (
  causal_conv,
  causal_conv_direct,
  complex_kernel,
  even_conv,
  even_conv_2d,
  even_kernel,
  even_kernel_2d,
  fast_length,
  odd_kernel,
  one_sided_kernel,
  quadrature_kernel,
  truncated_dct_operator,
  two_sided_conv,
)

pytestmark = pytest.mark.usefixtures('float64')

LENGTHS = (1, 2, 31)
TAPS = (1, 2, 13, 100)  # of 31 tokens, the last takes complex FFTs


def normal(*shape, seed=0):
  return np.random.default_rng(seed).normal(size=shape)


def causal_sum(x, h):
  y = np.zeros(x.shape)
  for t in range(x.shape[1]):
    for lag in range(min(t + 1, len(h))):
      y[:, t] += h[lag] * x[:, t - lag]
  return y


def even_sum(x, r):
  y = np.zeros(x.shape)
  for t in range(x.shape[1]):
    for s in range(x.shape[1]):
      if abs(t - s) < len(r):
        y[:, t] += r[abs(t - s)] * x[:, s]
  return y


@pytest.mark.parametrize('n', [1, 2, 7, 64])
def test_one_sided_kernel_has_the_gate_as_real_part(n):
  gate = normal(n + 1, 3)
  h = np.asarray(one_sided_kernel(jnp.asarray(gate)))
  assert h.shape == gate.shape
  np.testing.assert_allclose(np.fft.rfft(h, 2 * n, axis=0).real, gate, atol=1e-12)


@pytest.mark.parametrize('n', [1, 2, 7, 64])
def test_even_kernel_is_half_of_the_period_of_a_real_response(n):
  gate = normal(n + 1, 3)
  r = np.asarray(even_kernel(jnp.asarray(gate)))
  period = np.concatenate([r, r[1:-1][::-1]])
  np.testing.assert_allclose(np.fft.fft(period, axis=0)[: n + 1], gate, atol=1e-12)


@pytest.mark.parametrize('kernel', [one_sided_kernel, even_kernel])
@pytest.mark.parametrize('n', [1, 7, 64])
def test_gate_of_ones_is_the_identity(n, kernel):
  np.testing.assert_allclose(kernel(jnp.ones((n + 1, 2))), np.eye(n + 1)[:, [0, 0]], atol=1e-15)


@pytest.mark.parametrize('kernel', [one_sided_kernel, even_kernel])
def test_kernels_keep_dtype_and_refuse_one_point(kernel):
  assert kernel(jnp.ones((5, 2), jnp.bfloat16)).dtype == jnp.bfloat16
  with pytest.raises(UserError, match='at least 2 points'):
    kernel(jnp.ones((1, 2)))


@pytest.mark.parametrize('taps', TAPS)
@pytest.mark.parametrize('length', LENGTHS)
def test_convolutions_agree_with_explicit_sums(length, taps):
  x, h = normal(2, length, 3), normal(taps, 3, seed=1)
  for conv, truth in (
    (causal_conv, causal_sum),
    (causal_conv_direct, causal_sum),
    (even_conv, even_sum),
  ):
    np.testing.assert_allclose(conv(jnp.asarray(x), jnp.asarray(h)), truth(x, h), atol=1e-12)


@pytest.mark.parametrize(
  ('conv', 'truth'),
  [(causal_conv, causal_sum), (causal_conv_direct, causal_sum), (even_conv, even_sum)],
)
@pytest.mark.parametrize('channels', [(4, 1), (1, 3), (4, 3)])
def test_kernels_may_be_shared_by_channels(conv, truth, channels):
  x, h = normal(2, 11, 4, 3), normal(7, *channels, seed=1)
  np.testing.assert_allclose(conv(jnp.asarray(x), jnp.asarray(h)), truth(x, h), atol=1e-13)


@pytest.mark.parametrize('conv', [causal_conv, causal_conv_direct, even_conv])
@pytest.mark.parametrize(('dtype', 'tolerance'), [(jnp.float32, 1e-6), (jnp.bfloat16, 5e-3)])
def test_narrow_dtypes_are_kept_with_float32_inside(conv, dtype, tolerance):
  x, h = jnp.asarray(normal(2, 64, 3), dtype), jnp.asarray(normal(64, 3, seed=1), dtype)
  y = conv(x, h)
  assert y.dtype == dtype
  truth = np.asarray(conv(x.astype(jnp.float64), h.astype(jnp.float64)))
  error = np.abs(np.asarray(y, np.float64) - truth).max() / np.abs(truth).max()
  assert error < tolerance


def test_float32_kernel_keeps_its_digits_beside_a_bfloat16_input():
  x = jnp.ones((1, 2, 1), jnp.bfloat16)
  small = 2.0**-12  # lost if 1 + small were rounded to the dtype of x
  h = jnp.asarray([[1 + small], [-1]], jnp.float32)
  np.testing.assert_allclose(float(causal_conv(x, h)[0, 1, 0]), small, rtol=1e-2)


@pytest.mark.parametrize('conv', [causal_conv, causal_conv_direct])
@pytest.mark.parametrize('t', [0, 5, 30])
def test_the_future_has_no_influence(conv, t):
  x, h = normal(1, 31, 2), jnp.asarray(normal(31, 2, seed=1))
  changed = x.copy()
  changed[:, t + 1 :] = 100 * normal(1, 31 - t - 1, 2, seed=2)
  before, after = (np.asarray(conv(jnp.asarray(a), h))[:, : t + 1] for a in (x, changed))
  if conv is causal_conv_direct:
    np.testing.assert_array_equal(before, after)
  else:
    np.testing.assert_allclose(before, after, atol=1e-12 * 100)


def test_even_conv_ignores_padding():
  x, r = normal(2, 19, 3), jnp.asarray(normal(65, 3, seed=1))
  padded = np.concatenate([x, np.zeros((2, 30, 3))], 1)
  short = even_conv(jnp.asarray(x), r)
  np.testing.assert_allclose(even_conv(jnp.asarray(padded), r)[:, :19], short, atol=1e-12)


def test_gradients_agree_with_the_direct_form():
  x, h = jnp.asarray(normal(1, 9, 2)), jnp.asarray(normal(5, 2, seed=1))
  weight = jnp.asarray(normal(1, 9, 2, seed=2))
  grads = [
    jax.jit(jax.grad(lambda x, h, conv=conv: jnp.sum(weight * conv(x, h) ** 2), (0, 1)))(x, h)
    for conv in (causal_conv, causal_conv_direct)
  ]
  for fft, direct in zip(*grads, strict=True):
    np.testing.assert_allclose(fft, direct, atol=1e-11)


def test_rank_of_the_kernel_is_checked():
  with pytest.raises(ValueError, match='does not fit'):
    causal_conv(jnp.ones((1, 4, 2, 3)), jnp.ones((4, 3)))


@pytest.mark.parametrize('n', [1, 2, 7, 32])
def test_truncated_operator_is_the_published_one_below_the_diagonal(n):
  gate = normal(n, 3)
  c = scipy.fft.dct(np.eye(n), axis=0, norm='ortho')
  truth = np.einsum('kt,kd,ks->tsd', c, gate, c) * np.tril(np.ones((n, n)))[:, :, None]
  ours = np.asarray(truncated_dct_operator(jnp.asarray(gate)))
  np.testing.assert_allclose(ours, truth, atol=1e-13)
  np.testing.assert_array_equal(ours[np.triu_indices(n, 1)], 0)


def test_published_operator_is_toeplitz_plus_reflection():
  n = 16
  gate = normal(n, 2)
  a_K = np.where(np.arange(n) == 0, 1, 2) / n
  tau = np.arange(2 * n)
  g = np.cos(np.pi * tau[:, None] * np.arange(n)[None, :] / n) @ (a_K[:, None] * gate)
  ours = np.asarray(truncated_dct_operator(jnp.asarray(gate)))
  for t in range(n):
    for s in range(t + 1):
      np.testing.assert_allclose(ours[t, s], (g[t - s] + g[t + s + 1]) / 2, atol=1e-14)


def test_fast_lengths_are_the_smallest_smooth_numbers():
  smooth = sorted(2**a * 3**b * 5**c for a in range(13) for b in range(9) for c in range(7))
  for n in range(1, 2000):
    assert fast_length(n) == next(m for m in smooth if m >= n)


@pytest.mark.parametrize('n', [1, 2, 7, 64])
def test_quadrature_kernel_has_the_response_as_imaginary_part(n):
  response = normal(n + 1, 3)
  h = np.asarray(quadrature_kernel(jnp.asarray(response)))
  spectrum = np.fft.rfft(h, 2 * n, axis=0)
  np.testing.assert_allclose(spectrum.imag[1:n], response[1:n], atol=1e-12)
  np.testing.assert_allclose(spectrum.imag[[0, n]], 0, atol=1e-12)  # both ends give nothing
  # Published convention: the circular kernel -(2 / T) sum of w_k sin(2 pi k tau / T), T = 2n.
  k, lags = np.arange(1, n), np.arange(n + 1)
  sines = np.sin(np.pi / n * lags[:, None] * k[None, :])
  np.testing.assert_allclose(h, -2 / n * sines @ response[1:n], atol=1e-12)


@pytest.mark.parametrize('length', LENGTHS)
def test_odd_kernel_on_both_sides(length):
  x, r = normal(2, length, 3), np.asarray(odd_kernel(jnp.asarray(normal(14, 3))))
  truth = np.zeros(x.shape)
  for t in range(length):
    for s in range(length):
      if 0 < abs(t - s) < len(r):
        truth[:, t] += np.sign(t - s) * r[abs(t - s)] * x[:, s]
  np.testing.assert_allclose(
    two_sided_conv(jnp.asarray(x), jnp.asarray(r), -jnp.asarray(r)), truth, atol=1e-12
  )


@pytest.mark.parametrize('n', [1, 2, 7, 64])
def test_complex_kernel_is_the_whole_period_of_its_response(n):
  real, imag = normal(n + 1, 3), normal(n + 1, 3, seed=1)
  past, future = (np.asarray(a) for a in complex_kernel(jnp.asarray(real), jnp.asarray(imag)))
  period = np.fft.irfft(real + 1j * imag, 2 * n, axis=0)
  np.testing.assert_allclose(past, period[: n + 1], atol=1e-13)
  np.testing.assert_allclose(future, np.roll(period[::-1], 1, axis=0)[: n + 1], atol=1e-13)


@pytest.mark.parametrize('n', [1, 7, 64])
def test_complex_kernel_keeps_a_response_that_is_causal(n):
  h = normal(n + 1, 2)
  response = np.fft.rfft(h, 2 * n, axis=0)
  past, _ = complex_kernel(jnp.asarray(response.real), jnp.asarray(response.imag))
  np.testing.assert_allclose(past, h, atol=1e-13)


@pytest.mark.parametrize('taps', TAPS)
@pytest.mark.parametrize('length', LENGTHS)
def test_two_sided_conv_is_the_sum_over_both_sides(length, taps):
  x, past, future = normal(2, length, 3), normal(taps, 3, seed=1), normal(taps, 3, seed=2)
  future[0] = past[0]
  truth = causal_sum(x, past) + causal_sum(x[:, ::-1], future)[:, ::-1] - past[0] * x
  ours = two_sided_conv(*map(jnp.asarray, (x, past, future)))
  np.testing.assert_allclose(ours, truth, atol=1e-12)
  even = two_sided_conv(*map(jnp.asarray, (x, past, past)))
  np.testing.assert_allclose(even, even_conv(jnp.asarray(x), jnp.asarray(past)), atol=1e-12)


@pytest.mark.parametrize(('grid', 'taps'), [((1, 1), (1, 2)), ((3, 5), (4, 6)), ((4, 3), (2, 7))])
def test_even_conv_2d_is_the_sum_over_the_grid(grid, taps):
  x, r = normal(2, *grid, 3), normal(*taps, 3, seed=1)
  truth = np.zeros(x.shape)
  for i, j in np.ndindex(*grid):
    for k, m in np.ndindex(*grid):
      if abs(i - k) < taps[0] and abs(j - m) < taps[1]:
        truth[:, i, j] += r[abs(i - k), abs(j - m)] * x[:, k, m]
  np.testing.assert_allclose(even_conv_2d(jnp.asarray(x), jnp.asarray(r)), truth, atol=1e-12)


def test_even_kernel_2d_of_a_product_is_the_product():
  a, b = normal(4, 1, 2), normal(1, 6, 2, seed=1)
  along = np.asarray(even_kernel(jnp.asarray(a[:, 0]))), np.asarray(even_kernel(jnp.asarray(b[0])))
  truth = along[0][:, None] * along[1][None]
  np.testing.assert_allclose(even_kernel_2d(jnp.asarray(a * b)), truth, atol=1e-14)
