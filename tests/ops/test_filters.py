import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sgnjax.errors import UserError
from sgnjax.ops import filters

pytestmark = pytest.mark.usefixtures('float64')

BINS = 33


def published(name, data):
  """The response of a golden file, normalised, from its parameters."""
  length, heads = data['x'].shape[1], 4
  if name.endswith(('dc', 'nyquist')):
    raw = (filters.dc if name.endswith('dc') else filters.nyquist)(length, heads)
  elif name.endswith('mexhat4'):
    omega_F = 2 * jnp.pi * jnp.arange(BINS, dtype=jnp.float64) / length
    raw = filters.mexican_hat(omega_F, jnp.exp(jnp.asarray(data['log_scales'], jnp.float64)))
  else:
    centre_H = jnp.exp(jnp.asarray(data['log_freq'], jnp.float64))
    raw = filters.gaussian(jnp.arange(BINS, dtype=jnp.float64), centre_H, float(data['sigma']))
  return filters.normalise(raw, 'l2' if name.startswith('fqk5a') else 'sum')


NAMES = ['fqk5b_gauss2', 'fqk5b_gauss0p5', 'fqk5b_gauss16', 'fqk5b_mexhat4']
NAMES += ['fqk5b_dc', 'fqk5b_nyquist', 'fqk5a_learned']


def band_pass(x_BLHE, response_HF):
  """The library's, for a bank of one filter a head."""
  bank_F1H = jnp.asarray(np.asarray(response_HF).T[:, None])
  return filters.band_pass(jnp.asarray(x_BLHE), bank_F1H)[:, :, 0]


@pytest.mark.parametrize('name', NAMES)
def test_golden_filter_and_filtered_queries(golden, name):
  data = golden(name)
  response = published(name, data)
  np.testing.assert_allclose(response, data['filter'], atol=1e-7)
  x = data['x'].astype(np.float64)
  q_BLHE = (x @ data['w_q'].astype(np.float64)).reshape(*x.shape[:2], 4, 8)
  first = response[:, 0] if response.ndim == 3 else response
  ours = band_pass(q_BLHE, first)
  truth = data['q_filt_b0_k0' if response.ndim == 3 else 'q_filt_b0']
  np.testing.assert_allclose(np.asarray(ours)[0].transpose(1, 0, 2), truth, atol=3e-7)


@pytest.mark.parametrize('length', [1, 2, 7, 8, 31])
def test_band_pass_is_a_circular_convolution(length):
  rng = np.random.default_rng(length)
  x, response = rng.normal(size=(2, length, 3, 2)), rng.uniform(size=(3, length // 2 + 1))
  c = np.fft.irfft(response, length)
  truth = np.zeros(x.shape)
  for t in range(length):
    for s in range(length):
      truth[:, t] += c[:, (t - s) % length, None] * x[:, s]
  np.testing.assert_allclose(band_pass(x, response), truth, atol=1e-13)


@pytest.mark.parametrize('dtype', [jnp.float32, jnp.bfloat16])
def test_band_pass_keeps_dtype(dtype):
  x = jnp.asarray(np.random.default_rng(0).normal(size=(1, 16, 2, 3)), dtype)
  y = band_pass(x, np.ones((2, 9), np.float32))
  assert y.dtype == dtype
  np.testing.assert_allclose(np.asarray(y, np.float64), np.asarray(x, np.float64), atol=1e-6)


@pytest.mark.parametrize('period', [50.0, 26.0, 10.0, 5.0])
def test_mexican_hat_peaks_at_its_period(period):
  frequency = jnp.arange(50001, dtype=jnp.float64) / 100000
  scale = jnp.asarray([2**0.5 * period / (2 * np.pi)], jnp.float64)
  response = filters.mexican_hat(2 * jnp.pi * frequency, scale)
  assert response.shape == (1, 50001)
  assert float(frequency[jnp.argmax(response[0])]) == pytest.approx(1 / period, abs=2e-5)


@pytest.mark.parametrize(('kind', 'order'), [('sum', 1), ('l2', 2)])
def test_normalise_to_unit_norm_with_a_floor(kind, order):
  response = jnp.asarray(np.random.default_rng(0).uniform(size=(3, 4, 9)))
  unit = filters.normalise(response, kind)
  np.testing.assert_allclose(np.linalg.norm(unit, order, axis=-1), 1, atol=1e-14)
  tiny = filters.normalise(jnp.full((1, 4), 1e-12), kind)
  np.testing.assert_allclose(tiny, 1e-4, rtol=1e-12)
  grad = jax.grad(lambda r: jnp.sum(filters.normalise(r, kind)))(jnp.zeros((1, 4)))
  np.testing.assert_allclose(grad, 1e8)


def test_normalise_by_a_reference_on_another_grid():
  fine, coarse = jnp.ones((2, 17)), jnp.full((2, 9), 2.0)
  np.testing.assert_allclose(filters.normalise(fine, 'sum', reference=coarse), 1 / 18)


@pytest.mark.parametrize('kind', filters.NORMS)
def test_a_filter_between_the_bins_of_the_reference_does_not_explode(kind):
  raw = [
    filters.gaussian(bin_F, jnp.full((1,), 4.5), 0.05)
    for bin_F in (jnp.arange(0, 9, 0.5), jnp.arange(9.0))
  ]
  unit = filters.normalise(raw[0], kind, reference=raw[1])
  np.testing.assert_allclose(unit, 2 * np.eye(18)[[9]], atol=1e-12)


def test_unknown_norm_is_named():
  with pytest.raises(UserError, match="'l3' is not known; did you mean 'l2'"):
    filters.normalise(jnp.ones((1, 4)), 'l3')


@pytest.mark.parametrize('n', [8, 9])
def test_one_hot_filters(n):
  np.testing.assert_array_equal(filters.dc(n, 2), np.eye(n // 2 + 1)[[0, 0]])
  np.testing.assert_array_equal(filters.nyquist(n, 2), np.eye(n // 2 + 1)[[-1, -1]])


@pytest.mark.parametrize(
  ('response', 'wavelet'),
  [
    (lambda w: filters.mexican_hat(w, jnp.ones(())), lambda t: (1 - t**2) * np.exp(-(t**2) / 2)),
    (lambda w: filters.paul(w, jnp.ones(()), 4), lambda t: (1 - 1j * t) ** -5.0),
    (lambda w: filters.morlet(w, jnp.ones(()), 6.0), lambda t: np.exp(6j * t - t**2 / 2)),
  ],
)
def test_responses_are_the_fourier_transforms_of_their_wavelets(response, wavelet):
  omega_F, t_T = np.linspace(0, 9, 91), np.linspace(-200, 200, 40001)
  transform_F = np.array([np.sum(wavelet(t_T) * np.exp(-1j * w * t_T)) for w in omega_F])
  ours_F = np.asarray(response(jnp.asarray(omega_F)))
  assert np.max(np.abs(transform_F.imag)) < 1e-6 * np.max(transform_F.real)
  np.testing.assert_allclose(
    ours_F / ours_F.max(), transform_F.real / transform_F.real.max(), atol=1e-7
  )


@pytest.mark.parametrize(
  ('response', 'scale'),
  [
    (lambda w, s: filters.paul(w, s, 1), 1),
    (lambda w, s: filters.paul(w, s, 9), 9),
    (lambda w, s: filters.morlet(w, s, 6.0), 6.0),
  ],
)
def test_paul_and_morlet_peak_at_their_periods(response, scale):
  frequency = jnp.arange(50001, dtype=jnp.float64) / 100000
  period_P = jnp.asarray([50.0, 5.0])
  value_PF = response(2 * jnp.pi * frequency, scale * period_P / (2 * np.pi))
  np.testing.assert_allclose(frequency[jnp.argmax(value_PF, -1)], 1 / period_P, atol=2e-5)


@pytest.mark.parametrize('kind', filters.NORMS)
def test_a_response_off_the_grid_is_zero_and_gradients_are_finite(kind):
  """Float32 underflow: far centres, narrow widths between two bins, huge and tiny scales."""
  bin_F = jnp.arange(BINS, dtype=jnp.float32)
  far_X = jnp.asarray([1e4, 200.0, 4.5], jnp.float32)
  scale_X = jnp.asarray([1e-6, 1e6], jnp.float32)
  omega_F = bin_F * (np.pi / (BINS - 1))
  cases = {
    'gaussian': (lambda x: filters.gaussian(bin_F, x, 0.01), far_X),
    'mexican_hat': (lambda x: filters.mexican_hat(omega_F, x), scale_X),
    'paul': (lambda x: filters.paul(omega_F, x, 40), scale_X),
    'morlet': (lambda x: filters.morlet(omega_F, x, 6.0), scale_X),
  }
  for name, (raw, x) in cases.items():
    unit = filters.normalise(raw(x), kind)
    assert unit.dtype == jnp.float32, name
    assert np.all(np.isfinite(unit)), name
    gradient = jax.grad(lambda x, raw=raw: jnp.sum(filters.normalise(raw(x), kind) ** 2))(x)
    assert np.all(np.isfinite(gradient)), name
  assert np.all(np.asarray(filters.normalise(cases['gaussian'][0](far_X), kind)) == 0)


def test_ladder_gives_heads_the_rungs_that_the_context_has():
  np.testing.assert_array_equal(filters.ladder(256, 8), [0, 1, 4, 16, 64, 128, 0, 1])
  np.testing.assert_array_equal(filters.ladder(25, 6), [0, 1, 4, 12, 12, 12])


def test_random_response_is_one_function_of_frequency():
  fine_HF, coarse_HF = filters.random_response(512, 3), filters.random_response(256, 3)
  np.testing.assert_allclose(fine_HF[:, ::2], coarse_HF, atol=1e-15)
  np.testing.assert_allclose(filters.random_response(64, 3), coarse_HF[:, ::4], atol=1e-15)
  assert np.all(np.asarray(fine_HF) >= 0)
  assert np.all(np.std(coarse_HF, axis=1) > 0.25)
  assert np.max(np.abs(np.corrcoef(coarse_HF) - np.eye(3))) < 0.3


TAPS = ('fqk5a_morlet_fixed', 'fqk5a_morlet_learned', 'fqk5a_causal_spectral')


@pytest.mark.parametrize('name', TAPS)
def test_golden_taps(golden, name):
  g = golden(name)
  if name == 'fqk5a_causal_spectral':
    bin_H = np.clip(np.exp(g['log_freq'].astype(np.float64)), 2, 31)
    omega_H, width_H = 2 * np.pi * bin_H / 64, np.full(4, 64 / (2 * np.pi * g['sigma_f']))
  else:
    width_H = np.exp(g['log_scale'].astype(np.float64)) if 'log_scale' in g else g['scale'][None]
    omega_H = g['omega0'] / width_H
  ours = filters.half_morlet(jnp.asarray(omega_H), jnp.asarray(width_H), int(g['taps']))
  truth = np.stack([g['kernel_re'], g['kernel_im']]).reshape(ours.shape)
  np.testing.assert_allclose(ours, truth, atol=1e-7)


@pytest.mark.parametrize('a', [0.01, 1.0, 8.0, 500.0])
def test_half_gaussian_and_half_mexican_hat(a):
  t, width = np.arange(20), jnp.asarray([[a]])
  gauss = np.exp(-((t / a) ** 2) / 2)
  for ours, truth in (
    (filters.half_gaussian(width, 20), gauss),
    (filters.half_mexican_hat(width, 20), (1 - (t / a) ** 2) * gauss),
  ):
    assert ours.shape == (1, 1, 1, 20)
    np.testing.assert_allclose(ours[0, 0, 0], truth / np.linalg.norm(truth), atol=1e-14)


def test_taps_response_is_the_dft_of_complex_taps():
  taps = np.random.default_rng(0).normal(size=(2, 3, 10))
  truth = np.fft.fft(taps[0] + 1j * taps[1], 16)[:, :9]
  ours = filters.taps_response(jnp.asarray(taps), np.arange(9) / 16)
  np.testing.assert_allclose(ours, truth, atol=1e-13)
  real = filters.taps_response(jnp.asarray(taps[:1]), np.arange(9) / 16)
  np.testing.assert_allclose(real, np.fft.rfft(taps[0], 16), atol=1e-13)


def test_coverage_of_the_papers_filters():
  """Half of the peak: 5, 23 and 1 of 129 bins; hats of periods 50 to 5 cover 5 % to 46 % each."""
  bin_F = jnp.arange(129.0)
  for sigma, bins in ((0.5, 1), (2.0, 5), (16.0, 23)):
    response = filters.gaussian(bin_F, jnp.full((1,), 4.0), sigma)
    np.testing.assert_allclose(filters.coverage(response) * 129, bins, rtol=1e-12)
  scale_K = np.asarray([50.0, 26.0, 10.0, 5.0]) * 2**0.5 / (2 * np.pi)
  hats_KF = filters.mexican_hat(2 * jnp.pi * bin_F / 256, jnp.asarray(scale_K))
  np.testing.assert_allclose(filters.coverage(hats_KF) * 129, [6, 12, 29, 59], rtol=1e-12)


def test_half_wavelets_are_not_admissible():
  """0.13 to 0.17 for the Morlet; the Mexican hat's 0.06 is that of a = 8 alone."""
  frequency_F = np.arange(2**15 + 1) / 2**16
  width_A = jnp.asarray([2.0, 4.0, 8.0, 16.0, 32.0])
  morlet_AF = filters.taps_response(filters.half_morlet(6 / width_A, width_A, 128), frequency_F)
  expected = [0.1668, 0.1357, 0.1333, 0.1344, 0.1355]
  np.testing.assert_allclose(filters.admissibility(morlet_AF), expected, atol=1e-4)
  hat = filters.half_mexican_hat(width_A, 128)
  hat_AF = filters.taps_response(hat, frequency_F)
  expected = [0.2125, 0.1183, 0.0627, 0.0323, 0.0179]
  np.testing.assert_allclose(filters.admissibility(hat_AF), expected, atol=1e-4)
  halved = filters.taps_response(hat.at[..., 0].multiply(0.5)[:, :4], frequency_F)
  assert float(jnp.max(filters.admissibility(halved))) < 1e-3  # half of lag 0 is what is left over
  gauss_AF = filters.taps_response(filters.half_gaussian(width_A, 128), frequency_F)
  np.testing.assert_allclose(filters.admissibility(gauss_AF), 1, atol=1e-12)


def test_effective_period():
  frequency_F = np.arange(129) / 256
  one_hot = jnp.zeros((3, 129)).at[jnp.arange(3), jnp.asarray([0, 4, 128])].set(2.0)
  np.testing.assert_array_equal(filters.effective_period(one_hot, frequency_F), [np.inf, 64.0, 2.0])
  both = one_hot[1] + 2 * one_hot[2]  # powers 1 and 4
  assert float(filters.effective_period(both, frequency_F)) == pytest.approx(5 / (1 / 64 + 4 / 2))


@pytest.mark.parametrize('side', ['q', 'k'])
def test_golden_surrogates(golden, side):
  g = golden('fqk5a_surrogate')
  x_BLHE = jnp.asarray(g[side].astype(np.float64).transpose(0, 2, 1, 3))
  phase_BFHE = jnp.asarray(g['phi'].astype(np.float64).transpose(0, 2, 1)[..., None])
  ours = {
    'phase_rand': filters.with_phases(x_BLHE, phase_BFHE),
    'amp_only': filters.with_phases(x_BLHE, jnp.zeros((1, 33, 1, 1))),
    'phase_shift': filters.shift_phases(x_BLHE, np.pi / 4),
  }
  for name, y_BLHE in ours.items():
    truth = g[f'{side}_{name}'].transpose(0, 2, 1, 3)
    assert np.max(np.abs(np.asarray(y_BLHE) - truth)) <= 1e-10, name


@pytest.mark.parametrize('length', [1, 2, 7, 8])
def test_surrogates_keep_amplitudes_and_the_bins_without_a_phase(length):
  x = np.random.default_rng(length).normal(size=(2, length, 3, 2))
  phase = filters.random_phases(jax.random.key(0), (2, length // 2 + 1, 3, 2), jnp.float64)
  before = np.fft.rfft(x, axis=1)
  replaced = np.fft.rfft(filters.with_phases(jnp.asarray(x), phase), axis=1)
  shifted = np.fft.rfft(filters.shift_phases(jnp.asarray(x), np.pi / 4), axis=1)
  ends = [0, length // 2] if length % 2 == 0 else [0]
  inner = [k for k in range(length // 2 + 1) if k not in ends]
  np.testing.assert_allclose(replaced[:, ends], np.abs(before[:, ends]), atol=1e-12)
  np.testing.assert_allclose(shifted[:, ends], before[:, ends], atol=1e-12)
  expected = np.abs(before) * np.exp(1j * np.asarray(phase))
  np.testing.assert_allclose(replaced[:, inner], expected[:, inner], atol=1e-12)
  turn = np.exp(1j * np.pi / 4)
  np.testing.assert_allclose(shifted[:, inner], before[:, inner] * turn, atol=1e-12)


def test_random_phases_of_an_example_are_its_own():
  key = jax.random.key(3)
  many = filters.random_phases(key, (3, 5, 2), jnp.float64)
  np.testing.assert_array_equal(many[:2], filters.random_phases(key, (2, 5, 2), jnp.float64))
  assert len(np.unique(many)) == many.size
  assert np.all((np.asarray(many) >= 0) & (np.asarray(many) < 2 * np.pi))


TWO_BRANCH = ('fqk5a_fixed_bin4_two_branch', 'fqk5a_learned_two_branch')


@pytest.mark.parametrize('name', TWO_BRANCH)
def test_golden_quadrature_branch(golden, name):
  g = golden(name)
  x = g['x'].astype(np.float64)
  q_BLHE = (x @ g['w_q'].astype(np.float64)).reshape(*x.shape[:2], 4, 8)
  ours = band_pass(q_BLHE, 1j * np.broadcast_to(g['filter'], (4, BINS)))
  np.testing.assert_allclose(np.asarray(ours)[0].transpose(1, 0, 2), g['q_quad_b0'], atol=3e-7)
