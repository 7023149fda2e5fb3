"""The contract of a mixer, over all of MIXERS and their forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sgnjax.errors import UserError
from sgnjax.mixers import MIXERS
from sgnjax.ops.dtypes import wide

WIDTH, HEADS, N = 16, 2, 24
SIZES = {'width': WIDTH, 'heads': HEADS, 'context': N}
# (mixer, options) of each instance. Published, the DC filter alone is blind.
CASES = {
  'softmax': ('softmax', {}),
  'softmax-rope': ('softmax', {'positions': 'rope'}),
  'softmax-bidirectional': ('softmax', {'form': 'bidirectional'}),
  'sgn': ('sgn', {}),
  'sgn-plain': ('sgn', {'gated': False}),
  'sgn-masked': ('sgn', {'operator': 'masked'}),
  'sgn-published': ('sgn', {'form': 'published'}),
  'sgn-bidirectional': ('sgn', {'form': 'bidirectional'}),
  'fourier_qk': ('fourier_qk', {'norm': 'l2'}),
  'fourier_qk-mexican_hat': ('fourier_qk', {'filter': 'mexican_hat', 'norm': 'l2'}),
  'fourier_qk-rope': ('fourier_qk', {'norm': 'l2', 'positions': 'rope'}),
  'fourier_qk-published': ('fourier_qk', {'form': 'published', 'norm': 'l2'}),
  'fourier_qk-published-dc': ('fourier_qk', {'form': 'published', 'filter': 'dc'}),
  'fourier_qk-published-dc-rope': (
    'fourier_qk',
    {'form': 'published', 'filter': 'dc', 'norm': 'l2', 'positions': 'rope'},
  ),
  'fourier_qk-bidirectional': ('fourier_qk', {'form': 'bidirectional', 'norm': 'l2'}),
  'ega': ('ega', {}),
  'ega-2': ('ega', {'scales': 2}),
  'ega-prefix': ('ega', {'znorm': 'prefix'}),
  'ega-prefix-rope': ('ega', {'znorm': 'prefix', 'positions': 'rope'}),
  'ega-none': ('ega', {'znorm': 'none'}),
  'ega-released': ('ega', {'released': True}),
  'ega-published': ('ega', {'form': 'published'}),
  'chiar': ('chiar', {'tau': 0.75, 'positions': 'rope'}),
  'chiar_dct': ('chiar_dct', {}),
  'chiar_attention': ('chiar_attention', {'positions': 'rope', 'qkv_bias': True}),
}
CAUSAL = [c for c, (name, options) in CASES.items() if MIXERS[name](**SIZES, **options).causal]
LEAKY = [c for c in CASES if c not in CAUSAL]
NO_MASK = {c for c in CASES if c.startswith(('sgn-published', 'fourier_qk-published'))}
SEGMENTS = {c for c in CASES if c.startswith(('softmax', 'ega', 'chiar')) and c != 'ega-published'}
CACHED = [c for c in CAUSAL if c.startswith(('softmax', 'chiar'))]


def make(case: str, dtype: str = 'float32'):
  name, options = CASES[case]
  return MIXERS[name](**SIZES, **options, dtype=jnp.dtype(dtype), param_dtype=wide(dtype))


def inputs(batch: int, length: int, dtype: str = 'float32', seed: int = 0):
  return jnp.asarray(np.random.default_rng(seed).normal(size=(batch, length, WIDTH)), dtype)


AROUND = {'scale': 1.0, 'w_spectral': 1.0, 'alpha': 2.0, 'log_centre': -1.8}


def init(module, x_BLD, seed: int = 0):
  """Random parameters, gates and centres included, sharp enough that scores matter."""
  rng = np.random.default_rng(seed + 1)

  def leaf(path, shape):
    around = AROUND.get(path[-1].key, 0.0)
    return jnp.asarray(around + 0.3 * rng.normal(size=shape.shape), shape.dtype)

  shapes = jax.eval_shape(module.init, jax.random.key(seed), x_BLD)['params']
  return jax.tree_util.tree_map_with_path(leaf, shapes)


def run(module, params, x_BLD, **call):
  return jax.jit(lambda p, x: module.apply({'params': p}, x, **call).y_BLD)(params, x_BLD)


@pytest.mark.parametrize('length', [1, 2, 7, N])
@pytest.mark.parametrize('case', CASES)
def test_any_length_gives_finite_numbers_of_the_same_shape(case, length):
  module, x_BLD = make(case), inputs(2, length)
  mixed = module.apply({'params': init(module, x_BLD)}, x_BLD)
  assert mixed.y_BLD.shape == x_BLD.shape
  assert mixed.cache is None
  assert np.all(np.isfinite(mixed.y_BLD))


@pytest.mark.parametrize('t', [1, N // 2, N - 1])
@pytest.mark.parametrize('case', CAUSAL)
def test_causal_forms_do_not_see_the_future(case, t):
  with jax.enable_x64(True):
    module, x_BLD = make(case, 'float64'), inputs(2, N, 'float64')
    params = init(module, x_BLD)
    other_BLD = x_BLD.at[:, t:].set(inputs(2, N - t, 'float64', seed=9) * 3)
    y_BLD, z_BLD = (np.asarray(run(module, params, a)) for a in (x_BLD, other_BLD))
  change = np.max(np.abs(y_BLD[:, :t] - z_BLD[:, :t])) / np.max(np.abs(y_BLD))
  assert change <= 1e-9 if module.uses_fft else change == 0
  assert np.max(np.abs(y_BLD[:, t:] - z_BLD[:, t:])) > 1e-3


@pytest.mark.parametrize('case', [c for c in CAUSAL if not make(c).uses_fft])
def test_without_an_fft_float32_is_blind_bit_for_bit(case):
  module, x_BLD = make(case), inputs(2, N)
  params = init(module, x_BLD)
  other_BLD = x_BLD.at[:, 9:].set(inputs(2, N - 9, seed=9)).at[1].set(7.0)
  y_BLD, z_BLD = (np.asarray(run(module, params, a)) for a in (x_BLD, other_BLD))
  np.testing.assert_array_equal(y_BLD[0, :9], z_BLD[0, :9])


@pytest.mark.parametrize('case', LEAKY)
def test_the_other_forms_see_it(case):
  with jax.enable_x64(True):
    module, x_BLD = make(case, 'float64'), inputs(2, N, 'float64')
    params = init(module, x_BLD)
    other_BLD = x_BLD.at[:, -3:].set(inputs(2, 3, 'float64', seed=9) * 3)
    y_BLD, z_BLD = (np.asarray(run(module, params, a)) for a in (x_BLD, other_BLD))
  assert np.max(np.abs(y_BLD[:, :-3] - z_BLD[:, :-3])) / np.max(np.abs(y_BLD)) > 1e-6


@pytest.mark.parametrize('case', CASES)
def test_right_padding_changes_nothing_or_is_refused_by_name(case):
  with jax.enable_x64(True):
    module, x_BLD = make(case, 'float64'), inputs(2, 11, 'float64')
    params = init(module, x_BLD)
    padded_BLD = jnp.concatenate([x_BLD, 5.0 * inputs(2, 9, 'float64', seed=3)], axis=1)
    mask_BL = jnp.broadcast_to(jnp.arange(20)[None, :] < 11, (2, 20))
    if case in NO_MASK:
      with pytest.raises(UserError, match=f"mixer '{module.label}'.*padding mask"):
        run(module, params, padded_BLD, mask_BL=mask_BL)
      return
    y_BLD = np.asarray(run(module, params, x_BLD))
    z_BLD = np.asarray(run(module, params, padded_BLD, mask_BL=mask_BL))
  assert np.max(np.abs(y_BLD - z_BLD[:, :11])) <= 1e-12 * max(1, np.max(np.abs(y_BLD)))
  assert np.all(z_BLD[:, 11:] == 0)


@pytest.mark.parametrize('case', [c for c in CASES if c not in NO_MASK])
def test_an_example_of_padding_alone_gives_zeros_and_finite_gradients(case):
  module, x_BLD = make(case), inputs(2, 8)
  params = init(module, x_BLD)
  mask_BL = jnp.asarray([[True] * 5 + [False] * 3, [False] * 8])

  def loss(p, x):
    y_BLD = module.apply({'params': p}, x, mask_BL=mask_BL).y_BLD
    return jnp.sum(y_BLD**2), y_BLD

  (_, y_BLD), gradients = jax.jit(jax.value_and_grad(loss, (0, 1), has_aux=True))(params, x_BLD)
  assert np.all(np.asarray(y_BLD)[1] == 0)
  for gradient in jax.tree.leaves(gradients):
    assert np.all(np.isfinite(gradient))


@pytest.mark.parametrize('case', CASES)
def test_nothing_crosses_a_segment_or_segments_are_refused_by_name(case):
  with jax.enable_x64(True):
    module = make(case, 'float64')
    first_BLD, second_BLD = inputs(1, 9, 'float64'), inputs(1, 7, 'float64', seed=5)
    params = init(module, first_BLD)
    packed_BLD = jnp.concatenate([first_BLD, second_BLD], axis=1)
    call = {
      'segments_BL': jnp.asarray([[0] * 9 + [1] * 7]),
      'positions_BL': jnp.asarray([[*range(9), *range(7)]]),
    }
    if case not in SEGMENTS:
      with pytest.raises(UserError, match=f"mixer '{module.label}'.*segments"):
        run(module, params, packed_BLD, **call)
      return
    alone = [np.asarray(run(module, params, a)) for a in (first_BLD, second_BLD)]
    packed = np.asarray(run(module, params, packed_BLD, **call))
  np.testing.assert_allclose(packed, np.concatenate(alone, axis=1), atol=1e-12)


@pytest.mark.parametrize('dtype', ['bfloat16', 'float32', 'float64'])
@pytest.mark.parametrize('case', CASES)
def test_dtypes_stay_and_gradients_are_finite(case, dtype):
  with jax.enable_x64(dtype == 'float64'):
    module, x_BLD = make(case, dtype), inputs(2, 13, dtype)
    params = init(module, x_BLD)

    def loss(p):
      y_BLD = module.apply({'params': p}, x_BLD).y_BLD
      return jnp.sum(y_BLD.astype(jnp.float32) ** 2), y_BLD

    (_, y_BLD), gradients = jax.jit(jax.value_and_grad(loss, has_aux=True))(params)
    assert y_BLD.dtype == dtype
    assert np.all(np.isfinite(y_BLD.astype(jnp.float32)))
    for gradient, parameter in zip(
      jax.tree.leaves(gradients), jax.tree.leaves(params), strict=True
    ):
      assert gradient.dtype == parameter.dtype
      assert np.all(np.isfinite(gradient))


@pytest.mark.parametrize('case', CASES)
def test_gradients_equal_finite_differences(case):
  with jax.enable_x64(True):
    module, x_BLD = make(case, 'float64'), inputs(1, 9, 'float64')
    params = init(module, x_BLD)
    weights_BLD = inputs(1, 9, 'float64', seed=2)

    @jax.jit
    def loss(p):
      return jnp.sum(module.apply({'params': p}, x_BLD).y_BLD * weights_BLD)

    gradient = jax.grad(loss)(params)
    leaves, shape = jax.tree.flatten(params)
    rng = np.random.default_rng(4)
    way = jax.tree.unflatten(shape, [jnp.asarray(rng.normal(size=a.shape)) for a in leaves])

    def moved(h):
      return float(loss(jax.tree.map(lambda p, d: p + h * d, params, way)))

    h = 1e-5
    slope = (8 * (moved(h) - moved(-h)) - (moved(2 * h) - moved(-2 * h))) / (12 * h)
    pairs = zip(jax.tree.leaves(gradient), jax.tree.leaves(way), strict=True)
    exact = sum(jnp.sum(g * d) for g, d in pairs)
    np.testing.assert_allclose(float(exact), slope, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize('case', CACHED)
@pytest.mark.parametrize('chunk', [1, 3, N])
def test_any_split_into_chunks_gives_the_whole(case, chunk):
  with jax.enable_x64(True):
    module, x_BLD = make(case, 'float64'), inputs(2, N, 'float64')
    params = init(module, x_BLD)
    whole = np.asarray(run(module, params, x_BLD))
    cache, pieces = module.init_cache(2, N, jnp.float64), []
    for start in range(0, N, chunk):
      y_BLD, _, cache = module.apply(
        {'params': params}, x_BLD[:, start : start + chunk], cache=cache
      )
      pieces.append(np.asarray(y_BLD))
  np.testing.assert_allclose(np.concatenate(pieces, axis=1), whole, atol=1e-9)


@pytest.mark.parametrize('case', ['softmax-rope', 'chiar'])
def test_ragged_prompts_in_one_cache_equal_each_alone(case):
  with jax.enable_x64(True):
    module, x_BLD = make(case, 'float64'), inputs(2, 10, 'float64')
    params = init(module, x_BLD)
    lengths = (10, 4)
    mask_BL = jnp.arange(10)[None, :] < jnp.asarray(lengths)[:, None]
    cache = module.init_cache(2, N, jnp.float64)
    *_, cache = module.apply({'params': params}, x_BLD, mask_BL=mask_BL, cache=cache)
    next_BLD = inputs(2, 3, 'float64', seed=8)
    together, _, _ = module.apply({'params': params}, next_BLD, cache=cache)
    for i, length in enumerate(lengths):
      row = jnp.concatenate([x_BLD[i : i + 1, :length], next_BLD[i : i + 1]], axis=1)
      alone = run(module, params, row)
      np.testing.assert_allclose(together[i], alone[0, length:], atol=1e-12)


@pytest.mark.parametrize('case', [c for c in CASES if c not in CACHED and c != 'chiar_dct'])
def test_what_keeps_no_cache_says_so(case):
  with pytest.raises(UserError, match=r"mixer '\w+' keeps no cache"):
    make(case).init_cache(1, 8, jnp.float32)


def parameters(case: str) -> int:
  module = make(case)
  shapes = jax.eval_shape(module.init, jax.random.key(0), inputs(1, 4))
  return sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(shapes))


def test_parameter_counts_follow_the_docstrings():
  attention = 4 * WIDTH**2 + WIDTH
  assert parameters('softmax') == attention
  assert parameters('sgn') == (N + 1) * WIDTH + 3 * WIDTH**2 + WIDTH
  assert parameters('sgn-plain') == (N + 1) * WIDTH
  assert parameters('sgn-masked') == parameters('sgn-published') == parameters('sgn') - WIDTH
  assert parameters('fourier_qk') == attention + HEADS
  assert parameters('fourier_qk-mexican_hat') == attention + 4 * HEADS
  assert parameters('fourier_qk-published-dc') == attention
  assert parameters('ega') == attention + HEADS * (WIDTH + 4)
  assert parameters('ega-2') == attention + 2 * HEADS * (WIDTH + 4)
  assert parameters('chiar_dct') == 3 * WIDTH
  assert parameters('chiar') == 3 * WIDTH + attention + 2 * WIDTH
  assert parameters('chiar_attention') == attention + 3 * WIDTH + 2 * WIDTH


@pytest.mark.parametrize('length', [48, 63, 128])
@pytest.mark.parametrize('case', ['sgn-published', 'fourier_qk-published'])
def test_a_published_gate_serves_other_lengths(case, length):
  """Gates live on normalised frequency: another length resamples them."""
  name, options = CASES[case]
  module = MIXERS[name](**(SIZES | {'context': 64}), **options)
  params = init(module, inputs(1, 64))
  y_BLD = module.apply({'params': params}, inputs(1, length)).y_BLD
  assert y_BLD.shape == (1, length, WIDTH)
  assert np.all(np.isfinite(y_BLD))


def test_a_gate_resampled_to_its_own_grid_and_back_keeps_its_shape():
  from sgnjax.mixers.sgn import resample_gate

  k_N = jnp.arange(64, dtype=jnp.float32) / 64
  gate_N1 = jnp.cos(2 * k_N)[:, None]
  for length in (48, 63, 128):
    expected_L1 = np.cos(2 * np.arange(length) / length)[:, None]
    inner = slice(0, int(length * 63 / 64))
    got = np.asarray(resample_gate(gate_N1, length))
    np.testing.assert_allclose(got[inner], expected_L1[inner], atol=1e-3)


def test_contradictions_are_refused():
  with pytest.raises(UserError, match="did you mean 'kernel'"):
    MIXERS['sgn'](**SIZES, operator='kernl').check()
  with pytest.raises(UserError, match='form'):
    MIXERS['sgn'](**SIZES, operator='masked', form='published').check()
  with pytest.raises(UserError, match='sees the future'):
    MIXERS['ega'](**SIZES, znorm='sequence').check()
  with pytest.raises(UserError, match="belongs to form 'causal'"):
    MIXERS['ega'](**SIZES, znorm='query', form='published').check()
  with pytest.raises(UserError, match="did you mean 'gaussian'"):
    MIXERS['fourier_qk'](**SIZES, filter='gausian').check()
