"""The jobs of data: a tokenizer trained and used, a set prepared or refused in words."""

import json
from pathlib import Path

import pytest

from launch import main
from sgnjax.data import pipeline, tokenizers

QUICKSTART = f'--config={Path(__file__).parents[2]}/configs/quickstart.py'


@pytest.mark.parametrize('kind', ['bpe', 'unigram'])
def test_a_tokenizer_is_trained_and_its_run_needs_no_file(tmp_path, capsys, kind):
  if kind == 'unigram':
    pytest.importorskip('sentencepiece', reason='the package sentencepiece is not installed')
  (tmp_path / 'a.txt').write_text('the cat sat on the mat again\n' * 100)
  text = ['--config.data.name=text', f'--config.data.path={tmp_path}/a.txt']
  workdir, choice = tmp_path / 'run', f'--config.data.tokenizer={kind}'
  job = [QUICKSTART, f'--workdir={workdir}', '--job=tokenizer', choice, *text]
  assert main.main(job) == 2
  assert 'data.vocab_size' in capsys.readouterr().err
  assert main.main([*job, '--config.data.vocab_size=280']) == 0
  said = capsys.readouterr().out
  path = workdir / 'tokenizer.json'
  assert f'--config.data.tokenizer={kind} --config.data.tokenizer_path={path}' in said
  made = tokenizers.from_json(json.loads(path.read_text()))
  assert made.kind == kind
  assert made.decode(made.encode('the cat é')) == 'the cat é'
  config = main.find_config(
    *main.parse([QUICKSTART, choice, f'--config.data.tokenizer_path={path}', *text])
  )[0]
  config.model.context = 8
  assert pipeline.load(config).tokenizer.to_json() == made.to_json()


def test_other_tokenizers_are_not_trained(tmp_path, capsys):
  assert main.main([QUICKSTART, f'--workdir={tmp_path}', '--job=tokenizer']) == 2
  assert "'char' is not known" in capsys.readouterr().err


def test_preparing(tmp_path, capsys):
  def prepare(name):
    return main.main(
      [
        QUICKSTART,
        '--job=prepare',
        f'--config.data.name={name}',
        f'--config.data.dir={tmp_path}',
      ]
    )

  assert prepare('embedded') == 2
  assert 'not of TFDS' in capsys.readouterr().err
  assert prepare('text_folder') == 2
  assert 'downloads/manual/text_folder' in capsys.readouterr().err
  folder = tmp_path / 'downloads' / 'manual' / 'text_folder'
  folder.mkdir(parents=True)
  (folder / 'a.txt').write_text('words')
  for _ in range(2):  # a second time it lies there
    assert prepare('text_folder') == 0
    assert 'train 1 examples' in capsys.readouterr().out
