"""Calibration: the published thresholds, and what the job says of text and weights."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs import base
from sgnjax import config as config_lib
from sgnjax.data import pipeline
from sgnjax.errors import UserError
from sgnjax.jobs import calibrate
from sgnjax.models import build
from sgnjax.train.checkpoint import Checkpoints
from sgnjax.train.state import TrainState


def config_of(tmp_path, **chiar):
  (tmp_path / 'text.txt').write_text('the quick brown fox jumps over the lazy dog. ' * 40)
  c = base.get_config().unlock()
  c.data.name, c.data.path = 'text', str(tmp_path / 'text.txt')
  c.model.mixer, c.model.block = 'chiar', 'chiar'
  c.model.layers, c.model.width, c.model.heads, c.model.context = 4, 16, 2, 24
  for key, value in chiar.items():
    c.model.chiar[key] = value
  return c.lock()


def test_golden_thresholds(golden):
  g = golden('chiar_tau')
  entropy_N = calibrate.embedding_entropy(g['embedding'], g['ids'], basis='dct', released=True)
  found = calibrate.calibrate(entropy_N)
  np.testing.assert_allclose(entropy_N, g['entropy'], atol=1e-10)
  wanted = [float(g[f'tau_{name}']) for name in ('low', 'high', 'mid')]
  assert found[:3] == pytest.approx(wanted, abs=1e-10)
  assert f'{found.middle:.4f}' == f'{float(g["tau_mid_printed"]):.4f}'
  assert found.share == np.mean(g['route'])
  ours_N = calibrate.embedding_entropy(g['embedding'], g['ids'], basis='dct', released=False)
  assert np.mean(ours_N > calibrate.calibrate(ours_N).middle) == np.mean(g['route_ortho'])


@pytest.mark.parametrize(
  ('options', 'name'),
  [
    ({'released': True, 'calibrated': 'dct'}, 'released'),  # a calibration replaces another
    ({'basis': 'permuted', 'rbf': True}, 'permuted'),
  ],
)
def test_the_lines_it_prints_make_a_config_that_builds(capsys, tmp_path, options, name):
  config = config_of(tmp_path, **options)
  assert calibrate.run(config, tmp_path / 'none') == 0
  text = capsys.readouterr().out
  assert 'initial weights of seed 0' in text
  assert 'mean of white noise at width 16  0.7368' in text
  lines = dict(re.findall(r'c\.(model\.chiar\.\w+) = (\S+)', text.split('for the config:')[1]))
  assert list(lines) == ['model.chiar.tau_low'] * ('rbf' in options) + [
    'model.chiar.tau',
    'model.chiar.calibrated',
  ]
  for key, value in lines.items():
    config_lib.apply_override(config.unlock(), f'{key}={value.strip(chr(39))}')
  assert config.model.chiar.calibrated == name
  build(config, vocab=30)
  config.model.chiar.released = not config.model.chiar.released
  with pytest.raises(UserError, match='calibrate again'):
    build(config, vocab=30)


def test_the_weights_of_the_workdir_are_used_and_their_routes_told(capsys, tmp_path):
  config = config_of(tmp_path, tau=0.71)
  corpus = pipeline.load(config)
  model = build(config, vocab=corpus.tokenizer.vocab_size)
  tokens_BL = jnp.zeros((1, 24), jnp.int32)
  params = jax.jit(model.init)(jax.random.key(5), tokens_BL)['params']
  # Embeddings of two frequencies each: entropy ln 2 / ln 16, far from that of noise.
  waves_VD = np.cos(np.pi / 32 * np.outer(1 + np.arange(65) % 8, 2 * np.arange(16) + 1))
  params['embedding'] = jnp.asarray(waves_VD[:-1] + waves_VD[1:], jnp.float32)
  checkpoints = Checkpoints(tmp_path, config, corpus.tokenizer)
  checkpoints.save(TrainState(jnp.asarray(7), params, jnp.zeros(1)), {})
  checkpoints.close()
  with config.unlocked():
    config.model.chiar.tau = 0.3
  assert calibrate.run(config, tmp_path) == 0
  text = capsys.readouterr().out
  assert f'weights of {tmp_path} at step 7' in text
  assert re.search(r'^midpoint +0\.2500$', text, re.M)
  assert 'tau: the 0.7100 that these weights route by' in text
  assert [line.split()[0] for line in text.splitlines() if re.match(r'\d ', line)] == ['2', '3']
  with config.unlocked():
    config.model.chiar.released = True
  with pytest.raises(UserError, match=r'another model \(model\.chiar\.released: False -> True\)'):
    calibrate.run(config, tmp_path)


def test_a_model_without_a_router_is_refused(tmp_path):
  config = config_of(tmp_path).unlock()
  config.model.mixer = 'chiar_attention'
  with pytest.raises(UserError, match="'chiar_attention' routes: expected 'chiar'"):
    calibrate.run(config, tmp_path)
