"""The baselines: what each one computes, in chunks too, and what it refuses."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sgnjax.errors import UserError
from sgnjax.mixers import MIXERS
from sgnjax.ops.linear_attention import elu_features

pytestmark = pytest.mark.usefixtures('float64')

WIDTH, HEADS, N = 16, 2, 24
E = WIDTH // HEADS


def make(name, **options):
  sizes = {'width': WIDTH, 'heads': HEADS, 'context': N}
  return MIXERS[name](**sizes, dtype=jnp.float64, param_dtype=jnp.float64, **options)


def inputs(length=N, batch=2, seed=0):
  return jnp.asarray(np.random.default_rng(seed).normal(size=(batch, length, WIDTH)))


def init(module, size=0.4, seed=0):
  """Random parameters, sharp enough that scores matter."""
  rng = np.random.default_rng(seed)
  shapes = jax.eval_shape(module.init, jax.random.key(0), inputs()).get('params', {})
  return jax.tree.map(lambda a: jnp.asarray(size * rng.normal(size=a.shape)), shapes)


def run(module, params, x_BLD, **call):
  apply = jax.jit(lambda p, x, c: module.apply({'params': p}, x, **c).y_BLD)
  return np.asarray(apply(params, x_BLD, call))


def rows(length=N):
  """The masks and segments of two rows: one whole, one padded; documents in both."""
  at_L = np.arange(length)[None, :]
  mask_BL = at_L < np.array([[length], [length // 2]])
  segments_BL = (at_L >= np.array([[7], [3]])).astype(np.int32)
  return {'mask_BL': jnp.asarray(mask_BL), 'segments_BL': jnp.asarray(segments_BL)}


@pytest.mark.parametrize('form', ['causal', 'bidirectional'])
def test_uniform_is_softmax_attention_without_scores(form):
  options = {'form': form, 'qkv_bias': True}
  uniform, softmax = make('uniform', **options), make('softmax', **options)
  params = init(softmax)
  params['q'] = jax.tree.map(jnp.zeros_like, params['q'])
  alone = {name: params[name] for name in 'vo'}
  for call in ({}, rows()):
    expected = run(softmax, params, inputs(), **call)
    np.testing.assert_allclose(run(uniform, alone, inputs(), **call), expected, atol=1e-13)


@pytest.mark.parametrize('form', ['causal', 'bidirectional'])
def test_linear_is_attention_with_its_kernel(form):
  linear = make('linear', form=form, out_bias=False)
  params = init(linear)
  q, k, v = (
    (np.asarray(inputs()) @ np.asarray(params[n]['kernel'])).reshape(2, N, HEADS, E) for n in 'qkv'
  )
  weight = np.einsum('blhe,bshe->bhls', *(np.where(a > 0, a + 1, np.exp(a)) for a in (q, k)))
  weight = np.tril(weight) if form == 'causal' else weight
  y = np.einsum('bhls,bshe->blhe', weight / weight.sum(-1, keepdims=True), v)
  expected = y.reshape(2, N, WIDTH) @ np.asarray(params['o']['kernel'])
  np.testing.assert_allclose(run(linear, params, inputs()), expected, atol=1e-12)
  np.testing.assert_allclose(elu_features(jnp.asarray(q)), jax.nn.elu(q) + 1, rtol=1e-12)


@pytest.mark.parametrize('options', [{}, {'form': 'bidirectional', 'positions': 'rope'}], ids=str)
def test_performer_converges_to_softmax_attention(options):
  """Its error falls like 1 / sqrt(features): by 16 from 8 to 2048.

  Scores are mild here. Under sharp ones the estimate has a heavy tail, and 2048 do not suffice.
  """
  softmax = make('softmax', **options)
  params, x_BLD = init(softmax, size=0.05), inputs(batch=4)
  form = {key: value for key, value in options.items() if key == 'form'}
  expected = run(softmax, params, x_BLD)

  def error(name, **options):
    y_BLD = run(make(name, **options), params, x_BLD)
    return np.sqrt(np.mean((y_BLD - expected) ** 2))

  few, many = (error('performer', features=f, **options) for f in (8, 2048))
  assert 8 < few / many < 32
  assert many < 0.3 * error('uniform', **form)


def test_performer_bears_sharp_scores_in_float32():
  """Exponents below -100 vanish in float32; a maximum over the sequence would look ahead."""
  module = MIXERS['performer'](width=WIDTH, heads=HEADS, context=N)
  x_BLD = inputs().astype(jnp.float32)

  def apply(params, x_BLD):
    y_BLD = module.apply({'params': params}, x_BLD).y_BLD
    return jnp.sum(y_BLD**2), y_BLD

  step = jax.jit(jax.value_and_grad(apply, has_aux=True))
  for size, exponent in ((2.0, 150), (8.0, 2500)):
    exact = init(module, size=size)
    params = jax.tree.map(lambda a: a.astype(jnp.float32), exact)
    q_BLHE = 4 * size * x_BLD.reshape(2, N, HEADS, E)  # as large as its projections are
    *_, scale_BLH = module.feature_maps(q_BLHE, q_BLHE, None)
    assert np.min(scale_BLH) < -exponent
    (_, y_BLD), gradient = step(params, x_BLD)
    assert all(np.isfinite(a).all() for a in (y_BLD, *jax.tree.leaves(gradient)))
    _, later_BLD = step(params, x_BLD.at[:, 9:].multiply(10.0))[0]
    np.testing.assert_array_equal(later_BLD[:, :9], y_BLD[:, :9])
    if size == 2:
      truth = run(make('performer'), exact, inputs())
      np.testing.assert_allclose(y_BLD, truth, atol=1e-4 * np.abs(truth).max())


def test_haar_keeps_one_half_and_averages_the_other():
  module, x_BLD = make('haar', levels=3), inputs()
  y_BLD = run(module, {}, x_BLD)
  np.testing.assert_array_equal(y_BLD[..., :8], x_BLD[..., :8])
  for channel, window in enumerate([2, 4, 8, 2, 4, 8, 2, 4]):
    c = 8 + channel
    for t in (0, 1, 5, 23):
      expected = np.mean(x_BLD[:, max(0, t - window + 1) : t + 1, c], axis=1)
      np.testing.assert_allclose(y_BLD[:, t, c], expected, atol=1e-14)
  odd = MIXERS['haar'](width=5, heads=1, context=N)
  y_BLD = run(odd, {}, x_BLD[..., :5])
  np.testing.assert_array_equal(y_BLD[..., :3], x_BLD[..., :3])
  assert np.all(y_BLD[:, 5, 3:] != x_BLD[:, 5, 3:5])


@pytest.mark.parametrize('length', [1, 7, N])
def test_fnet_is_the_real_part_of_a_fourier_transform(length):
  x_BLD = inputs(length)
  expected = np.fft.fft2(np.asarray(x_BLD), axes=(1, 2)).real
  np.testing.assert_allclose(run(make('fnet', form='published'), {}, x_BLD), expected, atol=1e-12)
  scaled = run(make('fnet', form='bidirectional'), {}, x_BLD)
  np.testing.assert_allclose(scaled * np.sqrt(length * WIDTH), expected, atol=1e-12)


def test_identity_changes_nothing():
  np.testing.assert_array_equal(run(make('identity'), {}, inputs()), inputs())


CACHED = {
  'linear': {},
  'performer': {'positions': 'rope', 'features': 12},
  'uniform': {},
  'haar': {'levels': 3},
  'identity': {},
}


@pytest.mark.parametrize('name', CACHED)
def test_ragged_chunks_of_documents_give_the_whole(name):
  module, x_BLD, call = make(name, **CACHED[name]), inputs(), rows()
  params = init(module)
  whole = run(module, params, x_BLD, **call)
  step = jax.jit(lambda x, c: module.apply({'params': params}, x, **c)[::2])
  cache, pieces = module.init_cache(2, N, jnp.float64), []
  for start in range(0, N, 4):
    part = slice(start, start + 4)
    y_BLD, after = step(x_BLD[:, part], {k: v[:, part] for k, v in call.items()} | {'cache': cache})
    if start >= N // 2:  # the second row is at its end
      same = jax.tree.map(lambda old, new: np.array_equal(old[1], new[1]), cache, after)
      assert all(jax.tree.leaves(same))
    assert jax.tree.map(jnp.shape, after) == jax.tree.map(jnp.shape, cache)
    cache = after
    pieces.append(y_BLD)
  np.testing.assert_allclose(np.concatenate(pieces, 1), whole, atol=1e-9)
  np.testing.assert_array_equal(whole[1, N // 2 :], 0)


@pytest.mark.parametrize('name', CACHED)
def test_prompts_of_different_length_go_on_as_each_alone(name):
  module, x_BLD, next_BLD = make(name, **CACHED[name]), inputs(10), inputs(3, seed=8)
  params = init(module)
  step = jax.jit(lambda x, c: module.apply({'params': params}, x, **c)[::2])
  mask_BL = jnp.arange(10)[None, :] < jnp.array([[10], [4]])
  _, cache = step(x_BLD, {'mask_BL': mask_BL, 'cache': module.init_cache(2, N, jnp.float64)})
  together, _ = step(next_BLD, {'cache': cache})
  row = jnp.concatenate([x_BLD[1, :4], next_BLD[1], x_BLD[1, 4:]])
  alone = run(module, params, jnp.stack([jnp.concatenate([x_BLD[0], next_BLD[0]]), row]))
  np.testing.assert_allclose(together[0], alone[0, 10:], atol=1e-12)
  np.testing.assert_allclose(together[1], alone[1, 4:7], atol=1e-12)


def test_caches_take_the_memory_they_state():
  def numbers(name, max_len=1000, **options):
    cache = make(name, **options).init_cache(1, max_len, jnp.bfloat16)
    floats = [a for a in jax.tree.leaves(cache) if jnp.issubdtype(a.dtype, jnp.floating)]
    return sum(a.size for a in floats), {str(a.dtype) for a in floats}

  top = HEADS  # of each head, the scale its sums are relative to
  assert numbers('linear') == (E * (WIDTH + HEADS) + top, {'float32'})
  assert numbers('performer', features=40) == (40 * (WIDTH + HEADS) + top, {'float32'})
  assert numbers('uniform') == (WIDTH, {'float32'})
  assert numbers('haar', levels=3) == (7 * WIDTH // 2, {'bfloat16'})
  assert numbers('haar', levels=20) == (1000 * WIDTH // 2, {'bfloat16'})
  assert numbers('identity') == (0, set())


def test_parameter_counts_follow_the_docstrings():
  def count(name, **options):
    return sum(a.size for a in jax.tree.leaves(init(make(name, **options))))

  for name, projections in (('linear', 4), ('performer', 4), ('uniform', 2)):
    assert count(name) == projections * WIDTH**2 + WIDTH
    biases = projections * WIDTH
    assert count(name, qkv_bias=True) == projections * WIDTH**2 + biases
  assert [count(name) for name in ('haar', 'identity')] == [0, 0]
  assert count('fnet', form='published') == 0


@pytest.mark.parametrize(
  ('name', 'options', 'message'),
  [
    ('linear', {'positions': 'rope'}, r"positions='rope'.*'linear'.*normaliser.*'performer'"),
    ('linear', {'positions': 'alibi'}, r"positions='alibi'.*'linear'.*score"),
    ('performer', {'positions': 'alibi'}, r"positions='alibi'.*'performer'.*score"),
    ('performer', {'features': 0}, r'baselines\.features=0.*at least 1'),
    ('haar', {'levels': 0}, r'baselines\.levels=0.*1 to 24'),
    ('haar', {'form': 'bidirectional'}, r"'haar'.*'bidirectional'.*'causal'"),
    ('fnet', {}, r"'causal'.*'fnet': FNet sees the whole sequence.*'bidirectional'"),
  ],
)
def test_contradictions_are_refused(name, options, message):
  with pytest.raises(UserError, match=message):
    make(name, **options).check()


def test_what_fits_is_not_refused():
  for name, module in (
    ('linear', make('linear', positions='learned')),
    ('performer', make('performer', positions='rope')),
    ('haar', make('haar', form='published', positions='rope')),
    ('fnet', make('fnet', form='bidirectional')),
    ('identity', make('identity', form='bidirectional')),
  ):
    module.check()
    assert module.label == name
    assert module.causal == (name != 'fnet')
  assert not any(make(n, form='bidirectional').causal for n in ('linear', 'performer', 'uniform'))


def test_fnet_refuses_masks_and_segments_by_name():
  for call, word in (({'mask_BL': rows()['mask_BL']}, 'padding mask'), (rows(), 'padding mask')):
    with pytest.raises(UserError, match=rf"mixer 'fnet' .*{word}.*one length"):
      make('fnet', form='published').apply({}, inputs(), **call)
  with pytest.raises(UserError, match=r"mixer 'fnet' .*segments.*'linear'"):
    make('fnet', form='published').apply({}, inputs(), segments_BL=rows()['segments_BL'])


@pytest.mark.parametrize('name', ['linear', 'performer', 'uniform', 'fnet'])
def test_what_sees_the_future_keeps_no_cache(name):
  module = make(name, form='bidirectional')
  with pytest.raises(UserError, match=f"mixer '{name}' keeps no cache"):
    module.init_cache(1, N, jnp.float64)
  with pytest.raises(UserError, match=f"mixer '{name}' keeps no cache"):
    module.apply({'params': init(module)}, inputs(), cache=())
