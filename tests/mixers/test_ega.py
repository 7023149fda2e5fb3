"""EGA's energies: parameters, identities between variants, streaming, and with FourierQK."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import pywt

from sgnjax.errors import UserError
from sgnjax.mixers import MIXERS

WIDTH, HEADS, N = 16, 2, 24
SMALL = {'lengths': (2, 5), 'wavelet': 'db2', 'levels': 2}


def make(mixer='ega', **options):
  sizes = {'width': WIDTH, 'heads': HEADS, 'context': N, **(SMALL if 'ega' in mixer else {})}
  dtype = jnp.float64 if jax.config.jax_enable_x64 else jnp.float32
  module = MIXERS[mixer](**(sizes | options), dtype=dtype, param_dtype=dtype)
  module.check()
  return module


def inputs(*shape, seed=0):
  return jnp.asarray(np.random.default_rng(seed).normal(size=shape))


AROUND = {'alpha': 2.0, 'log_omega0': 0.5, 'log_sigma': 0.3, 'log_centre': -1.8}


def init(module, seed=0):
  """Random parameters, gates and waves included, sharp enough that scores and energies matter."""
  rng = np.random.default_rng(seed)

  def leaf(path, shape):
    around = AROUND.get(path[-1].key, 0.0)
    return jnp.asarray(around + 0.5 * rng.normal(size=shape.shape), shape.dtype)

  x_BLD = jax.ShapeDtypeStruct((1, 2, WIDTH), module.dtype)
  shapes = jax.eval_shape(module.init, jax.random.key(0), x_BLD)['params']
  return jax.tree_util.tree_map_with_path(leaf, shapes)


def start(module):
  """The parameters that training starts from."""
  x_BLD = jnp.zeros((1, 2, WIDTH), module.dtype)
  return jax.jit(module.init)(jax.random.key(0), x_BLD)['params']


def run(module, params, x_BLD, **call):
  return np.asarray(
    jax.jit(lambda p, x: module.apply({'params': p}, x, **call).y_BLD)(params, x_BLD)
  )


def extra(width, heads, **options) -> int:
  """Parameters beside those of attention."""
  module = MIXERS['ega'](width=width, heads=heads, context=256, **options)
  module.check()
  x_BLD = jax.ShapeDtypeStruct((1, 2, width), jnp.float32)
  leaves = jax.tree.leaves(jax.eval_shape(module.init, jax.random.key(0), x_BLD))
  return sum(int(np.prod(leaf.shape)) for leaf in leaves) - 4 * width**2 - width


def test_parameter_counts_are_those_of_the_paper_and_of_the_docstring():
  assert 6 * extra(256, 8) == 12_480
  assert 6 * extra(256, 8, scales=2) == 24_960
  assert 6 * extra(256, 8, scales=4) == 49_920
  assert 6 * extra(256, 8, energy='conv') == 1_377_216
  assert 6 * extra(256, 8, energy='morlet', input='mean') == 960
  assert 6 * extra(256, 8, energy='morlet') == 960 + 48 * 256
  assert 6 * extra(256, 8, energy='daubechies', input='mean') == 48 * 9
  assert 6 * extra(256, 8, energy='daubechies') == 48 * (9 + 256)
  assert 6 * extra(256, 8, energy='learned_wavelet') == 48 * (9 + 256 + 3)
  assert 6 * extra(256, 8, energy='learned_wavelet', orthonormal=False) == 48 * (9 + 256 + 16)
  assert 6 * extra(256, 8, energy='packet') == 48 * (12 + 256)


def test_starts_of_tau_and_alpha_are_one_for_all_scales_or_one_each():
  module = make(energy='morlet', tau=(0.35, 0.32), alpha=(2.25,), input='mean')
  params = start(module)
  np.testing.assert_allclose(params['tau'], [[0.35, 0.32]] * HEADS)
  np.testing.assert_allclose(params['alpha'], np.full((HEADS, 2), 2.25))
  omega_S = np.pi / np.asarray([2, 5])
  np.testing.assert_allclose(np.exp(params['log_omega0']), [omega_S] * HEADS, rtol=1e-6)
  np.testing.assert_allclose(np.exp(params['log_sigma']), [5 / omega_S] * HEADS, rtol=1e-6)


@pytest.mark.parametrize('pad', ['zero', 'reflect'])
def test_the_whole_gate_of_daubechies_energies_is_that_of_numpy(pad):
  with jax.enable_x64(True):
    x_BLD = inputs(2, N, WIDTH)
    module = make(
      energy='daubechies', levels=1, input='mean', form='published', pad=pad, capture=True
    )
    params = init(module)
    apply = jax.jit(lambda p, x: module.apply({'params': p}, x).aux.debug['gate'])
    gate_BHL = apply(params, x_BLD)
  u_BL = np.mean(np.asarray(x_BLD), -1)
  before = {'zero': np.zeros((2, 3)), 'reflect': u_BL[:, 3:0:-1]}[pad]
  high = pywt.Wavelet('db2').dec_hi
  detail_BL = np.stack([np.convolve(u, high, 'valid') for u in np.hstack([before, u_BL])])
  z_BL = detail_BL**2 - np.mean(detail_BL**2, 1, keepdims=True)
  z_B1L = (z_BL / np.std(detail_BL**2, axis=1, keepdims=True))[:, None]
  alpha_H1, tau_H1 = np.asarray(params['alpha']), np.asarray(params['tau'])
  expected_BHL = 1 / (1 + np.exp(-alpha_H1 * (z_B1L - tau_H1)))
  np.testing.assert_allclose(gate_BHL, expected_BHL, atol=1e-12)


@pytest.mark.parametrize('orthonormal', [True, False])
def test_a_learned_wavelet_starts_as_the_fixed_one_and_its_filters_train(orthonormal):
  with jax.enable_x64(True):
    x_BLD = inputs(2, 15, WIDTH)
    fixed = make(energy='daubechies', znorm='none')
    learned = make(energy='learned_wavelet', orthonormal=orthonormal, znorm='none')
    name = 'angles' if orthonormal else 'filters'
    params = init(fixed)
    y_BLD = run(fixed, params, x_BLD)
    params[name] = start(learned)[name]

    def loss(params):
      y_BLD = learned.apply({'params': params}, x_BLD).y_BLD
      return jnp.sum(y_BLD**2), y_BLD

    gradient, again_BLD = jax.jit(jax.grad(loss, has_aux=True))(params)
    np.testing.assert_allclose(again_BLD, y_BLD, atol=1e-10)
    assert np.all(np.abs(gradient[name]) > 1e-9)


@pytest.mark.parametrize('energy', ['morlet', 'packet'])
def test_the_mean_is_the_projection_on_equal_weights(energy):
  with jax.enable_x64(True):
    x_BLD = inputs(2, 13, WIDTH)
    mean, projection = (make(energy=energy, input=u, znorm='none') for u in ('mean', 'projection'))
    params = init(mean)
    y_BLD = run(mean, params, x_BLD)
    params = params | {'w_input': jnp.full((HEADS, WIDTH), 1 / WIDTH)}
    np.testing.assert_allclose(run(projection, params, x_BLD), y_BLD, atol=1e-10)


def test_the_mean_of_a_layer_norm_gates_nothing_and_learns_nothing():
  """So EGA-M, published, starts as plain attention; along a learned direction it does not."""
  with jax.enable_x64(True):
    x_BLD, weights_BLD = inputs(2, N, WIDTH), inputs(2, N, WIDTH, seed=3)
    x_BLD = x_BLD - jnp.mean(x_BLD, -1, keepdims=True)
    x_BLD = x_BLD / jnp.std(x_BLD, -1, keepdims=True)

    def compare(**options):
      """Distance from plain attention, and the steepest slope along wave and gate parameters."""
      module = make(energy='morlet', **options)
      params = init(module)
      for name, value in (('tau', 0.0), ('alpha', 2.0), ('scale_logits', 0.5)):
        params[name] = jnp.full_like(params[name], value)
      plain = {name: params[name] for name in 'qkvo'}

      def loss(params):
        y_BLD = module.apply({'params': params}, x_BLD).y_BLD
        return jnp.sum(y_BLD * weights_BLD), y_BLD

      gradient, y_BLD = jax.jit(jax.grad(loss, has_aux=True))(params)
      names = ('alpha', 'log_omega0', 'log_sigma', 'scale_logits')
      steepest = max(float(jnp.max(jnp.abs(gradient[name]))) for name in names)
      return np.max(np.abs(y_BLD - run(make('softmax'), plain, x_BLD))), steepest

    change, slope = compare(input='mean', form='published', released=True)
    assert change < 1e-13
    assert slope < 1e-18
    change, slope = compare(input='projection', znorm='none')
    assert change > 1e-2
    assert slope > 1e-2


STREAMS = [('conv', 'query'), ('learned_wavelet', 'none'), ('packet', 'prefix')]


@pytest.mark.parametrize(('energy', 'znorm'), STREAMS)
def test_chunks_of_ragged_packed_rows_give_the_whole(energy, znorm):
  with jax.enable_x64(True):
    module = make(energy=energy, znorm=znorm, positions='alibi')
    params, x_BLD = init(module), inputs(2, N, WIDTH)
    segments_BL = jnp.asarray([[0] * 7 + [1] * 17, [3] * 10 + [4] * 6 + [5] * 8], jnp.int32)
    whole = run(module, params, x_BLD, segments_BL=segments_BL)

    @jax.jit
    def step(x_BLD, segments_BL, mask_BL, cache):
      call = {'mask_BL': mask_BL, 'segments_BL': segments_BL, 'cache': cache}
      return module.apply({'params': params}, x_BLD, **call)

    # Row 0 takes 4 tokens a chunk, row 1 takes 4, 1, 0, 4, ... with padding behind them.
    cache, done, pieces = module.init_cache(2, N, jnp.float64), [0, 0], [[], []]
    takes = [(4, 4), (4, 1), (4, 0), (4, 4), (4, 4), (4, 3), (0, 4), (0, 4)]
    for take in takes:
      rows = [np.arange(d, d + 4) % N for d in done]
      chunk_BLD = jnp.stack([x_BLD[i, row] for i, row in enumerate(rows)])
      chunk_BL = jnp.stack([segments_BL[i, row] for i, row in enumerate(rows)])
      mask_BL = jnp.arange(4)[None, :] < jnp.asarray(take)[:, None]
      y_BLD, _, cache = step(chunk_BLD, chunk_BL, mask_BL, cache)
      for i, n in enumerate(take):
        pieces[i].append(np.asarray(y_BLD[i, :n]))
        done[i] += n
  assert done == [N, N]
  for i in range(2):
    np.testing.assert_allclose(np.concatenate(pieces[i]), whole[i], atol=1e-9)


@pytest.mark.parametrize('positions', ['learned', 'rope', 'alibi'])
def test_with_fourier_qk_an_open_gate_leaves_it_and_an_all_pass_filter_leaves_ega(positions):
  with jax.enable_x64(True):
    x_BLD = inputs(2, N, WIDTH)
    both = make('ega_fourier_qk', positions=positions, znorm='none')
    params = init(both)
    params['alpha'] = jnp.zeros_like(params['alpha'])
    filtered = {k: v for k, v in params.items() if k in 'qkvo' or k == 'log_centre'}
    expected = run(make('fourier_qk', positions=positions), filtered, x_BLD)
    np.testing.assert_allclose(run(both, params, x_BLD), expected, atol=1e-12)

    all_pass = {'sigma': 1e7, 'learned': False, 'norm': 'l2'}
    both = make('ega_fourier_qk', positions=positions, znorm='none', **all_pass)
    params = init(both)
    expected = run(make(positions=positions, znorm='none'), params, x_BLD)
    bins = N // 2 + 1  # a flat response of unit L2 norm divides queries and keys by sqrt(bins)
    params['q']['kernel'] = params['q']['kernel'] * bins
    np.testing.assert_allclose(run(both, params, x_BLD), expected, atol=1e-9)


def test_what_both_do_not_do_the_composition_refuses():
  module = make('ega_fourier_qk')
  x_BLD = jnp.zeros((1, 4, WIDTH))
  params = init(module)
  with pytest.raises(UserError, match=r"mixer 'ega_fourier_qk'.*segments"):
    run(module, params, x_BLD, segments_BL=jnp.zeros((1, 4), jnp.int32))
  with pytest.raises(UserError, match='sees the future'):
    make('ega_fourier_qk', znorm='sequence')
  with pytest.raises(UserError, match="did you mean 'gaussian'"):
    make('ega_fourier_qk', filter='gausian')


@pytest.mark.parametrize(
  ('options', 'message'),
  [
    ({'energy': 'morlett'}, "did you mean 'morlet'"),
    ({'energy': 'morlet', 'input': 'men'}, "did you mean 'mean'"),
    ({'energy': 'packet', 'wavelet': 'db4x'}, "did you mean 'db4'"),
    ({'energy': 'learned_wavelet', 'wavelet': 'haar'}, 'nothing is learned'),
    ({'energy': 'daubechies', 'levels': 5}, 'within the context of 24'),
    ({'energy': 'conv', 'lengths': ()}, 'numbers of taps'),
    ({'energy': 'conv', 'tau': (0.1, 0.2, 0.3)}, 'each of the 2 scales'),
    ({'energy': 'conv', 'pad': 'reflect'}, "model.form='published'"),
    ({'energy': 'linear', 'pad': 'reflect', 'form': 'published'}, 'needs taps'),
  ],
)
def test_contradictions_are_refused(options, message):
  with pytest.raises(UserError, match=message):
    make(**options)
