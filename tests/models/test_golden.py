"""Whole tiny models against the papers' own code, and a mistake that must not go unseen."""

import jax
import numpy as np
import pytest

from sgnjax.models import build
from tests import weights

MODELS = {
  'model_ega1': weights.model_ega1,
  'model_fqk_gauss2': weights.model_fqk_gauss2,
  'model_chiar': lambda g: weights.model_chiar(g, float(g['tau_low'] + g['tau_high']) / 2),
}


def forward(config, params, tokens, dtype, **changes):
  with jax.enable_x64(dtype == 'float64'), config.unlocked():
    config.model.dtype = dtype
    for key, value in changes.items():
      config.model[key] = value
    model = build(config, capture=True)
    mixed = jax.jit(model.apply)({'params': weights.tree(params, dtype)}, tokens)
    return jax.device_get(mixed)


@pytest.mark.parametrize('dtype', ['float64', 'float32'])
@pytest.mark.parametrize('name', MODELS)
def test_logits_and_hidden_states(golden, name, dtype):
  g = golden(name)
  config, params = MODELS[name](g)
  logits_BLV, aux, _ = forward(config, params, g['ids'], dtype)
  noise = float(g['logits_f32_noise'])
  tolerance = 1e-10 if dtype == 'float64' else 10 * noise
  assert logits_BLV.dtype == dtype
  assert np.max(np.abs(logits_BLV - g['logits'])) <= tolerance
  hidden = [aux.debug[f'hidden/{i:02d}'][0] for i in range(len(g['hidden']) - 1)]
  np.testing.assert_allclose(
    np.stack(hidden), g['hidden'][1:], atol=max(tolerance, 2e-6), rtol=1e-6
  )


@pytest.mark.parametrize('name', MODELS)
def test_padding_the_vocabulary_changes_no_real_logit(golden, name):
  g = golden(name)
  config, params = MODELS[name](g)
  vocab = len(g['tok_emb'])
  rows = -vocab % 64
  params = dict(params, embedding=np.pad(g['tok_emb'], ((0, rows), (0, 0)), constant_values=3.0))
  if 'head' in params:
    params['head'] = np.pad(g['lm_head'], ((0, 0), (0, rows)), constant_values=3.0)
  logits_BLV, _, _ = forward(config, params, g['ids'], 'float64', vocab_multiple=64)
  assert np.max(np.abs(logits_BLV[..., :vocab] - g['logits'])) <= 1e-10
  assert np.all(logits_BLV[..., vocab:] == np.finfo(np.float64).min)


def test_the_causal_form_is_another_function(golden):
  """The comparison above can fail: prefix statistics move the published EGA's logits."""
  g = golden('model_ega1')
  config, params = weights.model_ega1(g)
  logits_BLV, _, _ = forward(config, params, g['ids'], 'float64', form='causal')
  assert np.max(np.abs(logits_BLV - g['logits'])) > 1e-3
