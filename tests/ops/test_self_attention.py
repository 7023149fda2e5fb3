"""All paths of attention over a sequence against the plain one, forward and backward."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sgnjax.errors import UserError
from sgnjax.ops import self_attention as paths
from sgnjax.ops.backend import assumed
from sgnjax.ops.biases import Bias, alibi, of_keys
from sgnjax.ops.blocked_attention import Tiles, blocked_attention
from sgnjax.ops.energy import by_queries, log_gate, tile_log_gate
from sgnjax.ops.self_attention import chosen, self_attention
from sgnjax.ops.statistics import prefix_moments, znorm

B, L, H, E = 3, 20, 2, 4
TILES = Tiles(8, 4, 2)  # neither divides the length, nor the examples theirs


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
  monkeypatch.setattr(paths, 'tiles_of', lambda q_BLHE: TILES)


def inputs(dtype=jnp.float64, seed=0):
  rng = np.random.default_rng(seed)
  shapes = {'q': (B, L, H, E), 'k': (B, H, L, E), 'v': (B, H, L, E), 'gate': (B, H, L)}
  arrays = {name: jnp.asarray(rng.normal(size=shape), dtype) for name, shape in shapes.items()}
  return arrays | {'energy': jnp.asarray(rng.normal(size=(B, H, 2, L)), dtype)}


def ragged():
  return jnp.asarray(np.arange(L)[None, :] < np.asarray([L, 7, 0])[:, None])


def documents():
  return jnp.asarray(np.sort(np.random.default_rng(3).integers(0, 4, (B, L)), axis=1), jnp.int32)


def thresholds(dtype):
  rng = np.random.default_rng(4)
  return [jnp.asarray(rng.normal(size=(H, 2)), dtype) for _ in range(3)]


def of_queries(energy_BHSL):
  """EGA's gate whose statistics are those of each query."""
  moments = prefix_moments(energy_BHSL)
  rows, shared = by_queries(moments, *thresholds(energy_BHSL.dtype))
  return Bias(tile_log_gate, rows, energy_BHSL.swapaxes(2, 3), shared)


def attend(path, arrays, *, causal=True, biases='', **what):
  at = jnp.arange(L, dtype=jnp.int32)[None, :]
  given = {
    'gate': lambda: of_keys(arrays['gate']),
    'distance': lambda: alibi(at, at, H, dtype=arrays['q'].dtype),
    'energy': lambda: of_queries(arrays['energy']),
  }
  chosen_biases = tuple(given[name]() for name in biases.split())
  q, k, v = (arrays[name] for name in 'qkv')
  return self_attention(q, k, v, scale=0.7, causal=causal, biases=chosen_biases, path=path, **what)


CASES = {
  'causal': {},
  'two-sided': {'causal': False},
  'padded': {'mask_BL': ragged},
  'two-sided-padded-documents': {
    'causal': False,
    'mask_BL': ragged,
    'segments_BL': documents,
    'biases': 'distance gate',
  },
  'documents': {'segments_BL': documents, 'biases': 'gate'},
  'of-queries': {'mask_BL': ragged, 'biases': 'energy distance'},
}


@pytest.mark.usefixtures('float64')
@pytest.mark.parametrize('case', CASES)
def test_tiles_give_what_the_whole_gives(case):
  options = {key: a() if callable(a) else a for key, a in CASES[case].items()}

  def compared(path):
    def loss(arrays):
      y = attend(path, arrays, **options)
      return jnp.sum(jnp.sin(y)), y

    return jax.jit(jax.value_and_grad(loss, has_aux=True))(inputs())

  (_, ours), our_grads = compared('blocked')
  (_, theirs), their_grads = compared('plain')
  np.testing.assert_allclose(ours, theirs, atol=1e-13)
  for name, grad in their_grads.items():
    np.testing.assert_allclose(our_grads[name], grad, atol=1e-12, err_msg=name)
  if 'mask_BL' in options:
    np.testing.assert_array_equal(ours[2], 0)  # a row of padding alone


def test_tiles_never_see_the_future_to_the_last_bit():
  arrays, others = inputs(jnp.float32), inputs(jnp.float32, seed=1)
  t = 13

  def mixed(name):
    axis = {'q': 1, 'energy': 3}.get(name, 2)
    past = jnp.arange(L).reshape([-1 if i == axis else 1 for i in range(arrays[name].ndim)]) <= t
    # Any weight of theirs but exactly 0 would show.
    return jnp.where(past, arrays[name], others[name] * jnp.float32(1e30))

  run = jax.jit(lambda arrays: attend('blocked', arrays, biases='gate'))
  ours, theirs = run(arrays), run({name: mixed(name) for name in arrays})
  np.testing.assert_array_equal(ours[:, : t + 1], theirs[:, : t + 1])


@pytest.mark.usefixtures('float64')
def test_a_gate_by_tiles_is_the_gate_under_each_querys_moments():
  energy_BHSL = inputs()['energy']
  moments = prefix_moments(energy_BHSL)
  key_BHS1L = energy_BHSL[:, :, :, None]
  z_BHSLL = znorm(key_BHS1L, type(moments)(*(m[..., None] for m in moments)))
  bias = of_queries(energy_BHSL)
  ours = bias.of(bias.rows, bias.columns, bias.shared)
  np.testing.assert_allclose(ours, log_gate(z_BHSLL, *thresholds(jnp.float64)), atol=1e-12)


def test_bfloat16_by_tiles_is_as_near_as_the_plain_path():
  arrays = inputs(jnp.float32)
  narrow = {name: a.astype(jnp.bfloat16) if name in 'qkv' else a for name, a in arrays.items()}
  exact = attend('plain', {name: a.astype(jnp.float32) for name, a in narrow.items()})
  for path in ('plain', 'blocked'):
    y = attend(path, narrow)
    assert y.dtype == jnp.bfloat16
    np.testing.assert_allclose(y.astype(jnp.float32), exact, atol=0.02)


@pytest.mark.parametrize('masked', [False, True])
def test_the_fused_call_computes_the_same(monkeypatch, masked):
  """cuDNN's own kernel is not here: the same call of JAX's in XLA's form."""
  arrays = inputs(jnp.float32)
  mask_BL = ragged() if masked else None
  plain = attend('plain', arrays, biases='gate', mask_BL=mask_BL)
  real = jax.nn.dot_product_attention
  seen = []

  def by_xla(q, k, v, **options):
    seen.append(q.shape[-1])
    assert options.pop('implementation') == 'cudnn'
    return real(q, k, v, implementation='xla', **options)

  monkeypatch.setattr(jax.nn, 'dot_product_attention', by_xla)
  np.testing.assert_allclose(
    attend('fused', arrays, biases='gate', mask_BL=mask_BL), plain, atol=1e-5
  )
  assert seen == [8]


def test_the_path_follows_backend_length_and_what_is_asked():
  def path(length, dtype=jnp.float32, **what):
    q_BLHE = jax.ShapeDtypeStruct((2, length, 4, 64), dtype)
    return chosen(q_BLHE, jax.ShapeDtypeStruct((2, 4, length, 64), dtype), **what)

  assert path(64) == 'plain'
  assert path(256) == 'blocked'
  assert path(256, dropout=('rng', 0.1)) == 'plain'
  by_query = Bias(tile_log_gate, (), (), ())
  with assumed('gpu'):
    assert path(256, jnp.bfloat16) == 'fused'
    assert path(256) == 'plain'
    assert path(4096, jnp.bfloat16, biases=(by_query,)) == 'blocked'
    assert path(4096, jnp.bfloat16, segments_BL='some') == 'blocked'
  with assumed('tpu'):
    assert path(4096, jnp.bfloat16) == 'blocked'
  with pytest.raises(UserError, match='blocked'):
    attend('block', inputs(jnp.float32))


def test_no_array_of_queries_by_keys_is_ever_there():
  q_BLHE = jax.ShapeDtypeStruct((1, 4096, 2, 8), jnp.float32)
  k_BHSE = jax.ShapeDtypeStruct((1, 2, 4096, 8), jnp.float32)
  energy_BHSL = jax.ShapeDtypeStruct((1, 2, 1, 4096), jnp.float32)

  def loss(q, k, v, energy):
    moments = prefix_moments(energy)
    one = [a[:, :1] for a in thresholds(jnp.float32)]
    rows, shared = by_queries(moments, *one)
    bias = Bias(tile_log_gate, rows, energy.swapaxes(2, 3), shared)
    how = {'scale': 1.0, 'causal': True, 'tiles': Tiles(256, 256, 1), 'bias': bias}
    return jnp.sum(blocked_attention(q, k, v, **how))

  step = jax.jit(jax.grad(loss, (0, 1, 2, 3)))
  found = step.lower(q_BLHE, k_BHSE, k_BHSE, energy_BHSL).compile().memory_analysis()
  assert found.temp_size_in_bytes < 2 * 4096 * 4096 * 4 / 4  # a quarter of one such array
