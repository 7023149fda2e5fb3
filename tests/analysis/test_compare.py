"""Runs side by side: who is ranked with whom, what is said of leaks, seeds as bands."""

import json

import numpy as np
import pytest

from configs import base
from launch import main
from sgnjax import config as config_lib
from sgnjax.analysis.compare import compare, groups, read
from sgnjax.analysis.plots.over_training import over_runs
from sgnjax.errors import UserError

from .test_report import parsed


@pytest.fixture
def run(tmp_path):
  """`run(name, losses, leaky=False, **changes)`: a workdir as a run leaves it."""

  def make(name, losses, leaky=False, records=(), **changes):
    config = base.get_config().unlock()
    for key, value in changes.items():
      config_lib.apply_override(config, f'{key.replace("__", ".")}={value}')
    told = [
      {'step': 10 * i, 'kind': kind, 'split': 'validation', 'loss': loss, 'unigram': 3.0,
       'perplexity': 1.0, 'bits_per_byte': loss / np.log(2)} | ({'leaky': True} if leaky else {})
      for i, loss in enumerate(losses, 1) for kind in ('train', 'evaluation')
    ]  # fmt: skip
    folder = tmp_path / name
    folder.mkdir()
    (folder / 'config.json').write_text(json.dumps(config_lib.serialise(config)))
    (folder / 'metrics.jsonl').write_text(''.join(json.dumps(r) + '\n' for r in [*told, *records]))
    return folder

  return make


def test_the_page(run, tmp_path, capsys):
  share = [{'step': s, 'kind': 'train', 'loss': 1.0, 'attention_share/01': 0.4} for s in (30, 40)]
  runs = [
    run('a-0', [2.5, 2.0], records=share),
    run('a-1', [2.5, 1.8], seed=1),
    run('b', [2.4, 2.2], model__mixer='sgn', train__steps=500),
    run('c', [0.9, 0.1], True, model__form='published', allow_leak=True),
  ]
  assert main.main(['--job=compare', f'--workdir={tmp_path}/out', *map(str, runs)]) == 0
  page = (tmp_path / 'out' / 'compare.html').read_text()
  tree = parsed(page)
  assert not tree.open
  assert len([1 for tag, _ in tree.seen if tag == 'img']) == 3
  assert 'src="data:' in page
  assert 'Best of the runs that see no future: <b>a-1</b>, 1.8000 nats' in page
  assert 'LEAKY: c: these see' in page
  assert '0.1000 LEAKY' in page
  assert page.index('>a-1<') < page.index('>b<') < page.rindex('0.1000 LEAKY')
  assert 'other numbers of steps' in page
  assert '<td>model.mixer</td><td>softmax</td><td>softmax</td><td>sgn</td>' in page


def test_seeds_of_one_config_are_one_band(run):
  found = groups(
    read([run('a-0', [2, 1]), run('b', [2, 1], optim__lr=0.5), run('a-1', [4, 3], seed=1)])
  )
  assert {name: len(runs) for name, runs in found.items()} == {'a-0': 2, 'b': 1}
  band = over_runs('a', [((10, 20), (2, 1)), ((10, 20, 30), (4, 3, 2))], False)
  assert band.steps == [10, 20]
  np.testing.assert_array_equal([band.middle, band.low, band.high], [[3, 2], [2, 1], [4, 3]])


def test_what_is_refused(run, tmp_path):
  one = run('a', [1.0])
  with pytest.raises(UserError, match='two workdirs'):
    compare([one], tmp_path / 'out')
  with pytest.raises(UserError, match='named twice'):
    compare([one, one], tmp_path / 'out')
  (tmp_path / 'empty').mkdir()
  with pytest.raises(UserError, match='no evaluation'):
    compare([one, tmp_path / 'empty'], tmp_path / 'out')
  with pytest.raises(UserError, match='other tasks'):
    compare([one, run('b', [1.0], data__task='classify')], tmp_path / 'out')
