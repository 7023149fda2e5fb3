"""A mixer of one's own: the page's example, run; a plugin; what registration refuses."""

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sgnjax
from configs import base
from sgnjax import mixers
from sgnjax.jobs import benchmark, plan
from sgnjax.mixers import MIXERS, own
from sgnjax.parallel import rules
from sgnjax.train.loop import train
from sgnjax.train.optim import decays
from tests.train.tiny import tiny

PAGE = Path(__file__).parent.parent / 'docs' / 'your_own_mixer.md'
EXAMPLE, FUNCTION = re.findall(r'```python\n(.*?)```', PAGE.read_text(encoding='utf-8'), re.DOTALL)


@pytest.fixture(autouse=True)
def _forgotten():
  """What a test registers is gone after it."""
  before = dict(MIXERS), set(own.OWN), set(rules.OWN)
  yield
  for kept, now in zip(before, (MIXERS, own.OWN, rules.OWN), strict=True):
    now.clear()
    now.update(kept)


def small(mixer: str, **options):
  config = base.get_config().unlock()
  config.model.update(mixer=mixer, width=16, heads=2, layers=1, context=24, vocab=11, **options)
  config.train.batch, config.mesh.data = 8, 1
  return config


def test_the_example_of_the_page_is_causal_streams_and_trains(capsys, monkeypatch, tmp_path):
  assert EXAMPLE.count('\n') < 60
  # The audit of the page's own size is the same, and slower.
  monkeypatch.setattr(sgnjax.config, 'load', lambda *_: small('decay'))
  page = {'__name__': 'page'}
  exec(compile(EXAMPLE, str(PAGE), 'exec'), page)
  said = capsys.readouterr().out
  assert 'CAUSAL: decay is blind to: later tokens, other examples, padding' in said
  assert 'cache, token by token' in said
  found = benchmark.measure(small('decay'), size=64, repeats=1)
  assert found['step_flops'] > 1e5
  monkeypatch.undo()

  (tmp_path / 'plugin.py').write_text(EXAMPLE.partition('config = ')[0])
  _forget('decay')
  changes = {'plugin': f'{tmp_path}/plugin.py', 'model__mixer': 'decay', 'mesh__data': 1}
  config = tiny(tmp_path, **changes, train__steps=2, train__eval_every=2)
  assert train(config, tmp_path / 'w', audited=page['report'])['status'] == 'finished'
  _forget('decay')  # as another process begins
  loaded = sgnjax.load(tmp_path / 'w')
  assert len(loaded.write('the ', 5)) == 5
  assert loaded.params['stack']['group_0']['0_decay']['mixer']['memory'].shape == (1, 16)


def _forget(name: str) -> None:
  del MIXERS[name]
  own.OWN.discard(name)


def test_the_function_of_the_page_and_one_that_lies(capsys):
  scope = {'sgnjax': sgnjax, 'jnp': jnp}
  exec(compile(FUNCTION.partition('shifted = ')[0], str(PAGE), 'exec'), scope)
  report = sgnjax.audit(small('shift'))
  assert not report.leaky
  assert report.contradiction == ''

  sgnjax.register('ahead', lambda x_BLD: jnp.roll(x_BLD, -1, axis=1))
  report = sgnjax.audit(small('ahead'))
  assert report.leaky
  assert report.layer == 'layer 00 (ahead)'
  assert 'declares itself causal' in report.contradiction


def test_a_plan_of_a_mixer_whose_flops_are_not_known(capsys):
  sgnjax.register('same', lambda x_BLD: x_BLD)
  assert plan.run(small('same').lock(), 'nowhere') == 0
  said = capsys.readouterr().out
  assert 'no FLOPs are known of a registered mixer' in said
  assert 'tokens in all' in said


def test_an_option_of_the_page_from_a_file_and_from_the_command_line(tmp_path):
  lines = PAGE.read_text(encoding='utf-8').partition('      c = quickstart')[2].splitlines()[1:3]
  text = 'from configs import quickstart\nfrom ml_collections import ConfigDict\n\n\n'
  text += 'def get_config():\n  c = quickstart.get_config()\n'
  text += '\n'.join(line.removeprefix('    ') for line in lines) + '\n  return c\n'
  (tmp_path / 'own.py').write_text(text)
  assert sgnjax.config.load(tmp_path / 'own.py').model.decay.start == 3.0
  config = sgnjax.config.load(tmp_path / 'own.py', ['model.decay.start=1.5'])
  assert config.model.decay.start == 1.5


def test_a_function_that_sees_the_row_asks_for_its_form():
  sgnjax.register('mean', lambda x_BLD: x_BLD - x_BLD.mean(axis=1, keepdims=True), causal=False)
  with pytest.raises(sgnjax.errors.UserError, match=r"set model\.form='bidirectional'"):
    sgnjax.models.build(small('mean'))
  assert not sgnjax.models.build(small('mean', form='bidirectional')).causal


def test_a_function_of_another_shape_is_told():
  sgnjax.register('half', lambda x_BLD: x_BLD[..., :8])
  model = sgnjax.models.build(small('half'))
  with pytest.raises(sgnjax.errors.UserError, match='expected the same shape'):
    jax.eval_shape(model.init, jax.random.key(0), np.zeros((1, 4), np.int32))


@pytest.mark.parametrize(
  ('name', 'mixer', 'said'),
  [
    ('softmax', lambda x: x, 'is a mixer of sgnjax'),
    ('my mixer', lambda x: x, 'under a name such as'),
    ('thing', 3, 'expected a Mixer or a function, got int'),
    ('thing', dict, 'no subclass of sgnjax.mixers.Mixer'),
    ('thing', type('Empty', (mixers.Mixer,), {'__annotations__': {}}), 'has no __call__'),
  ],
)
def test_what_is_refused(name, mixer, said):
  with pytest.raises(sgnjax.errors.UserError, match=said):
    sgnjax.register(name, mixer)


@pytest.mark.parametrize(
  ('text', 'said'),
  [(None, 'does not exist'), ('x = 1', 'does not register it'), ('1 / 0', 'ZeroDivisionError')],
)
def test_a_plugin_that_helps_nobody(tmp_path, text, said):
  path = tmp_path / 'plugin.py'
  if text is not None:
    path.write_text(text)
  config = small('missing')
  config.plugin = str(path)
  with pytest.raises(sgnjax.errors.UserError, match=said):
    sgnjax.models.build(config)


def test_parameters_of_any_name_have_a_place_and_a_rule_of_decay():
  sgnjax.register('mine', lambda x_BLD: x_BLD)
  path = 'stack/group_0/0_mine/mixer/anything'
  assert rules.logical(path, 3) == (None, None, None)
  assert decays(path, True)
  assert not decays(path, False)
  assert decays('stack/group_0/0_mine/mixer/v/kernel', False)
  for other in ('stack/group_0/0_mine/ffn/anything', 'stack/group_0/0_notmine/mixer/anything'):
    with pytest.raises(sgnjax.errors.UserError):
      rules.logical(other, 3)
