"""A run as a notebook has it: trained, gone on with, loaded, written with, audited."""

from pathlib import Path

import pytest

import sgnjax
from sgnjax.errors import UserError
from tests.train.tiny import tiny


def test_a_run_from_python(capsys, monkeypatch, tmp_path):
  monkeypatch.chdir(tmp_path)
  config = tiny(tmp_path, train__steps=2, train__eval_every=2)
  run = sgnjax.train(config)
  assert run.workdir == Path('runs') / f'softmax-{sgnjax.config.fingerprint(config)}'
  assert (run.status, run.step, run.leaky) == ('finished', 2, False)
  assert run.final['loss'] == run.records()[-1]['loss']
  assert sgnjax.train(config).final == run.final
  assert 'is finished: 2 steps' in capsys.readouterr().out
  model, params, tokenizer = loaded = run.load()
  assert loaded.step == 2
  assert params['embedding'].shape[0] == model.padded_vocab >= tokenizer.vocab_size
  text = run.write('the quick ', 5, temperature=1.0, seed=3, top_p=0.9)
  assert len(text) == 5
  report = sgnjax.audit(run)
  assert not report.leaky
  assert (report.length, report.declared) == (16, True)


def test_what_is_no_config_is_told(tmp_path):
  with pytest.raises(UserError, match='not dict'):
    sgnjax.train({'steps': 3})
  with pytest.raises(UserError, match='does not exist'):
    sgnjax.train(tmp_path / 'nothing.py')
