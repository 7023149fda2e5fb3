"""Configs: overrides, storage, what a mistake is answered with, and that every key is read."""

import json
import sys
from pathlib import Path

import pytest
from ml_collections import ConfigDict

from configs import base
from launch import main
from sgnjax import config as config_lib
from sgnjax.data import pipeline
from sgnjax.errors import UserError
from sgnjax.mixers import MIXERS
from sgnjax.models import build
from sgnjax.models.shrink import shrink

CONFIGS = sorted(
  p for p in (Path(__file__).parent.parent / 'configs').glob('*.py') if p.stem != 'base'
)
TINY = [
  'mesh.data=1',
  'model.layers=2',
  'model.width=16',
  'model.heads=2',
  'model.context=16',
  'train.steps=2',
  'train.batch=8',
  'train.eval_every=2',
  'train.checkpoint_every=2',
  'train.compile_cache=false',
  'optim.warmup=1',
  'eval.batch=8',
  'sample.tokens=4',
]


@pytest.mark.parametrize('path', CONFIGS, ids=lambda p: p.stem)
def test_every_config_says_what_it_is_and_its_twin_builds(path):
  config = config_lib.load(path)
  assert config.is_locked
  text = path.read_text()
  assert f'configs/{path.name}' in text.split('"""')[1], 'the docstring names the command'
  build(config, vocab=128, classes=10)
  twin = shrink(config)
  build(twin)
  assert twin.model.context == min(config.model.context, 1024)
  assert twin.model.width <= config.model.width
  assert {MIXERS[n] for u, _ in twin.model.stack for n in u}


def test_the_twin_of_a_threshold_moves_with_the_entropy_of_noise():
  config = base.chiar_400m()
  twin = shrink(config)
  assert 0.7 < twin.model.chiar.tau < 0.85 < config.model.chiar.tau


@pytest.mark.parametrize(
  ('override', 'value'),
  [
    ('train.steps=1e3', 1000),
    ('train.steps=7', 7),
    ('optim.lr=3', 3.0),
    ('train.wall_minutes=2', 2.0),
    ('train.wall_minutes=none', None),
    ('data.path=a=b', 'a=b'),
    ('allow_leak=True', True),
    ('model.sgn.gated=0', False),
    ('model.stack=((("sgn", "softmax"), 2),)', ((('sgn', 'softmax'), 2),)),
    ('model.sgn.grid=4,6', (4, 6)),
    ('model.sgn.grid=(4, 6)', (4, 6)),
    ('model.sgn.grid=[4,6]', (4, 6)),
    ('model.ega.tau=0.5', (0.5,)),
    ('model.ega.tau=1,0.5', (1.0, 0.5)),
    ('model.ega.lengths=3', (3,)),
    ('model.fourier_qk.bins=(1,2.5)', (1.0, 2.5)),
    ('model.sgn.retained=6', 6),
    ('model.chiar.capacity=1', 1.0),
    ('audit.variants=sgn', 'sgn'),
    ('audit.variants=none', None),
  ],
)
def test_overrides(override, value):
  config = base.get_config()
  config_lib.apply_override(config, override)
  for key in override.split('=')[0].split('.'):
    config = config[key]
  assert config == value
  if isinstance(value, tuple):
    assert [type(v) for v in config] == [type(v) for v in value]


@pytest.mark.parametrize('key', list(config_lib.leaves(base.get_config())))
def test_every_optional_key_can_be_set_and_unset(key):
  config = base.get_config()
  before = config_lib.flat(config)[key]
  if isinstance(before, str):  # a text as any other
    config_lib.apply_override(config, f'{key}=none')
    assert config_lib.flat(config)[key] == 'none'
    return
  if before is not None:
    with pytest.raises(UserError, match='not optional'):
      config_lib.apply_override(config, f'{key}=none')
    return
  config_lib.apply_override(config, f'{key}=3')
  assert config_lib.flat(config)[key] is not None
  config_lib.apply_override(config, f'{key}=None')
  assert config_lib.flat(config)[key] is None


@pytest.mark.parametrize(
  ('override', 'said'),
  [
    ('train.stesp=3', "did you mean 'train.steps'"),
    ('steps=3', "did you mean 'train.steps'"),
    ('train.steps=x', 'expected int'),
    ('train.steps=1.5', 'expected int'),
    ('train.steps=', 'expected int'),
    ('train.steps', 'no value'),
    ('train=3', 'is a group'),
    ('allow_leak=maybe', 'true or false'),
    ('optim.lr=fast', 'expected float'),
    ('model.stack=sgn', 'expected tuple'),
    ('model.sgn.grid=4x6', 'expected tuple'),
    ('model.ega.tau=a,b', 'expected tuple'),
    ('model.ega.tau="a",', r'numbers \(float'),
    ('model.ega.lengths=3.5', r'numbers \(int'),
  ],
)
def test_wrong_overrides_are_refused(override, said):
  with pytest.raises(UserError, match=said):
    config_lib.apply_override(base.get_config(), override)


def test_a_stored_config_comes_back_whole(tmp_path):
  config = config_lib.load(CONFIGS[0], ['model.stack=((("sgn",), 2),)', 'sample.top_k=4'])
  (tmp_path / 'config.json').write_text(json.dumps(config_lib.serialise(config)))
  again = config_lib.stored(tmp_path)
  assert config_lib.fingerprint(again) == config_lib.fingerprint(config)
  assert config_lib.differences(config, again) == []
  again = config_lib.stored(tmp_path, ['sample.top_k=none', 'data.path=x'])
  assert config_lib.differences(config, again) == [
    'data.path: None -> x',
    'sample.top_k: 4 -> None',
  ]
  assert config_lib.differences(config, again, ['sample.', 'data.']) == []


def test_a_config_of_an_older_version_gets_the_keys_that_change_no_number(tmp_path):
  tree = config_lib.serialise(base.get_config())
  for group, key in (('sample', 'top_p'), ('train', 'ema'), ('train', 'steps')):
    del tree['config'][group][key]
  del tree['config']['export']
  tree['optional'] = {k: v for k, v in tree['optional'].items() if 'export' not in k}
  del tree['optional']['sample.top_p']
  (tmp_path / 'config.json').write_text(json.dumps(tree))
  config = config_lib.stored(tmp_path, ['sample.top_p=0.5'])
  assert config.sample.top_p == 0.5
  assert config.train.ema == 0
  assert config.export.platforms == ('cpu', 'cuda', 'tpu')
  assert 'steps' not in config.train
  config_lib.apply_override(config, 'export.batch=none')


@pytest.mark.parametrize(
  ('text', 'said'),
  [
    ('def get_config(:', 'not valid Python'),
    ('x = 1', 'no function get_config'),
    ('def get_config():\n  return 3', 'expected a ConfigDict'),
    (
      'from configs import base\ndef get_config():\n  c = base.get_config()\n  c.model.widht = 3',
      "line 4: key 'widht' is not known; did you mean 'width'",
    ),
    (
      'from configs import base\ndef get_config():\n  c = base.get_config()\n  c.seed = "a"',
      'line 4: TypeError',
    ),
  ],
)
def test_a_broken_config_file_is_named_with_its_line(tmp_path, text, said):
  path = tmp_path / 'broken.py'
  path.write_text(text)
  with pytest.raises(UserError, match=said):
    config_lib.load(path)


def test_every_key_is_read(tmp_path, monkeypatch):
  """The jobs read each key of base.py: none is there for show."""
  read = set()
  places = ('ml_collections', str(Path('sgnjax', 'config.py')), 'shrink.py')
  original = ConfigDict.__getitem__

  def recording(self, key):
    frame = sys._getframe(1)
    while 'ml_collections' in frame.f_code.co_filename:
      frame = frame.f_back
    if not any(place in frame.f_code.co_filename for place in places):
      read.add(key)
    return original(self, key)

  monkeypatch.setattr(ConfigDict, '__getitem__', recording)
  quickstart = f'--config={Path(__file__).parent.parent}/configs/quickstart.py'

  def run(*flags, status=0):
    sizes = [f'--config.{o}' for o in TINY]
    assert main.main([quickstart, *sizes, *flags]) == status

  text = tmp_path / 'text.txt'
  text.write_text('A line of text, and one more.\n' * 40)
  run(f'--workdir={tmp_path}/a', '--config.data.name=text', f'--config.data.path={text}')
  run(f'--workdir={tmp_path}/a', '--job=sample')
  score = [f'--config.score.path={text}', '--config.score.lines=true', '--job=score']
  run(f'--workdir={tmp_path}/e', *score, status=2)
  run(f'--workdir={tmp_path}/a', '--job=export', '--config.export.tokens=99', status=2)
  run(f'--workdir={tmp_path}/e', '--job=lr_range', '--config.lr_range.low=2', status=2)
  run(f'--workdir={tmp_path}/v', '--job=audit', '--config.audit.variants=identity')
  run(f'--workdir={tmp_path}/c', '--config.data.name=tiny_shakespeare', status=2)
  run(f'--workdir={tmp_path}/d', '--config.model.form=published', status=3)  # allow_leak is asked
  run('--job=plan', '--config.target=v5e', status=2)
  lengths = ('--config.model.vocab=11', '--config.scaling.lengths=16')
  lengths += ("--config.scaling.mixers=('identity',)",)
  run('--job=scaling', f'--workdir={tmp_path}/s', '--config.scaling.devices=2', *lengths)
  for flag in ('--budget=1m', '--config.reproduce.size=tiny'):
    assert main.main(['--job=reproduce', '--claims=ega-01', f'--workdir={tmp_path}/r', flag]) == 0
  run('--job=benchmark', '--config.benchmark.parts=opps', status=2)
  run(f'--workdir={tmp_path}/s', '--job=scaling', status=2)  # no vocabulary is set
  images = ['data.name=digits', 'data.task=classify', 'model.image=8,8,1', 'model.patch=2']
  for part in ('train', 'dev', 'test'):
    (tmp_path / f'stsa.binary.{part}').write_text('0 a sad film\n1 a fine film\n' * 8)
  sentences = [f'data.path={tmp_path}', 'data.name=sst2', 'data.task=classify']
  for changes in (['data.task=mlm'], images, sentences):
    config = config_lib.load('configs/quickstart.py', [*TINY, *changes])
    next(iter(pipeline.train_iterator(config, pipeline.load(config))))
  leaves = list(config_lib.leaves(base.get_config()))
  groups = {kind.group for kind in MIXERS.values()}
  for key in leaves:
    parts = key.split('.')
    if parts[0] == 'model' and parts[1] in groups and len(parts) == 3:
      fields = [kind.__dataclass_fields__ for kind in MIXERS.values() if kind.group == parts[1]]
      used = any(parts[2] in f for f in fields) or parts[2] in read
      assert used, f'no mixer has the option {key}'
    else:
      assert parts[-1] in read, f'nothing reads {key}'
