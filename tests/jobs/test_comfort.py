"""Completion, doctor, learning rate range test."""

import json
import shutil
import socket
import subprocess
from pathlib import Path

import numpy as np
import pytest

from launch import main
from sgnjax.errors import UserError
from sgnjax.jobs import JOBS, doctor, lr_range
from tests.train.tiny import tiny

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope='module')
def script():
  import contextlib
  import io

  with contextlib.redirect_stdout(io.StringIO()) as out:
    assert main.main(['--job=completion']) == 0
  return out.getvalue()


@pytest.mark.skipif(shutil.which('bash') is None, reason='there is no bash')
@pytest.mark.parametrize(
  ('line', 'breaks', 'expected'),
  [
    ('sgnjax --jo', '=', ['--job=']),
    ('sgnjax --job=be', '=', ['benchmark']),
    ('sgnjax --job=be', '', ['--job=benchmark']),
    ('sgnjax --config=configs/quick', '=', ['configs/quickstart.py']),
    ('sgnjax --config.train.stre', '=', []),
    ('sgnjax --config.train.wall_s', '=', ['--config.train.wall_status=']),
    ('python launch/main.py --job=doc', '=', ['doctor']),
    ('python elsewhere.py --job=doc', '=', []),
  ],
)
def test_completion(script, line, breaks, expected):
  words = line.split()
  function = '_sgnjax_python' if words[0] == 'python' else '_sgnjax'
  code = f"""{script}
    COMP_WORDBREAKS='{breaks}'; COMP_LINE='{line}'; COMP_POINT={len(line)}
    COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}
    {function} 2>/dev/null; printf '%s\\n' "${{COMPREPLY[@]}}" """
  done = subprocess.run(['bash', '-c', code], cwd=ROOT, capture_output=True, text=True, check=True)
  assert done.stdout.split() == expected


def test_every_job_is_completed(script):
  assert f'"{" ".join(JOBS)}"' in script
  assert '--config.export.platforms' in script


def test_the_doctor_says_what_is_missing_and_why(capsys, monkeypatch, tmp_path):
  def unreachable(*_, **__):
    raise OSError(101, 'Network is unreachable')

  real = doctor.importlib.util.find_spec
  gone = ('wandb', 'flatbuffers')
  monkeypatch.setattr(
    doctor.importlib.util, 'find_spec', lambda name: None if name in gone else real(name)
  )
  monkeypatch.setattr(socket, 'create_connection', unreachable)
  monkeypatch.delenv('HTTPS_PROXY', raising=False)
  monkeypatch.delenv('https_proxy', raising=False)
  config = tiny(tmp_path)
  assert doctor.run(config, tmp_path) == 0
  said = capsys.readouterr().out
  assert "no train.wandb; pip install 'sgnjax[wandb]'" in said
  assert 'not reached (Network is unreachable): TFDS cannot fetch a set' in said
  assert '8 x cpu (cpu)' in said
  assert '0 of ' in said
  (tmp_path / 'text.txt').unlink()
  (tmp_path / 'file').write_text('')
  monkeypatch.setattr(doctor, 'NEEDED', ('jax', 'no-such-package'))
  assert doctor.run(config, tmp_path / 'file') == 1
  said = capsys.readouterr().out
  for part in ('no-such-package', 'does not exist: this config cannot train', 'cannot be written'):
    assert part in said
  assert '3 of ' in said


@pytest.mark.parametrize(
  ('platforms', 'state', 'part'),
  [('', doctor.NOTE, 'jax warns of it'), ('cpu', doctor.GOOD, 'leaves it alone')],
)
def test_libtpu_without_a_tpu_is_explained(monkeypatch, platforms, state, part):
  monkeypatch.setattr(doctor.importlib.util, 'find_spec', lambda name: name)
  monkeypatch.setattr(doctor.Path, 'glob', lambda *_: iter(()))
  monkeypatch.setenv('JAX_PLATFORMS', platforms)
  found = doctor._libtpu()
  assert found.state == state
  assert part in found.text


def test_a_range_test_ends_where_it_diverges_and_leaves_a_picture(capsys, tmp_path):
  config = tiny(tmp_path, lr_range__steps=40, lr_range__low=1e-4, lr_range__high=1e4,
                optim__weight_decay=0.0)  # fmt: skip
  assert lr_range.run(config, tmp_path) == 0
  assert 'falls fastest' in capsys.readouterr().out
  found = json.loads((tmp_path / 'lr_range.json').read_text())
  assert found['rates'][0] == pytest.approx(1e-4)
  assert found['rates'][1] / found['rates'][0] == pytest.approx(1e8 ** (1 / 39))
  assert 1e-4 < found['suggestion'] < 1
  assert (tmp_path / 'lr_range.png').stat().st_size > 10_000
  assert not (tmp_path / 'checkpoints').exists()


def test_the_suggestion_is_the_steepest_fall_before_the_lowest_loss():
  rates = np.logspace(-4, 0, 41).tolist()
  smooth = [3 - 2 / (1 + np.exp(-6 * (np.log10(r) + 2))) + (5 * r if r > 0.1 else 0) for r in rates]
  assert lr_range.suggestion(rates, smooth) == pytest.approx(1e-2)
  assert lr_range.suggestion(rates, sorted(smooth)) is None
  assert lr_range.smoothed([2.0, 2.0, 2.0]) == pytest.approx([2.0] * 3)


@pytest.mark.parametrize(
  ('changes', 'said'),
  [
    ({'lr_range__low': 2.0}, '0 < low < high'),
    ({'lr_range__low': 0.0}, '0 < low < high'),
    ({'lr_range__steps': 3}, 'expected at least 10'),
  ],
)
def test_a_range_that_is_none(tmp_path, changes, said):
  with pytest.raises(UserError, match=said):
    lr_range.run(tiny(tmp_path, **changes), tmp_path)
