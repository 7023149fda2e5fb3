"""The mixers against the papers' own code, float64 to 1e-10, float32 to ten times its noise."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sgnjax.mixers import MIXERS
from sgnjax.models.block import Block
from tests import weights

EGA = {
  'ega1': {},
  'ega2': {'scales': 2},
  'ega4': {'scales': 4},
  'ega1_single_token': {},
  'ega1_closed_gate': {},
  'egaC': {'energy': 'conv'},
  'egaM': {'energy': 'morlet', 'input': 'mean'},
}
MORLET = {'kernel': 'taps', 'filter': 'morlet', 'scores': 'analytic'}
FOURIER_QK = {
  'fqk5b_dc': {'filter': 'dc'},
  'fqk5b_nyquist': {'filter': 'nyquist'},
  'fqk5b_gauss0p5': {'sigma': 0.5},
  'fqk5b_gauss2': {'sigma': 2.0},
  'fqk5b_gauss16': {'sigma': 16.0},
  'fqk5b_mexhat4': {'filter': 'mexican_hat'},
  'fqk5a_learned': {'sigma': 2.0, 'norm': 'l2'},
  'fqk5a_fixed_bin4': {'sigma': 2.0, 'norm': 'l2', 'learned': False, 'bins': (4.0,)},
  'fqk5a_learned_two_branch': {'norm': 'l2', 'scores': 'analytic'},
  'fqk5a_fixed_bin4_two_branch': {'norm': 'l2', 'scores': 'analytic', 'learned': False},
  'fqk5a_morlet_fixed': MORLET | {'taps': 32, 'learned': False, 'widths': (4.0,)},
  'fqk5a_morlet_learned': MORLET | {'taps': 128},
  'fqk5a_causal_spectral': MORLET | {'taps': 48, 'filter': 'spectral'},
}


def close(y, truth, noise, dtype) -> None:
  tolerance = 1e-10 if dtype == 'float64' else max(10 * float(noise), 1e-7)
  assert y.dtype == dtype
  assert np.max(np.abs(np.asarray(y, np.float64) - truth)) <= tolerance


def run(module, params, x, dtype):
  """The module on golden input, everything in one dtype."""
  with jax.enable_x64(dtype == 'float64'):
    module = module(dtype=jnp.dtype(dtype), param_dtype=jnp.dtype(dtype))
    return jax.jit(module.apply)({'params': weights.tree(params, dtype)}, jnp.asarray(x, dtype))


@pytest.mark.parametrize('dtype', ['float64', 'float32'])
@pytest.mark.parametrize('name', EGA)
def test_ega(golden, name, dtype):
  g = golden(name)

  def module(**kinds):
    return MIXERS['ega'](
      width=32, heads=4, context=32, form='published', released=True, **EGA[name], **kinds
    )

  y_BLD, _, _ = run(module, weights.ega(g), g['x'], dtype)
  close(y_BLD, g['y'], g['y_f32_noise'], dtype)


@pytest.mark.parametrize('name', ['ega1', 'ega4', 'egaC'])
def test_ega_without_the_floor_is_the_same_where_the_floor_is_idle(golden, name):
  g = golden(name)

  def module(**kinds):
    return MIXERS['ega'](width=32, heads=4, context=32, form='published', **EGA[name], **kinds)

  y_BLD, _, _ = run(module, weights.ega(g), g['x'], 'float64')
  close(y_BLD, g['y'], 0, 'float64')


@pytest.mark.parametrize('dtype', ['float64', 'float32'])
@pytest.mark.parametrize('name', ['ega_base', 'fqk5b_dot'])
def test_softmax(golden, name, dtype):
  g = golden(name)

  def module(**kinds):
    return MIXERS['softmax'](width=32, heads=4, context=64, out_bias='b_o' in g, **kinds)

  y_BLD, _, _ = run(module, weights.attention(g), g['x'], dtype)
  close(y_BLD, g['y'], g['y_f32_noise'], dtype)


@pytest.mark.parametrize('dtype', ['float64', 'float32'])
@pytest.mark.parametrize('name', FOURIER_QK)
def test_fourier_qk(golden, name, dtype):
  g = golden(name)
  context = g['x'].shape[1]

  def module(**kinds):
    return MIXERS['fourier_qk'](
      width=32,
      heads=4,
      context=context,
      form='published',
      out_bias=False,
      **FOURIER_QK[name],
      **kinds,
    )

  y_BLD, _, _ = run(module, weights.fourier_qk(g, context), g['x'], dtype)
  close(y_BLD, g['y'], g['y_f32_noise'], dtype)


def chiar_block(mixer: str, *, meta: bool = False, tau: float = 0.0):
  def module(dtype, param_dtype):
    def make(**names):
      return MIXERS[mixer](
        width=32,
        heads=4,
        context=32,
        form='published',
        positions='rope',
        qkv_bias=True,
        released=True,
        tau=tau,
        dtype=dtype,
        param_dtype=param_dtype,
        **names,
      )

    return Plain(Block(make, 'chiar', 128, meta))

  return module


class Plain:
  """A block called with x alone."""

  def __init__(self, block):
    self.block = block

  def apply(self, variables, x_BLD):
    nothing = dict.fromkeys(('positions_BL', 'mask_BL', 'segments_BL', 'cache'))
    return self.block.apply(variables, x_BLD, train=False, **nothing)


@pytest.mark.parametrize('dtype', ['float64', 'float32'])
def test_chiar_routed_layer(golden, dtype):
  g = golden('chiar_layer')
  tau = float(g['tau_low'] + g['tau_high']) / 2
  y_BLD, aux, _ = run(chiar_block('chiar', tau=tau), weights.chiar_block(g), g['x'], dtype)
  close(y_BLD, g['y'], g['y_f32_noise'], dtype)
  np.testing.assert_allclose(aux.metrics['attention_share'], g['route'].mean(), rtol=1e-6)


@pytest.mark.parametrize('dtype', ['float64', 'float32'])
def test_chiar_meta_router_around_the_first_layer(golden, dtype):
  g = golden('chiar_meta_blend')
  params = weights.chiar_block(g) | {'meta_router': weights.meta_router(g)}
  y_BLD, aux, _ = run(chiar_block('chiar_dct', meta=True), params, g['x'], dtype)
  close(y_BLD, g['y'], g['y_f32_noise'], dtype)
  np.testing.assert_allclose(aux.metrics['meta_gate'], g['gate'], rtol=1e-6)


@pytest.mark.parametrize('dtype', ['float64', 'float32'])
@pytest.mark.parametrize('released', [True, False])
def test_chiar_dct_operator(golden, dtype, released):
  g = golden('chiar_dctmix')

  def module(**kinds):
    return MIXERS['chiar_dct'](width=32, heads=4, context=16, released=released, **kinds)

  params = {'w_spectral': g['w_spec'], 'dct_norm': weights.norm(g, 'ln_')}
  y_BLD, _, _ = run(module, params, g['x'], dtype)
  close(y_BLD, g['y' if released else 'y_ortho'], g['y_f32_noise'], dtype)
