"""The variants of SGN against numpy and scipy, and its paper's theorem against numbers."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.fft

from configs.base import get_config
from sgnjax.errors import UserError
from sgnjax.mixers.sgn import SGN
from sgnjax.models import build
from sgnjax.ops.gates import causal_kernel
from sgnjax.ops.haar import causal_haar_levels, haar
from sgnjax.train.optim import make_optimiser

pytestmark = pytest.mark.usefixtures('float64')

WIDTH, N = 4, 24
PLAIN = functools.partial(
  SGN,
  width=WIDTH,
  heads=2,
  context=N,
  gated=False,
  dtype=jnp.dtype('float64'),
  param_dtype=jnp.dtype('float64'),
)


def normal(*shape, seed=0):
  return np.random.default_rng(seed).normal(size=shape)


def mix(x, weights=None, *, mixture=None, seed=None, **options):
  """Output of a mixer without projections; its gate is given, or none, or drawn from a seed."""
  module = PLAIN(**options)
  module.check()
  x = jnp.asarray(x)
  if seed is not None:
    shapes = jax.eval_shape(module.init, jax.random.key(0), x).get('params', {})
    rng = np.random.default_rng(seed)
    params = jax.tree.map(lambda s: jnp.asarray(rng.normal(size=s.shape)), shapes)
  else:
    params = {} if weights is None else {'gate': jax.tree.map(jnp.asarray, weights)}
    params |= {} if mixture is None else {'mixture': jnp.asarray(mixture)}
  y = jax.jit(lambda p, x: module.apply({'params': p}, x).y_BLD)(params, x)
  return (np.asarray(y), params) if seed is not None else np.asarray(y)


def published_fft(x, real, imag):
  spectrum = np.fft.rfft(x, axis=1) * (real + 1j * imag)
  return np.fft.irfft(spectrum, x.shape[1], axis=1)


def convolve(x, past, future=None):
  y = np.zeros(x.shape)
  for lag, h in enumerate(past[: x.shape[1]]):
    y[:, lag:] += h * x[:, : x.shape[1] - lag]
  for lag, h in enumerate(() if future is None else future[: x.shape[1]]):
    if lag:
      y[:, : x.shape[1] - lag] += h * x[:, lag:]
  return y


def one_sided(real):
  n = len(real) - 1
  twice = np.where(np.arange(n + 1) % n == 0, 1, 2)[:, None]
  return np.fft.irfft(real, 2 * n, axis=0)[: n + 1] * twice


@pytest.mark.parametrize('n', [N, 7])
def test_published_fft_is_a_circular_filter(n):
  x, (real, imag) = normal(2, n, WIDTH), normal(2, n // 2 + 1, WIDTH, seed=1)
  ours = mix(x, {'real': real, 'imag': imag}, basis='fft', form='published', context=n)
  np.testing.assert_allclose(ours, published_fft(x, real, imag), atol=1e-13)


@pytest.mark.parametrize('length', [1, N, 40])
def test_fft_kernels_are_the_period_of_2n_with_and_without_its_future(length):
  x, (real, imag) = normal(2, length, WIDTH), normal(2, N + 1, WIDTH, seed=1)
  gate = {'real': real, 'imag': imag}
  k = np.fft.irfft(real + 1j * imag, 2 * N, axis=0)
  past, future = k[: N + 1], np.concatenate([k[:1], k[: N - 1 : -1]])
  np.testing.assert_allclose(mix(x, gate, basis='fft'), convolve(x, past), atol=1e-13)
  both = mix(x, gate, basis='fft', form='bidirectional')
  np.testing.assert_allclose(both, convolve(x, past, future), atol=1e-13)


def test_how_the_bases_meet_where_the_gate_is_real():
  """Two-sided: the same. Causal: the FFT's kernel is half the DCT's but at lags 0 and N."""
  x, real = normal(2, N, WIDTH), normal(N + 1, WIDTH, seed=1)
  gate = {'real': real, 'imag': np.zeros_like(real)}
  sides = [mix(x, g, basis=b, form='bidirectional') for b, g in (('dct', real), ('fft', gate))]
  np.testing.assert_allclose(*sides, atol=1e-13)
  h_dct, h_fft = (
    np.asarray(jax.jit(functools.partial(causal_kernel, b, n=N))(g))
    for b, g in (('dct', real), ('fft', gate))
  )
  np.testing.assert_allclose(h_fft[1:N], h_dct[1:N] / 2, atol=1e-14)
  np.testing.assert_allclose(h_fft[[0, N]], h_dct[[0, N]], atol=1e-14)
  response = np.fft.rfft(h_dct, 2 * N, axis=0)
  np.testing.assert_allclose(response.real, real, atol=1e-13)  # discrete Kramers-Kronig
  completed = {'real': real, 'imag': response.imag}
  np.testing.assert_allclose(mix(x, completed, basis='fft'), mix(x, real), atol=1e-13)


def adaptive_gate(points, seed):
  """Gates of the three bases, a mixture for two groups of channels, and the shares by channel."""
  dct_points, bins, haar_points = points
  draw = functools.partial(normal, seed=seed)
  gate = {
    'dct': draw(dct_points, WIDTH),
    'fft': {'real': draw(bins, WIDTH) + 1, 'imag': 2 * draw(bins, WIDTH)},
    'haar': draw(haar_points, WIDTH) - 1,
  }
  mixture = normal(2, 3, seed=seed + 1)
  share = np.exp(mixture) / np.exp(mixture).sum(1, keepdims=True)
  return gate, mixture, np.repeat(share, WIDTH // 2, axis=0).T


def haar_box(levels):
  h = np.zeros(N + 1)
  h[: 2**levels] = 2.0**-levels
  return h


def test_adaptive_published_is_the_mixture_of_three_transforms():
  gate, mixture, share = adaptive_gate((N, N // 2 + 1, N), seed=3)
  x = normal(2, N, WIDTH)
  w = np.asarray(jax.jit(lambda x: haar(x, axis=0))(jnp.eye(N)))
  parts = (
    scipy.fft.idct(gate['dct'] * scipy.fft.dct(x, axis=1, norm='ortho'), axis=1, norm='ortho'),
    published_fft(x, **gate['fft']),
    np.einsum('kt,kd,ks,bsd->btd', w, gate['haar'], w, x),
  )
  truth = sum(s * part for s, part in zip(share, parts, strict=True))
  ours = mix(x, gate, mixture=mixture, basis='adaptive', groups=2, form='published')
  np.testing.assert_allclose(ours, truth, atol=1e-12)
  # The masked form is the lower triangle of that operator, whatever the basis.
  operator = mix(
    np.broadcast_to(np.eye(N)[:, :, None], (N, N, WIDTH)),
    gate, mixture=mixture, basis='adaptive', groups=2, form='published',
  )  # fmt: skip
  truth = np.einsum('std,ts,bsd->btd', operator, np.tri(N), x)
  ours = mix(x, gate, mixture=mixture, basis='adaptive', groups=2, operator='masked')
  np.testing.assert_allclose(ours, truth, atol=1e-12)


@pytest.mark.parametrize('form', ['causal', 'bidirectional'])
def test_adaptive_kernels_are_the_mixture_of_three_kernels(form):
  levels = causal_haar_levels(N + 1)
  gate, mixture, share = adaptive_gate((N + 1, N + 1, levels + 1), seed=5)
  x = normal(2, N, WIDTH)
  box = [haar_box(level)[:, None] for level in range(levels + 1)]
  h_haar = gate['haar'][0] * box[levels]
  for level in range(1, levels + 1):
    h_haar = h_haar + gate['haar'][levels + 1 - level] * (box[level - 1] - box[level])
  k = np.fft.irfft(gate['fft']['real'] + 1j * gate['fft']['imag'], 2 * N, axis=0)
  if form == 'causal':
    kernels = (one_sided(gate['dct']), k[: N + 1], h_haar)
    truth = convolve(x, sum(s * h for s, h in zip(share, kernels, strict=True)))
  else:
    even = np.fft.irfft(gate['dct'], 2 * N, axis=0)[: N + 1]
    half = np.concatenate([h_haar[:1], h_haar[1:] / 2])
    past = share[0] * even + share[1] * k[: N + 1] + share[2] * half
    future = share[0] * even + share[1] * np.roll(k[::-1], 1, 0)[: N + 1] + share[2] * half
    truth = convolve(x, past, future)
  ours = mix(x, gate, mixture=mixture, basis='adaptive', groups=2, form=form)
  np.testing.assert_allclose(ours, truth, atol=1e-12)


RETAINED = {
  'published': ({'form': 'published'}, N),
  'masked': ({'operator': 'masked'}, N),
  'causal': ({}, N + 1),
  'bidirectional': ({'form': 'bidirectional'}, N + 1),
}


@pytest.mark.parametrize('case', RETAINED)
def test_retained_coefficients_are_the_lowest_and_the_others_zero(case):
  options, points = RETAINED[case]
  x, few = normal(2, N, WIDTH), normal(5, WIDTH, seed=1)
  full = np.concatenate([few, np.zeros((points - 5, WIDTH))])
  ours = mix(x, few, retained=5, **options)
  np.testing.assert_array_equal(ours, mix(x, full, **options))


def test_retained_frequencies_are_one_in_every_basis():
  """Six of 24 end at a quarter of Nyquist: of Haar's octaves two of four stay, and the mean."""
  x = normal(1, N, WIDTH)
  y, params = mix(x, basis='adaptive', groups=1, retained=6, seed=1)
  shapes = jax.tree.map(lambda a: a.shape[0], params['gate'])
  assert shapes == {'dct': 6, 'fft': {'real': 6, 'imag': 6}, 'haar': 3}
  rows = np.concatenate([params['gate']['haar'], np.zeros((2, WIDTH))])
  full = {
    'dct': np.concatenate([params['gate']['dct'], np.zeros((N - 5, WIDTH))]),
    'fft': {
      part: np.concatenate([params['gate']['fft'][part], np.zeros((N - 5, WIDTH))])
      for part in ('real', 'imag')
    },
    'haar': rows,
  }
  whole = mix(x, full, mixture=params['mixture'], basis='adaptive', groups=1)
  np.testing.assert_allclose(y, whole, atol=1e-14)


@pytest.mark.parametrize('form', ['causal', 'bidirectional'])
def test_resolutions_add_the_kernels_of_shorter_contexts(form):
  x = normal(2, 40, WIDTH)
  ours, params = mix(x, form=form, resolutions=3, seed=2)
  assert [a.shape[0] for a in jax.tree.leaves(params)] == [13, 25, 7]
  alone = sum(
    mix(x, params['gate'][f'context_{n}'], form=form, context=n) for n in (N, N // 2, N // 4)
  )
  np.testing.assert_allclose(ours, alone, atol=1e-12)


def test_grid_is_the_two_dimensional_dct():
  x, gate = normal(2, N, WIDTH), normal(N, WIDTH, seed=1)
  patches = x.reshape(2, 4, 6, WIDTH)
  spectrum = scipy.fft.dctn(patches, axes=(1, 2), norm='ortho') * gate.reshape(4, 6, WIDTH)
  truth = scipy.fft.idctn(spectrum, axes=(1, 2), norm='ortho').reshape(x.shape)
  np.testing.assert_allclose(mix(x, gate, form='published', grid=(4, 6)), truth, atol=1e-13)
  with pytest.raises(UserError, match=r'grid=\(4, 6\) needs 24 patches and was given 20'):
    mix(x[:, :20], gate, form='published', grid=(4, 6))


def test_bidirectional_grid_is_even_and_linear_on_both_axes():
  x, a, b = normal(2, N, WIDTH), normal(5, 1, WIDTH, seed=1), normal(1, 7, WIDTH, seed=2)
  rows = np.fft.irfft(a[:, 0], 8, axis=0)[:5]
  columns = np.fft.irfft(b[0], 12, axis=0)[:7]
  toeplitz = [
    r[abs(np.arange(n)[:, None] - np.arange(n)[None, :])] for r, n in ((rows, 4), (columns, 6))
  ]
  patches = x.reshape(2, 4, 6, WIDTH)
  truth = np.einsum('ikd,jld,bkld->bijd', *toeplitz, patches).reshape(x.shape)
  gate = (a * b).reshape(35, WIDTH)
  np.testing.assert_allclose(mix(x, gate, form='bidirectional', grid=(4, 6)), truth, atol=1e-13)


def test_retained_of_a_grid_are_the_lowest_in_the_plane():
  x = normal(1, N, WIDTH)
  full = np.zeros((4, 6, WIDTH))
  few = normal(4, WIDTH, seed=1)
  full[[0, 0, 1, 1], [0, 1, 0, 1]] = few  # hypot(row / 4, column / 6): 0, 0.17, 0.25, 0.30
  ours = mix(x, few, form='published', grid=(4, 6), retained=4)
  whole = mix(x, full.reshape(N, WIDTH), form='published', grid=(4, 6))
  np.testing.assert_allclose(ours, whole, atol=1e-14)


def test_a_low_pass_gate_has_no_parameters_and_its_frequencies_go_from_0_to_1():
  x = normal(2, N, WIDTH)
  for form, frequency in (('published', np.arange(N) / N), ('causal', np.arange(N + 1) / N)):
    gate = np.repeat(np.exp(-frequency / 0.3)[:, None], WIDTH, axis=1)
    fixed, params = mix(x, form=form, gate='lowpass', cutoff=0.3, seed=0)
    assert params == {}
    np.testing.assert_allclose(fixed, mix(x, gate, form=form), atol=1e-14)
  bins = np.exp(-np.arange(N // 2 + 1) / (N / 2) / 0.3)[:, None]
  fixed = mix(x, form='published', gate='lowpass', cutoff=0.3, basis='fft')
  np.testing.assert_allclose(fixed, published_fft(x, bins, 0), atol=1e-14)
  # A complex gate has the same one, real: two-sided, the bases then agree.
  two = [mix(x, form='bidirectional', gate='lowpass', basis=b) for b in ('dct', 'fft')]
  np.testing.assert_allclose(*two, atol=1e-14)


def test_a_random_gate_differs_by_layer_and_no_step_of_training_moves_it():
  config = get_config()
  config.model.update({'mixer': 'sgn', 'width': 8, 'heads': 2, 'context': 32, 'layers': 2})
  config.model.sgn.gate = 'random'
  config.optim.update({'decay_mechanism': True, 'weight_decay': 0.5, 'warmup': 0, 'lr': 0.1})
  model = build(config, vocab=11)
  params = jax.jit(model.init)(jax.random.key(0), jnp.zeros((1, 2), jnp.int32))['params']
  gate_2ND = params['stack']['group_0']['0_sgn']['mixer']['frozen_gate']
  assert np.std(gate_2ND) == pytest.approx(0.02, rel=0.1)
  assert np.all(gate_2ND[0] != gate_2ND[1])

  module, x_BLD = PLAIN(gate='random', basis='adaptive', groups=2), jnp.asarray(normal(1, N, WIDTH))
  params = jax.jit(module.init)(jax.random.key(0), x_BLD)['params']
  optimiser = make_optimiser(config)

  @jax.jit
  def step(params):
    gradient = jax.grad(lambda p: jnp.sum(module.apply({'params': p}, x_BLD).y_BLD ** 2))(params)
    with jax.numpy_dtype_promotion('standard'):
      updates, _ = optimiser.update(gradient, optimiser.init(params), params)
    return optax.apply_updates(params, updates)

  after = step(params)
  jax.tree.map(np.testing.assert_array_equal, after['frozen_gate'], params['frozen_gate'])
  assert np.all(after['mixture'] != params['mixture'])


# Smooth in frequency per token, so that a finer or coarser grid is the same filter: pi times the
# argument is the angle.
SMOOTH = (lambda f: np.cos(1 + 2 * f), lambda f: np.sin(np.pi * f) * f)


def columns(values):
  return np.repeat(np.asarray(values)[:, None], WIDTH, axis=1)


@pytest.mark.parametrize('length', [48, 63, 128])
@pytest.mark.parametrize('basis', ['dct', 'fft'])
def test_a_published_gate_trained_at_64_is_the_same_response_elsewhere(basis, length):
  def gate(n):
    if basis == 'dct':
      return columns(SMOOTH[0](np.arange(n) / n))
    bins = np.arange(n // 2 + 1) * 2 / n
    return dict(zip(('real', 'imag'), (columns(part(bins)) for part in SMOOTH), strict=True))

  x = normal(1, length, WIDTH)
  ours = mix(x, gate(64), basis=basis, form='published', context=64)
  made = mix(x, gate(length), basis=basis, form='published', context=length)
  # Linear between points: h^2 / 8 of the second derivative, and the last point is held.
  assert np.max(np.abs(ours - made)) < 0.02 * np.max(np.abs(made))


@pytest.mark.parametrize('length', [48, 63, 128])
@pytest.mark.parametrize('basis', ['dct', 'fft'])
def test_a_two_sided_kernel_is_one_response_at_every_length(basis, length):
  def gate(n):
    parts = [columns(part(np.arange(n + 1) / n)) for part in SMOOTH]
    return parts[0] if basis == 'dct' else dict(zip(('real', 'imag'), parts, strict=True))

  x = normal(1, length, WIDTH)
  ours, made = (mix(x, gate(n), basis=basis, form='bidirectional', context=n) for n in (64, length))
  assert np.max(np.abs(ours - made)) < 0.02 * np.max(np.abs(made))


def test_causal_kernels_truncate_and_their_memory_ends_at_lag_n():
  x, gate = normal(1, 60, WIDTH), normal(N + 1, WIDTH, seed=1)
  whole = mix(x, gate)
  np.testing.assert_allclose(mix(x[:, :9], gate), whole[:, :9], atol=1e-13)
  x[:, 0] += 100
  changed = mix(x, gate)
  np.testing.assert_allclose(changed[:, N + 1 :], whole[:, N + 1 :], atol=1e-11)
  assert np.all(np.abs(changed[:, N] - whole[:, N]) > 1e-3)


def parameters(**options):
  module = PLAIN(**options)
  module.check()
  shapes = jax.eval_shape(module.init, jax.random.key(0), jnp.ones((1, 3, WIDTH)))
  return sum(leaf.size for leaf in jax.tree.leaves(shapes))


def test_parameter_counts_are_those_of_the_docstring():
  published, levels, c = {'form': 'published'}, causal_haar_levels(N + 1), 6
  adaptive = {'basis': 'adaptive', 'groups': 2}
  assert parameters(basis='fft') == 2 * (N + 1) * WIDTH
  assert parameters(basis='fft', **published) == 2 * (N // 2 + 1) * WIDTH
  assert parameters(basis='fft', operator='masked') == 2 * (N // 2 + 1) * WIDTH
  assert parameters(**adaptive) == (3 * (N + 1) + levels + 1) * WIDTH + 3 * 2
  assert parameters(**adaptive, **published) == (2 * N + 2 * (N // 2 + 1)) * WIDTH + 3 * 2
  assert parameters(grid=(4, 6), **published) == N * WIDTH
  assert parameters(grid=(4, 6), form='bidirectional') == 5 * 7 * WIDTH
  assert parameters(retained=c) == c * WIDTH
  assert parameters(retained=c, basis='fft') == 2 * c * WIDTH
  assert parameters(retained=c, **adaptive, **published) == 4 * c * WIDTH + 3 * 2
  assert parameters(retained=c, **adaptive) == (3 * c + 3) * WIDTH + 3 * 2
  assert parameters(resolutions=3) == (N + 1 + N // 2 + 1 + N // 4 + 1) * WIDTH
  assert parameters(gate='random') == (N + 1) * WIDTH
  assert parameters(gate='lowpass') == 0
  assert parameters(gate='lowpass', **adaptive) == 3 * 2


@pytest.mark.parametrize(
  ('options', 'message'),
  [
    ({'basis': 'dtc'}, "model.sgn.basis 'dtc' is not known; did you mean 'dct'"),
    ({'gate': 'lowpas'}, "did you mean 'lowpass'"),
    ({'retained': 25}, 'model.sgn.retained=25: expected 1 to 24'),
    ({'retained': 14, 'basis': 'fft', 'form': 'published'}, 'expected 1 to 13'),
    ({'resolutions': 6}, 'model.sgn.resolutions=6: expected 1 to 5'),
    ({'resolutions': 2, 'form': 'published'}, 'model.sgn.resolutions=2 adds kernels'),
    ({'groups': 3, 'basis': 'adaptive'}, 'model.sgn.groups=3 does not divide model.width=4'),
    ({'grid': (5, 5), 'form': 'published'}, r'model.sgn.grid=\(5, 5\): expected'),
    ({'grid': (4, 6)}, "does not go with model.form='causal'"),
    ({'grid': (4, 6), 'form': 'published', 'basis': 'fft'}, "with model.sgn.basis='fft'"),
    ({'cutoff': 0.0}, 'model.sgn.cutoff=0.0: expected more than 0'),
    ({'gate': 'random', 'gate_std': 0.0}, 'model.sgn.gate_std=0.0: expected more than 0'),
  ],
)
def test_contradictions_are_refused_by_key(options, message):
  with pytest.raises(UserError, match=message):
    PLAIN(**options).check()


@pytest.mark.parametrize('form', ['causal', 'bidirectional'])
def test_the_gate_shown_draws_the_kernel(form):
  """Of any kernel form one real gate is shown: the DCT's causal or even kernel of it is the one."""
  x = normal(1, N, WIDTH)
  options = {'basis': 'adaptive', 'groups': 2, 'resolutions': 2, 'form': form}
  y, params = mix(x, seed=4, **options)
  module = PLAIN(capture=True, **options)
  shown = jax.jit(lambda p: module.apply({'params': p}, jnp.asarray(x)).aux.debug['gate'])(params)
  drawn = mix(x, shown, form=form)
  if form == 'bidirectional':  # the even part: the mean of the filter and of its mirror image
    both = mix(x[:, ::-1], params['gate'], mixture=params['mixture'], **options)[:, ::-1]
    y = (y + both) / 2
  np.testing.assert_allclose(drawn, y, atol=1e-12)


def test_theorem_1_is_false_no_gate_gives_attention_however_many_coefficients():
  """SGN, Theorem 1: an error of at most `L sigma / K`, exact at K = n. Softmax of random scores.

  The operators `C^T diag(G) C` are a linear space, in which the best gate is the diagonal of `C A
  C^T`: Frobenius' error at K = n is what is left of A outside, and it is three quarters of A.
  """
  n = 64
  scores = normal(n, n)
  attention = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
  c = scipy.fft.dct(np.eye(n), axis=0, norm='ortho')
  best = np.diag(c @ attention @ c.T)

  def error(gate, order):
    rest = attention - c.T @ (gate[:, None] * c)
    return np.linalg.norm(rest, order) / np.linalg.norm(attention, order)

  left = {k: error(np.where(np.arange(n) < k, best, 0), 'fro') for k in (16, 32, n)}
  assert left[n] == pytest.approx(0.7546, abs=1e-4)
  # Nothing nearer: A's part in the space and the rest are orthogonal.
  outside = np.sqrt(1 - np.sum(best**2) / np.sum(attention**2))
  assert left[n] == pytest.approx(outside, abs=1e-12)
  assert min(error(best + 0.01 * normal(n, seed=i), 'fro') for i in range(20)) > left[n]
  # From K = 16 to n the bound falls to a quarter, and the error by less than a hundredth.
  assert left[n] / left[16] > 0.99
  # At K = n the bound is not 0; a constant that makes it true there makes it idle below K = 48: it
  # exceeds the norm of A, which is the error of no gate at all.
  assert n * left[n] == pytest.approx(48.3, abs=0.1)
