"""What a user's mistake is answered with: one or two lines, exit status 2, no traceback."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import sgnjax
from launch import main
from sgnjax.errors import UserError

CONFIGS = Path(__file__).parents[2] / 'configs'
TINY = [
  '--config.mesh.data=1',
  '--config.model.layers=1',
  '--config.model.width=16',
  '--config.model.heads=2',
  '--config.model.context=16',
  '--config.train.steps=2',
  '--config.train.batch=8',
  '--config.train.eval_every=2',
  '--config.train.checkpoint_every=2',
  '--config.train.compile_cache=false',
  '--config.optim.warmup=1',
  '--config.eval.batch=8',
  '--config.sample.tokens=4',
]


def call(*flags: str, config: str = 'quickstart', tiny: bool = True) -> int:
  return main.main([f'--config={CONFIGS}/{config}.py', *(TINY if tiny else ()), *flags])


def refused(capsys, *flags: str, said: str, status: int = 2, **options) -> None:
  assert call(*flags, **options) == status
  error = capsys.readouterr().err.strip()
  assert error.startswith('error: ')
  assert 'Traceback' not in error
  assert len(error.splitlines()) <= 2
  assert said in error


@pytest.fixture(scope='module')
def run_of_text(tmp_path_factory):
  """A finished tiny run on a small file of text: (workdir, flags)."""
  folder = tmp_path_factory.mktemp('run')
  (folder / 'text.txt').write_text('the quick brown fox jumps over the lazy dog. ' * 40)
  flags = ['--config.data.name=text', f'--config.data.path={folder}/text.txt']
  assert call(f'--workdir={folder}/run', *flags) == 0
  return folder / 'run', flags


@pytest.mark.parametrize(
  ('flags', 'said'),
  [
    (['--config.model.widht=3'], "did you mean 'model.width'"),
    (['--config.model.mixer=sgm'], "mixer 'sgm' is not known; did you mean 'sgn'"),
    (['--config.model.form=casual'], "did you mean 'causal'"),
    (['--config.model.width=15'], 'does not divide'),
    (['--config.model.block=chiar'], 'does not fit'),
    (['--config.train.steps=x'], 'expected int'),
    (['--config.train.steps=0'], 'train.steps=0'),
    (['--config.optim.warmup=9'], 'optim.warmup=9'),
    (['--config.mesh.data=-1', '--config.train.batch=7'], 'train.batch=8 would do'),
    (['--config.mesh.data=9'], 'does not fit 8 devices'),
    (['--config.data.name=txt'], "did you mean 'text'"),
    (['--config.data.name=text'], 'data.path'),
    (['--config.data.name=text', '--config.data.path=nowhere.txt'], 'nowhere.txt'),
    (['--config.data.tokenizer=chr'], "did you mean 'char'"),
    (['--job=trian'], "did you mean 'train'"),
    (['--conifg=x'], "did you mean '--config'"),
    (['--config.init_from=nowhere'], 'nowhere'),
  ],
)
def test_mistakes_on_the_command_line(capsys, tmp_path, flags, said):
  refused(capsys, f'--workdir={tmp_path}', *flags, said=said)


def test_a_config_that_is_not_there(capsys):
  refused(capsys, config='quikstart', said='quickstart.py')


@pytest.mark.parametrize(
  ('content', 'said'),
  [(b'', 'empty'), (b'0123456789', 'context'), (b'abc\xff\xfe' * 99, 'UTF-8')],
)
def test_files_that_are_no_text_to_learn_from(capsys, tmp_path, content, said):
  (tmp_path / 'f.txt').write_bytes(content)
  path = f'--config.data.path={tmp_path}/f.txt'
  refused(capsys, f'--workdir={tmp_path}/w', '--config.data.name=text', path, said=said)


def test_a_workdir_that_cannot_be_one(capsys, tmp_path):
  (tmp_path / 'file').write_text('x')
  refused(capsys, f'--workdir={tmp_path}/file', said='file')
  if os.geteuid():
    tmp_path.chmod(0o500)
    refused(capsys, f'--workdir={tmp_path}/new', said='new')


@pytest.mark.slow
def test_a_workdir_of_another_config(capsys, run_of_text):
  workdir, flags = run_of_text
  refused(
    capsys,
    f'--workdir={workdir}',
    *flags,
    '--config.optim.lr=0.5',
    said='optim.lr: 0.001 -> 0.5',
  )


@pytest.mark.slow
@pytest.mark.parametrize(
  ('old', 'new', 'said'),
  [('lazy dog', 'dog lazy', 'is not the one'), ('quick', 'QUICK', 'another vocabulary')],
)
def test_another_text_behind_the_same_path(capsys, tmp_path, old, new, said):
  (tmp_path / 'text.txt').write_text(text := 'the quick brown fox jumps over the lazy dog. ' * 40)
  flags = [f'--workdir={tmp_path}/w', '--config.data.name=text']
  flags += [f'--config.data.path={tmp_path}/text.txt', '--config.train.checkpoint_every=1']
  assert call(*flags, '--config.train.wall_minutes=1e-9', '--config.train.steps=4') == 0
  (tmp_path / 'text.txt').write_text(text.replace(old, new))
  refused(capsys, *flags, '--config.train.steps=4', said=said)


@pytest.mark.slow
def test_samples_and_what_they_refuse(capsys, run_of_text):
  workdir, _ = run_of_text
  assert main.main([f'--workdir={workdir}', '--job=sample', '--config.sample.prompt=the ']) == 0
  assert 'the ' in capsys.readouterr().out
  for prompt, said in (('THE', "'T'"), ('the quick brown fox jumps', '16')):
    flags = [f'--workdir={workdir}', '--job=sample', f'--config.sample.prompt={prompt}']
    assert main.main(flags) == 2
    found = capsys.readouterr()
    assert said in found.err
    assert found.out == ''  # nothing looks as if text had been written


def test_a_letter_beyond_ascii_is_named_as_it_is(capsys, run_of_text):
  workdir, _ = run_of_text
  assert main.main([f'--workdir={workdir}', '--job=sample', '--config.sample.prompt=ü']) == 2
  assert "character 'ü' (U+00FC)" in capsys.readouterr().err


@pytest.mark.slow
def test_prompts_of_a_file_with_every_way_of_choosing(capsys, tmp_path, run_of_text):
  workdir, _ = run_of_text
  (tmp_path / 'prompts').write_text('the quick\n\nbrown\n')
  flags = [f'--workdir={workdir}', '--job=sample', f'--config.sample.prompts={tmp_path}/prompts']
  flags += ['--config.sample.top_k=5', '--config.sample.top_p=0.9', '--config.sample.stop="."']
  flags += ['--config.sample.repetition_penalty=1.2', '--config.sample.count=2']
  assert main.main(flags) == 0
  out = capsys.readouterr().out
  assert [line for line in out.splitlines() if line.startswith('the quick')]
  assert '4 of 4' in out
  assert 'tokens/s' in out
  for change, said in (
    ('sample.prompts=nowhere', 'nowhere'),
    ('sample.slide=false', 'ask for fewer'),
    ('sample.top_p=0', 'top_p 0.0'),
    ('sample.stop=("",)', 'none of them empty'),
  ):
    extra = [f'--config.{change}', '--config.sample.tokens=30']
    assert main.main([*flags, *extra]) == 2
    assert said in capsys.readouterr().err


def test_scores_of_a_text_and_of_lines(capsys, tmp_path, run_of_text):
  workdir, _ = run_of_text
  assert main.main([f'--workdir={workdir}', '--job=score', '--config.score.text=the lazy']) == 0
  assert 'nats/token' in capsys.readouterr().out
  (one,) = json.loads((workdir / 'score.json').read_text())['texts']
  assert one['tokens'] == list('the lazy')
  assert one['log_probabilities'][0] is None
  assert sum(one['log_probabilities'][1:]) == pytest.approx(one['log_probability'], abs=1e-4)
  (tmp_path / 'lines').write_text('the lazy\n\nthe quick brown fox jumps over\n')
  flags = [f'--workdir={workdir}', '--job=score', f'--config.score.path={tmp_path}/lines']
  assert main.main([*flags, '--config.score.lines=true']) == 0
  first, second = json.loads((workdir / 'score.json').read_text())['texts']
  assert first['log_probability'] == pytest.approx(one['log_probability'], abs=1e-4)
  assert len(second['tokens']) == 30  # longer than the context
  for flags, said in (
    ([], 'score.text'),
    (['--config.score.path=nowhere'], 'nowhere'),
    (['--config.score.text=T'], "'T'"),
    (['--config.score.text=t'], 'follows nothing'),
  ):
    assert main.main([f'--workdir={workdir}', '--job=score', *flags]) == 2
    assert said in capsys.readouterr().err


def test_a_finished_run_says_so(capsys, run_of_text):
  workdir, flags = run_of_text
  assert call(f'--workdir={workdir}', *flags) == 0
  assert 'finished' in capsys.readouterr().out


def test_no_config_and_no_run(capsys, tmp_path):
  assert main.main([]) == 2
  assert '--config=configs/quickstart.py' in capsys.readouterr().err
  assert main.main([f'--workdir={tmp_path}', '--job=sample']) == 2
  assert 'config.json' in capsys.readouterr().err


@pytest.mark.parametrize(
  ('flag', 'key'),
  [('--prompt=x', 'sample.prompt'), ('--train.lr=1', ''), ('--optim.lr=1', 'optim.lr')],
)
def test_a_flag_that_is_a_key_of_the_config(capsys, flag, key):
  assert main.main(['--workdir=w', flag]) == 2
  said = capsys.readouterr().err
  assert f"did you mean '--config.{key}'?" in said if key else 'choose one of' in said


def test_a_workdir_that_is_not_there_has_a_neighbour(capsys, run_of_text):
  workdir, _ = run_of_text
  assert main.main([f'--workdir={workdir.parent}/runs', '--job=sample']) == 2
  assert f"does not exist; did you mean '{workdir}'?" in capsys.readouterr().err
  with pytest.raises(UserError, match=r"did you mean '.*run'"):
    sgnjax.load(workdir.parent / 'runs')


def test_a_leak_is_refused_with_a_status_of_its_own_and_leaves_no_folder(capsys, tmp_path):
  workdir = tmp_path / 'w'
  refused(
    capsys, f'--workdir={workdir}', '--config.model.form=published', said='layer 00', status=3
  )
  assert not workdir.exists()


def test_another_python_is_told_in_a_line():
  done = subprocess.run(
    [sys.executable, '-I', '-S', 'launch/main.py', '--job=list'],
    cwd=CONFIGS.parent, capture_output=True, text=True, check=False,
  )  # fmt: skip
  assert done.returncode == 2
  assert done.stderr.startswith('error: ml_collections is not installed for ')
  assert len(done.stderr.splitlines()) == 1


def test_the_list_of_configs(capsys):
  assert main.main(['--job=list']) == 0
  lines = capsys.readouterr().out.splitlines()
  names = {p.name for p in CONFIGS.glob('*.py')} - {'base.py'}
  assert {line.split()[0].removeprefix('configs/') for line in lines} == names
  assert all(len(line.split(maxsplit=1)) == 2 for line in lines)
  assert len({line.index(line.split(maxsplit=1)[1]) for line in lines}) == 1  # one column
