"""FourierQK against its definition, written out in numpy: kernels as matrices, softmax by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sgnjax.errors import UserError
from sgnjax.mixers import MIXERS
from sgnjax.ops import filters

pytestmark = pytest.mark.usefixtures('float64')

WIDTH, HEADS, N, LENGTH = 16, 2, 24, 17
E = WIDTH // HEADS
SIZES = {'width': WIDTH, 'heads': HEADS, 'context': N, 'out_bias': False}
PERIODS = np.asarray([50.0, 26.0, 10.0, 5.0])


def mixer(**options):
  kinds = {'learned': False, 'dtype': jnp.float64, 'param_dtype': jnp.float64}
  return MIXERS['fourier_qk'](**{**SIZES, **kinds, **options})


def bins_of(length: int) -> np.ndarray:
  """The bins of an rFFT grid, in units of the bins of the context."""
  return np.arange(length // 2 + 1) * N / length


def radians(length: int, scale_K) -> np.ndarray:
  return np.asarray(scale_K)[:, None] * 2 * np.pi * bins_of(length)[None, :] / N


def bump(length: int, *centres, sigma=2.0):
  return np.exp(-((bins_of(length)[None, :] - np.asarray(centres)[:, None]) ** 2) / 2 / sigma**2)


def paul(length: int):
  x_KF = radians(length, 4 * PERIODS / (2 * np.pi))
  return x_KF**4 * np.exp(-x_KF)


def mexican_hat(length: int):
  x_KF = radians(length, np.sqrt(2) * PERIODS / (2 * np.pi))
  return x_KF**2 * np.exp(-(x_KF**2) / 2)


def morlet(length: int):
  return np.exp(-((radians(length, 6 * np.asarray([7.0, 3.0]) / (2 * np.pi)) - 6) ** 2) / 2)


def random(length: int, head: int):
  knots_HK = np.random.default_rng(0).random((HEADS, 129))
  return np.interp(bins_of(length) / N, np.linspace(0, 0.5, 129), knots_HK[head])[None]


# name: (options, response (K, F) of a grid's length, of the head where it takes one more argument)
ANALYTIC = {'scores': 'analytic'}
RESPONSES = {
  'published gaussian': ({'form': 'published', 'bins': (1.0, 6.0)}, lambda n: bump(n, 1, 6)),
  'published ladder analytic': (
    {'form': 'published', 'filter': 'ladder', 'norm': 'l2', **ANALYTIC},
    lambda n, h: bump(n, h),
  ),
  'causal paul analytic': ({'filter': 'paul', **ANALYTIC}, paul),
  'causal random': ({'filter': 'random', 'norm': 'l2'}, random),
  'causal mexican_hat': ({'filter': 'mexican_hat'}, mexican_hat),
  'bidirectional morlet analytic': (
    {'form': 'bidirectional', 'filter': 'morlet', 'periods': (7.0, 3.0), **ANALYTIC},
    morlet,
  ),
}


def lag_kernel(response_F, length: int, form: str, quadrature: bool):
  """The kernel of lags -(L - 1)..L - 1, by sums of cosines or sines over the grid's bins."""
  n = length if form == 'published' else 2 * N
  k_F, lag_T = np.arange(n // 2 + 1), np.arange(1 - length, length)
  weight_F = np.where(k_F * 2 % n == 0, 1, 2) / n  # irfft: inner bins twice
  angle_TF = 2 * np.pi / n * lag_T[:, None] * k_F[None, :]
  wave_TF = -np.sin(angle_TF) if quadrature else np.cos(angle_TF)
  r_T = wave_TF @ (weight_F * response_F)
  if form == 'causal':  # twice the past, nothing of the future, lag 0 as it is
    r_T = r_T * np.where(lag_T == 0, 1, np.where(lag_T > 0, 2, 0))
  return r_T


def toeplitz(kernel_T, length: int):
  t, s = np.arange(length)[:, None], np.arange(length)[None, :]
  return kernel_T[t - s + length - 1]


def expected(params, x_BLD, operators_HKP, *, causal, alter=lambda q, k: (q, k)):
  """y: scores are the mean over k of the sum over parts of (T q) . (T k), over sqrt(E)."""
  length = x_BLD.shape[1]
  q, k, v = (
    (x_BLD @ np.asarray(params[name]['kernel'])).reshape(*x_BLD.shape[:2], HEADS, E)
    for name in 'qkv'
  )
  q, k = alter(q, k)
  y_BLHE = np.zeros(v.shape)
  for h, operators_KP in enumerate(operators_HKP):
    scores = np.zeros((x_BLD.shape[0], length, length))
    for operators_P in operators_KP:
      for matrix in operators_P:
        a, b = (np.einsum('ts,bse->bte', matrix, side[:, :, h]) for side in (q, k))
        scores += a @ b.swapaxes(1, 2) / np.sqrt(E) / len(operators_KP)
    if causal:
      scores = np.where(np.tril(np.ones((length, length), bool)), scores, -np.inf)
    mass = np.exp(scores - scores.max(-1, keepdims=True))
    y_BLHE[:, :, h] = mass / mass.sum(-1, keepdims=True) @ v[:, :, h]
  return y_BLHE.reshape(*x_BLD.shape) @ np.asarray(params['o']['kernel'])


def start():
  """Input and parameters of a mixer with fixed filters; scores large enough to matter."""
  rng = np.random.default_rng(0)
  params = {name: {'kernel': jnp.asarray(rng.normal(size=(WIDTH, WIDTH)))} for name in 'qkvo'}
  return rng.normal(size=(2, LENGTH, WIDTH)), params


def run(module, params, x_BLD):
  return jax.jit(lambda p, x: module.apply({'params': p}, x))(params, x_BLD)


def response_operators(name: str):
  options, raw = RESPONSES[name]
  form, parts = options.get('form', 'causal'), 1 + (options.get('scores') == 'analytic')
  order = 2 if options.get('norm') == 'l2' else 1
  grid = LENGTH if form == 'published' else 2 * N

  def of_head(h):
    both = [raw(n, h) if raw.__code__.co_argcount == 2 else raw(n) for n in (grid, N)]
    norm_K = np.linalg.norm(both[1], order, axis=-1)  # periods above the context miss its bins
    unit_KF = both[0] / np.maximum(norm_K, both[0].max(-1) / 2)[:, None]
    return [
      [toeplitz(lag_kernel(r_F, LENGTH, form, p == 1), LENGTH) for p in range(parts)]
      for r_F in unit_KF
    ]

  return [of_head(h) for h in range(HEADS)], form


@pytest.mark.parametrize('name', RESPONSES)
def test_a_response_is_its_definition(name):
  module = mixer(**RESPONSES[name][0])
  module.check()
  x_BLD, params = start()
  operators, form = response_operators(name)
  y_BLD = run(module, params, x_BLD).y_BLD
  truth = expected(params, x_BLD, operators, causal=form != 'bidirectional')
  np.testing.assert_allclose(y_BLD, truth, atol=1e-11)
  scores_matter = np.abs(
    truth - expected(params, x_BLD, [[[]]] * HEADS, causal=form != 'bidirectional')
  )
  assert np.max(scores_matter) > 1e-3


def tap_matrix(taps_T):
  return toeplitz(np.concatenate([np.zeros(LENGTH - 1), taps_T, np.zeros(LENGTH)]), LENGTH)


def taps(name: str):
  t = np.arange(9)
  envelope = [np.exp(-(t**2) / 2 / a**2) for a in (2.0, 5.0)]
  if name == 'gaussian':
    parts_KP = [[g] for g in envelope]
  elif name == 'mexican_hat':
    parts_KP = [[(1 - (t / a) ** 2) * g] for a, g in zip((2.0, 5.0), envelope, strict=True)]
  elif name.startswith('morlet'):
    angles = (6 * t / 2.0, 6 * t / 5.0)
    parts_KP = [[g * np.cos(a), g * np.sin(a)] for a, g in zip(angles, envelope, strict=True)]
  else:  # centres of 1 and 12 bins are held inside 2 and 11; T / 2 pi sigma = 24 / 4 pi
    g = np.exp(-((t * 4 * np.pi / 24) ** 2) / 2)
    angles = (2 * np.pi * f * t / 24 for f in (2, 11))
    parts_KP = [[g * np.cos(a), g * np.sin(a)] for a in angles]
  unit_KP = [[p / np.sqrt(sum(np.sum(q**2) for q in parts)) for p in parts] for parts in parts_KP]
  return [parts[:1] for parts in unit_KP] if name == 'morlet real' else unit_KP


TAPS = {
  'gaussian': {'filter': 'gaussian'},
  'mexican_hat': {'filter': 'mexican_hat'},
  'morlet': {'filter': 'morlet', **ANALYTIC},
  'morlet real': {'filter': 'morlet'},
  'spectral': {'filter': 'spectral', 'bins': (1.0, 12.0), **ANALYTIC},
}


@pytest.mark.parametrize('name', TAPS)
def test_taps_are_their_definition_in_both_forms(name):
  options = {'kernel': 'taps', 'taps': 9, 'widths': (2.0, 5.0), **TAPS[name]}
  causal, published = mixer(**options), mixer(**options, form='published')
  x_BLD, params = start()
  y_BLD = run(causal, params, x_BLD).y_BLD
  operators_KP = [[tap_matrix(part) for part in parts] for parts in taps(name)]
  truth = expected(params, x_BLD, [operators_KP] * HEADS, causal=True)
  np.testing.assert_allclose(y_BLD, truth, atol=1e-11)
  same = run(published, params, x_BLD).y_BLD
  np.testing.assert_array_equal(y_BLD, same)


@pytest.mark.parametrize('kind', filters.SURROGATES)
def test_a_surrogate_acts_before_the_filter_and_in_evaluation_alone(kind):
  length = 16
  options = {'kernel': 'taps', 'taps': 9, 'widths': (2.0, 5.0), 'filter': 'gaussian'}
  module = mixer(**options, surrogate=kind)
  x_BLD, params = start()
  x_BLD = x_BLD[:, :length]
  operators_KP = [[tap_matrix(part)[:length, :length] for part in p] for p in taps('gaussian')]

  def alter(q, k):
    q, k = (np.fft.rfft(a, axis=1) for a in (q, k))
    inner_F11 = (np.arange(9) % 8 != 0)[:, None, None]
    if kind == 'shift':
      q, k = (a * np.where(inner_F11, np.exp(0.25j * np.pi), 1) for a in (q, k))
    else:
      shape = (2, 9, HEADS, E if kind == 'independent' else 1)
      keys = (jax.random.key(0), jax.random.key(1 if kind == 'independent' else 0))
      phases = (np.asarray(filters.random_phases(key, shape, jnp.float64)) for key in keys)
      on_F11 = inner_F11 * (kind != 'amplitude')
      sides = zip((q, k), phases, strict=True)
      q, k = (np.abs(a) * np.exp(1j * on_F11 * phase) for a, phase in sides)
    return (np.fft.irfft(a, length, axis=1) for a in (q, k))

  both = [lambda p, x, t=t: module.apply({'params': p}, x, train=t).y_BLD for t in (False, True)]
  evaluated, trained = jax.jit(lambda *a: [f(*a) for f in both])(params, jnp.asarray(x_BLD))
  altered = expected(params, x_BLD, [operators_KP] * HEADS, causal=True, alter=alter)
  plain = expected(params, x_BLD, [operators_KP] * HEADS, causal=True)
  np.testing.assert_allclose(evaluated, altered, atol=1e-11)
  np.testing.assert_allclose(trained, plain, atol=1e-11)
  assert np.max(np.abs(altered - plain)) > 0.1


def debug_of(**options):
  module = mixer(capture=True, **options)
  x_BLD, params = start()
  return run(module, params, x_BLD).aux.debug


def test_reported_quantities():
  debug = debug_of(context=256)  # sigma 2 around bin 4
  np.testing.assert_allclose(debug['coverage'], np.full((HEADS, 1), 5 / 129), rtol=1e-12)
  b = np.arange(129)
  power = np.exp(-((b - 4.0) ** 2) / 4)
  period = 256 * power.sum() / (power * b).sum()
  np.testing.assert_allclose(debug['period'], np.full((HEADS, 1), period), rtol=1e-12)
  assert debug['response'].shape == (HEADS, 1, 257)
  # The causal kernel's |H(0)| is the response's; its peak is higher by the imaginary part.
  assert np.all((np.asarray(debug['admissibility']) < np.exp(-2)) & (debug['admissibility'] > 0.05))
  published = debug_of(form='published', context=LENGTH)
  np.testing.assert_allclose(published['admissibility'], np.exp(-2), rtol=1e-12)
  taps = {'kernel': 'taps', 'filter': 'morlet', 'context': 256}
  for scores, ratio in (('analytic', 0.1333), ('real', 0.0904)):
    got = debug_of(scores=scores, **taps)
    np.testing.assert_allclose(got['admissibility'], ratio, atol=2e-4)
    np.testing.assert_allclose(got['centre'], 8)
    assert got['response'].shape == (HEADS, 1, 257)


PARAMETERS = [
  ({}, 1),
  ({'bins': (1.0, 4.0, 9.0)}, 3),
  ({'filter': 'paul'}, 4),
  ({'filter': 'ladder'}, 0),
  ({'filter': 'random'}, 0),
  ({'kernel': 'taps', 'widths': (2.0, 8.0)}, 2),
  ({'kernel': 'taps', 'filter': 'spectral', 'widths': (2.0, 8.0)}, 1),
]


@pytest.mark.parametrize(('options', 'filters_of_a_head'), PARAMETERS)
def test_parameters_follow_the_docstring(options, filters_of_a_head):
  def shapes(learned):
    module = mixer(**options, learned=learned)
    module.check()
    return jax.eval_shape(module.init, jax.random.key(0), jnp.zeros((1, 4, WIDTH)))['params']

  for learned in (True, False):
    count = sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(shapes(learned)))
    assert count == 4 * WIDTH**2 + HEADS * filters_of_a_head * learned


def test_a_learned_filter_starts_where_the_fixed_one_is():
  x, key = jnp.asarray(start()[0]), jax.random.key(0)
  (fixed, _), (learned, params) = (
    jax.jit(mixer(filter='paul', learned=learned).init_with_output)(key, x)
    for learned in (False, True)
  )
  np.testing.assert_allclose(learned.y_BLD, fixed.y_BLD, rtol=1e-10)
  np.testing.assert_allclose(
    np.exp(params['params']['log_centre']), [PERIODS * 4 / (2 * np.pi)] * HEADS
  )


def test_who_is_causal():
  taps = {'kernel': 'taps'}
  blind = [{}, taps, {**taps, 'form': 'published'}, {'form': 'published', 'filter': 'dc'}]
  blind.append({'form': 'published', 'filter': 'dc', 'positions': 'alibi'})
  blind.append({'form': 'published', 'filter': 'dc', 'surrogate': 'random'})
  seeing = [{'form': 'published'}, {'form': 'bidirectional'}, {**taps, 'surrogate': 'shift'}]
  seeing += [{'surrogate': 'shift'}, {'form': 'bidirectional', 'filter': 'dc'}]
  seeing.append({'form': 'published', 'filter': 'dc', 'positions': 'rope'})
  assert all(mixer(**options).causal for options in blind)
  assert not any(mixer(**options).causal for options in seeing)


@pytest.mark.parametrize(
  ('options', 'message'),
  [
    ({'filter': 'spectral'}, "filter='spectral': kernel 'response' has gaussian, mexican_hat"),
    ({'filter': 'paul', 'kernel': 'taps'}, "filter='paul': kernel 'taps' has gaussian"),
    ({'kernel': 'taps', **ANALYTIC}, "scores='analytic': the taps of 'gaussian' are real"),
    ({'kernel': 'taps', 'form': 'bidirectional'}, "kernel='taps': causal filters"),
    ({'bins': (13.0,)}, r'bins=\(13.0,\): a context of 24 has bins up to 12'),
    ({'bins': (0.0,), 'learned': True}, r'bins=\(0.0,\): expected numbers above 0'),
    ({'bins': (-1.0,)}, 'expected numbers from 0'),
    ({'widths': ()}, r'widths=\(\): expected numbers above 0'),
    ({'taps': 0}, 'taps=0: expected more than 0'),
    ({'surrogate': 'shifted'}, "did you mean 'shift'"),
    ({'scores': 'complex'}, 'model.fourier_qk.scores'),
    ({'filter': 'spectral', 'kernel': 'taps', 'context': 5, 'bins': (2.0,)}, 'below 6'),
  ],
)
def test_contradictions_are_refused(options, message):
  with pytest.raises(UserError, match=message):
    mixer(**options).check()
