"""A sweep stopped half-way goes on, repeats nothing, and tells all its points in one table."""

import json

import pytest

from launch import main
from sgnjax import grid
from sgnjax.jobs import sweep as sweep_job
from sgnjax.train.log import read_records

FILE = """
from configs import base

def get_config():
  c = base.get_config()
  c.mesh.data = 1
  c.model.update(layers=1, width=16, heads=2, context=16)
  c.data.update(name='text', path={path!r})
  c.train.update(steps=3, batch=4, eval_every=3, checkpoint_every=3, log_every=1)
  c.train.compile_cache = False
  c.optim.warmup = 1
  c.eval.batch = 8
  return c

def sweep():
  return {{
    'mixer': {{
      'uniform': {{'model.mixer': 'uniform'}},
      'wrong': {{'model.mixer': 'uniform', 'model.heads': 3}},
    }},
    'seed': (0, 1),
  }}
"""


@pytest.fixture
def sweep(tmp_path, capsys):
  """`sweep(*flags)`: exit status and what was printed."""
  (tmp_path / 'text.txt').write_text('the quick brown fox jumps over the lazy dog. ' * 40)
  (tmp_path / 'grid.py').write_text(FILE.format(path=str(tmp_path / 'text.txt')))

  def call(*flags):
    base = [f'--config={tmp_path}/grid.py', f'--workdir={tmp_path}/w', '--job=sweep']
    status = main.main([*base, *flags])
    captured = capsys.readouterr()
    return status, captured.out + captured.err

  return call


def test_a_sweep_stopped_half_way_continues_and_repeats_nothing(sweep, tmp_path):
  only = '--only=uniform'
  stop = ['--config.train.wall_minutes=1e-9', '--config.train.wall_status=85']
  assert sweep(only, *stop)[0] == 85  # the first point saves after its first step
  first = tmp_path / 'w' / 'mixer-uniform_seed-0'
  assert [r['step'] for r in read_records(first) if r['kind'] == 'train'] == [1]
  assert not (tmp_path / 'w' / 'mixer-uniform_seed-1').exists()

  status, said = sweep(only)
  assert status == 0
  assert 'resuming' in said
  assert [r['step'] for r in read_records(first) if r['kind'] == 'train'] == [1, 2, 3]
  written = (first / 'metrics.jsonl').stat().st_mtime_ns

  status, said = sweep(only)
  assert (status, said.count('finished before')) == (0, 2)
  assert (first / 'metrics.jsonl').stat().st_mtime_ns == written

  status, said = sweep()  # the wrong points are told, and do not hold up others
  assert status == 2
  rows = json.loads((tmp_path / 'w' / 'sweep.json').read_text())
  assert [row['state'].split(':')[0] for row in rows] == ['finished'] * 2 + ['failed'] * 2
  assert rows[0]['loss'] != rows[1]['loss']
  table = (tmp_path / 'w' / 'sweep.md').read_text()
  assert '2 of 4 points are finished' in table
  mean = (rows[0]['loss'] + rows[1]['loss']) / 2
  assert f'| uniform | 2 | {mean:.4f} ± ' in table


def test_a_task_of_a_slurm_array_is_one_point(sweep, tmp_path, monkeypatch):
  points = grid.load(tmp_path / 'grid.py', only=['uniform'])
  chosen = sweep_job._mine(points, {'SLURM_ARRAY_TASK_ID': '1'})
  assert [(number, point.name) for number, point in chosen] == [(1, 'mixer-uniform_seed-1')]
  assert len(sweep_job._mine(points, {})) == 2
  monkeypatch.setenv('SLURM_ARRAY_TASK_ID', '4')
  status, said = sweep()
  assert status == 2
  assert '--array=0-3' in said


def test_sweeps_are_named_by_their_config(capsys, tmp_path):
  assert main.main(['--job=sweep', f'--workdir={tmp_path}']) == 2
  assert '--config=FILE' in capsys.readouterr().err
  assert main.main(['--only=x', '--config=configs/quickstart.py']) == 2
  assert '--job=sweep' in capsys.readouterr().err
