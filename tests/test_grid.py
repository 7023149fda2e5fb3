"""The grid of a sweep: its points, and what is refused before anything runs."""

from pathlib import Path

import pytest

from sgnjax import grid
from sgnjax.errors import UserError

HEAD = """
from configs import base

def get_config():
  return base.get_config()

def sweep():
  return """
GRID = """{
  'mixer': {
    'softmax': {'model.mixer': 'softmax'},
    'sgn, fft': {'model.mixer': 'sgn', 'model.sgn.basis': 'fft', 'model.sgn.retained': None},
  },
  'model.sgn.grid': (None, (2, 3)),
  'seed': range(2),
}"""


@pytest.fixture
def load(tmp_path, monkeypatch):
  monkeypatch.syspath_prepend(Path(__file__).parents[1])

  def load(axes: str, *overrides: str, only=()):
    (tmp_path / 'c.py').write_text(HEAD + axes)
    return grid.load(tmp_path / 'c.py', overrides, only)

  return load


def test_points_are_the_product_of_the_axes_the_last_fastest(load):
  sweep = load(GRID, 'model.width=32')
  assert [p.name for p in sweep.points[:3]] == [
    'mixer-softmax_grid-none_seed-0',
    'mixer-softmax_grid-none_seed-1',
    'mixer-softmax_grid-2-3_seed-0',
  ]
  assert len(sweep.points) == 8
  last = sweep.points[-1]
  assert last.labels == {'mixer': 'sgn, fft', 'model.sgn.grid': '(2, 3)', 'seed': '1'}
  m = last.config.model
  assert (m.mixer, m.sgn.basis, m.sgn.grid, last.config.seed) == ('sgn', 'fft', (2, 3), 1)
  assert m.width == 32
  assert sweep.base.model.mixer == 'softmax'


def test_points_are_chosen_by_places_and_by_a_value_of_an_axis(load):
  assert [p.name for p in load(GRID, only=['softmax', '2-3']).points] == [
    'mixer-softmax_grid-2-3_seed-0',
    'mixer-softmax_grid-2-3_seed-1',
  ]
  assert {p.config.seed for p in load(GRID, 'seed=7').points} == {7}


def test_places_of_one_axis_are_alternatives(load):
  found = load(GRID, only=['softmax', 'sgn-fft', 'seed-1', '2-3']).points
  assert [p.name for p in found] == [
    'mixer-softmax_grid-2-3_seed-1',
    'mixer-sgn-fft_grid-2-3_seed-1',
  ]


@pytest.mark.parametrize(
  ('axes', 'overrides', 'only', 'said'),
  [
    ("{'model.widht': (1, 2)}", (), (), "did you mean 'model.width'"),
    ("{'m': {'a': {'model.mixr': 'sgn'}}}", (), (), "did you mean 'model.mixer'"),
    ("{'model.width': ('x',)}", (), (), 'expected int'),
    ("{'seed': ()}", (), (), "axis 'seed'"),
    ("{'seed': (s for s in 'ab')}", (), (), "axis 'seed'"),
    ("{'a': {'b': 'sgn'}}", (), (), "'b' of axis 'a'"),
    ("{'model.mixer': 'sgn'}", (), (), "axis 'model.mixer'"),
    ("{'a': {'x y': {'seed': 1}, 'x,y': {'seed': 2}}}", (), (), 'two points'),
    ("{'seed': (1, 2), 'a': {'b': {'seed': 3}}}", (), (), "set 'seed'"),
    ('{}', (), (), 'an axis or more'),
    (GRID, ('model.sgn.basis=dct',), (), '--only'),
    (GRID, (), ('softmx',), "no axis of the sweep has a place 'softmx'; did you mean 'softmax'"),
    (GRID, (), ('seed',), "no axis of the sweep has a place 'seed'"),
    ("{'seed': (1,), 'model.layers': (1,)}", (), ('1',), "write 'seed-1' or 'layers-1'"),
  ],
)
def test_what_is_refused(load, axes, overrides, only, said):
  with pytest.raises(UserError) as error:
    load(axes, *overrides, only=only)
  assert said in str(error.value)


def test_a_config_without_a_grid(load, tmp_path):
  (tmp_path / 'd.py').write_text(HEAD.split('def sweep')[0])
  with pytest.raises(UserError, match='no function sweep'):
    grid.load(tmp_path / 'd.py')
