"""The page: its numbers, LEAKY beside each, and what a person wrote above them."""

import json

import pytest

from configs import base
from sgnjax.analysis import benchmark
from sgnjax.analysis.benchmark import page, settings
from sgnjax.errors import UserError
from sgnjax.jobs import benchmark as job


def asked(**changes):
  config = base.get_config().unlock()
  config.benchmark.update(changes)
  return config.lock()


@pytest.mark.parametrize(
  ('value', 'shown'),
  [(0.12345, '0.123'), (3.14159, '3.14'), (31.4159, '31.4'), (31415.9, '31,416'), (7, '7'),
   (None, ''), ('text', 'text'), (0.0, '0.000')],
)  # fmt: skip
def test_cells(value, shown):
  assert page.cell(value) == shown
  assert page.cell(3.0, leaky=True) == '3.00 LEAKY'


def test_each_number_of_a_leaky_row_says_so():
  rows = [{'mixer': 'a', 'ms': 1.0, page.FLAG: False}, {'mixer': 'b', 'ms': 2.0, page.FLAG: True}]
  assert page.table(rows) == [
    '| mixer | ms |',
    '| --- | ---: |',
    '| a | 1.00 |',
    '| b | 2.00 LEAKY |',
  ]
  assert page.line(rows[1]) == 'mixer b, ms 2.00 LEAKY'


@pytest.mark.parametrize(
  ('changes', 'said'),
  [
    ({'parts': 'opps'}, "did you mean 'ops'"),
    ({'parts': 'train/lop'}, "did you mean 'train/loop'"),
    ({'parts': ' , '}, 'is empty'),
    ({'repeats': 0}, 'at least 1'),
    ({'seconds': 0.0}, 'more than 0'),
    ({'lengths': (1.5,)}, 'whole numbers'),
    ({'contexts': ()}, 'whole numbers'),
  ],
)
def test_what_cannot_be_is_refused_before_anything_runs(changes, said, tmp_path):
  with pytest.raises(UserError, match=said):
    job.run(asked(**changes), tmp_path / 'run')
  assert not (tmp_path / 'run').exists()


def test_sections_by_part_or_by_name_and_every_one_says_what_it_is():
  assert benchmark.chosen(('decode', 'ops/dct')) == ['ops/dct', 'decode/tokens']
  assert benchmark.chosen(('step',)) == []
  assert benchmark.chosen(('all',)) == list(benchmark.SECTIONS)
  for section in benchmark.SECTIONS.values():
    title, text = benchmark.about(section)
    assert title
    assert text
    assert not title.endswith('.')


def test_a_section_is_renewed_and_the_rest_of_the_page_stays(tmp_path, monkeypatch, capsys):
  rows = {'a': [{'case': 'x', 'ms': 1.0}], 'b': [{'case': 'y', 'ms': float('nan')}]}

  def section(name):
    def run(settings):
      """A title

      A text."""
      assert settings.repeats == 10
      yield from rows[name]
      yield f'a note of {name}'

    return run

  monkeypatch.setattr(benchmark, 'PARTS', {'p': {}})
  monkeypatch.setattr(benchmark, 'SECTIONS', {'p/a': section('a'), 'p/b': section('b')})
  shown = tmp_path / 'docs' / 'speed.md'
  folder = tmp_path / 'run'

  def run(parts, **changes):
    assert job.run(asked(parts=parts, page=str(shown), **changes), folder) == 0
    return json.loads((folder / 'benchmark.json').read_text()), shown.read_text()

  found, text = run('p/b')
  assert found['sections']['p/b']['rows'] == [{'case': 'y', 'ms': None}]
  assert {'commit', 'command', 'versions', 'machine', 'device', 'when'} <= set(
    found['sections']['p/b']
  )
  assert 'Not run: p/a.' in text
  shown.write_text(text.replace(page.TITLE, '# Mine\n\nWhat is missed, and why.'))
  run('p/a')
  rows['a'][0]['ms'] = 4.0
  found, text = run('p/a')
  assert list(found['sections']) == ['p/a', 'p/b']
  assert text.startswith('# Mine\n\nWhat is missed, and why.\n\n' + page.BEGIN)
  assert '| x | 4.00 |' in text
  assert '| x | 1.00 |' not in text
  assert '- a note of b' in text
  assert text.index('`p/a`') < text.index('`p/b`')
  assert (folder / 'benchmark.md').read_text().startswith('# How fast')
  # A run that is ended: the finished table stays; one that never was is there as far as it came.
  rows['a'][:] = [{'case': 'x', 'ms': 7.0}, 3]
  with pytest.raises(AttributeError):
    run('p/a')
  assert '| x | 4.00 |' in shown.read_text()
  assert 'Unfinished' not in shown.read_text()
  other = tmp_path / 'other'
  with pytest.raises(AttributeError):
    job.run(asked(parts='p/a'), other)
  assert '| x | 7.00 |' in (other / 'benchmark.md').read_text()
  assert 'Unfinished' in (other / 'benchmark.md').read_text()
  rows['a'][:] = [{'case': 'x', 'ms': 9.0}]
  assert job.run(asked(parts='all', resume=True), other) == 0
  assert '| x | 9.00 |' in (other / 'benchmark.md').read_text()
  assert 'Unfinished' not in (other / 'benchmark.md').read_text()
  capsys.readouterr()
  assert '| x | 4.00 |' in run('all', resume=True)[1]
  assert 'p/a: kept' in capsys.readouterr().out


def test_the_command_names_no_folder(monkeypatch):
  monkeypatch.setattr(
    'sys.argv', ['launch/main.py', '--job=benchmark', '--workdir=/a/b', '--config.benchmark.page=c']
  )
  assert page.command() == 'python launch/main.py --job=benchmark'


def test_an_older_config_is_named():
  config = base.get_config().unlock()
  del config['benchmark']
  with pytest.raises(UserError, match='older version'):
    settings.of(config)
