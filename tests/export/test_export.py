"""What is exported: programs in a process that has jax alone, weights and back, the card."""

import json
import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sgnjax
from configs import base
from sgnjax import config as config_lib
from sgnjax.data import tokenizers
from sgnjax.errors import UserError
from sgnjax.export import programs, weights
from sgnjax.jobs import export as job
from sgnjax.mixers import MIXERS
from sgnjax.models import build
from sgnjax.parallel.mesh import make_mesh
from sgnjax.train import state
from sgnjax.train.checkpoint import Checkpoints
from sgnjax.train.optim import make_optimiser

LENGTH = 12
# After the card's own lines: the first tokens of both rows one by one, and what was imported.
AFTER = """
import sys
import numpy as np
def program(name):
  with open(f'{name}.jaxexport', 'rb') as file:
    return export.deserialize(bytearray(file.read()))
piece, cache = program('start').call(weights, inputs[:, 0])
pieces, step = [piece], jax.jit(program('step').call)
for t in range(1, 4):
  piece, cache = step(weights, inputs[:, t], cache)
  pieces.append(piece)
np.savez('found.npz', logits=logits, pieces=jnp.stack(pieces, 1))
assert not {'sgnjax', 'flax', 'safetensors', 'optax'} & set(sys.modules)
"""


def config_of(**changes):
  config = base.get_config().unlock()
  config.model.update(width=16, heads=2, layers=2, context=LENGTH, vocab_multiple=16, **changes)
  config.model.stack = ((('sgn', 'softmax'), 1),)
  config.mesh.data = 1
  return config


def saved(workdir, config, text='some text'):
  """A workdir with one checkpoint of fresh weights."""
  tokenizer = tokenizers.make('char', text)
  model = build(config, vocab=tokenizer.vocab_size)
  fresh = state.create(config, model, make_optimiser(config), make_mesh(config))
  checkpoints = Checkpoints(workdir, config, tokenizer)
  checkpoints.save(fresh, {}, 1.5)
  checkpoints.close()
  record = {'kind': 'evaluation', 'step': 0, 'split': 'validation', 'protocol': 'full'}
  numbers = ('loss', 'perplexity', 'bits_per_byte', 'bits_per_character', 'unigram')
  record |= dict.fromkeys((*numbers, 'unigram_bits_per_byte'), 1.5) | {'tokens': 99}
  (workdir / 'metrics.jsonl').write_text(json.dumps(record) + '\n')
  starts = [{'commit': code} for code in ('abc1234', None, 'def5678', 'abc1234')]
  (workdir / 'starts.jsonl').write_text('\n'.join(map(json.dumps, starts)))
  return model, fresh.params, tokenizer


@pytest.mark.slow
def test_an_export_runs_with_jax_alone_and_loads_back(capsys, tmp_path):
  config = config_of()
  model, params, tokenizer = saved(tmp_path, config)
  assert job.run(config.lock(), tmp_path) == 0
  said = capsys.readouterr().out
  assert float(re.search(r'logits within (\S+) of the model', said)[1]) < 1e-5
  folder = tmp_path / 'export'
  readme = (folder / 'README.md').read_text()
  assert '1.5000 nats/token' in readme
  assert '| code | commit abc1234, then def5678 |' in readme
  assert 'CAUSAL: sgn + softmax' in readme
  assert 'LEAKY' not in readme
  assert "its character's place in `characters`" in readme
  modes = {path.stat().st_mode for path in folder.iterdir()}
  assert len(modes) == 1  # all may read the weights who may read the card
  code = re.findall(r'```python\n(.*?)```', readme, re.DOTALL)[1]
  drawn = f"jnp.asarray(__import__('numpy').arange({3 * LENGTH}).reshape(3, -1) % 7, 'int32')"
  code, count = re.subn(r'jnp\.zeros\(.*\)', drawn, code)
  assert count == 1
  done = subprocess.run(
    [sys.executable, '-I', '-c', code + AFTER], cwd=folder, capture_output=True, text=True,
    check=False, env={'JAX_PLATFORMS': 'cpu', 'PATH': ''},
  )  # fmt: skip
  assert done.returncode == 0, done.stderr
  found = np.load(folder / 'found.npz')
  tokens_BL = (np.arange(3 * LENGTH).reshape(3, -1) % 7).astype(np.int32)
  expected_BLV = np.asarray(jax.jit(model.apply)({'params': params}, tokens_BL).y_BLD)
  expected_BLV = expected_BLV[..., : tokenizer.vocab_size]
  np.testing.assert_allclose(found['logits'], expected_BLV, atol=1e-5)
  np.testing.assert_allclose(found['pieces'], expected_BLV[:, :4], atol=1e-5)

  for path in (folder, folder / 'weights.safetensors', tmp_path):
    loaded = sgnjax.load(path)
    assert [name for name, _ in loaded.model.layers()] == ['sgn', 'softmax']
    assert loaded.model.vocab == model.vocab
    jax.tree.map(np.testing.assert_array_equal, loaded.params, params)
    assert loaded.tokenizer.to_json() == tokenizer.to_json()
    assert config_lib.differences(loaded.config, config) == []
    assert loaded.step == 0
  assert len(loaded.write(['so', 'text'], 3)[1]) == 3


@pytest.mark.slow
@pytest.mark.parametrize('mixer', [n for n in MIXERS if not n.startswith('chiar_')])
def test_every_mixer_takes_any_number_of_rows_on_every_platform(mixer, tmp_path):
  config = config_of(mixer=mixer, block='chiar' if mixer == 'chiar' else 'prenorm', vocab=11)
  config.model.stack, config.model.layers = None, 3
  if mixer == 'fnet':
    config.model.form = 'bidirectional'
  model = build(config)
  params = jax.eval_shape(model.init, jax.random.key(0), jnp.zeros((1, 4), jnp.int32))['params']
  found = programs.save(tmp_path, config, model, params)
  assert ('step' in found) == (mixer != 'fnet')
  assert all(program['rows'] == 'any' for program in found.values())
  raw = bytearray((tmp_path / 'forward.jaxexport').read_bytes())
  assert jax.export.deserialize(raw).platforms == ('cpu', 'cuda', 'tpu')


def test_a_leaky_model_says_so_on_its_card(capsys, tmp_path):
  config = config_of(form='published')
  config.allow_leak = True
  config.export.programs = False
  saved(tmp_path, config)
  assert job.run(config, tmp_path) == 0
  readme = (tmp_path / 'export' / 'README.md').read_text()
  assert readme.startswith('# softmax, published form, 2 layers of width 16 LEAKY')
  assert '1.5000 nats/token LEAKY' in readme
  assert 'jaxexport' not in readme
  assert 'LEAKY' in capsys.readouterr().out
  assert not list((tmp_path / 'export').glob('*.jaxexport'))


def test_weights_that_do_not_fit_or_are_none(tmp_path):
  config = config_of(vocab=9).lock()
  tokenizer = tokenizers.make('char', 'some text')
  with pytest.raises(UserError, match='does not exist'):
    sgnjax.load(tmp_path / 'nowhere')
  with pytest.raises(UserError, match='neither checkpoints'):
    sgnjax.load(tmp_path)
  weights.save(tmp_path, config, {'embedding': np.zeros((16, 16), np.float32)}, tokenizer, 3)
  with pytest.raises(UserError, match=r"has no parameter 'final_norm/bias'"):
    sgnjax.load(tmp_path)
  weights.save(tmp_path, config, {'embedding': np.zeros((16, 8), np.float32)}, tokenizer, 3)
  with pytest.raises(UserError, match=r"'embedding' is \(16, 8\), its config asks for \(16, 16\)"):
    sgnjax.load(tmp_path)
  (tmp_path / 'weights.safetensors').write_bytes(b'not this')
  with pytest.raises(UserError, match='no safetensors file'):
    sgnjax.load(tmp_path)
  (tmp_path / 'tokenizer.json').unlink()
  weights.save(tmp_path, config, {}, tokenizer, 3)
  (tmp_path / 'tokenizer.json').write_text('{}')
  with pytest.raises(UserError, match='no tokenizer'):
    sgnjax.load(tmp_path)


@pytest.mark.parametrize(
  ('changes', 'said'),
  [
    ({'platforms': ('gpu',)}, "export.platforms: 'gpu' is not known"),
    ({'platforms': ()}, 'empty'),
    ({'batch': 0}, 'export.batch=0'),
    ({'tokens': 13}, 'learned positions end at 12'),
  ],
)
def test_what_is_refused(tmp_path, changes, said):
  config = config_of(vocab=9)
  config.export.update(changes)
  with pytest.raises(UserError, match=said):
    programs.save(tmp_path, config, build(config), {})


def test_missing_libraries_are_named(tmp_path, monkeypatch):
  config = config_of(vocab=9)
  monkeypatch.setitem(sys.modules, 'flatbuffers', None)
  with pytest.raises(UserError, match=r'sgnjax\[export\]'):
    programs.save(tmp_path, config, build(config), {})
  monkeypatch.setitem(sys.modules, 'safetensors.numpy', None)
  with pytest.raises(UserError, match=r'sgnjax\[export\]'):
    weights.read(tmp_path)
