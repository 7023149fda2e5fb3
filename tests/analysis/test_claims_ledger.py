"""The ledger of the claims, and the job that writes it: who made what, and nothing made twice."""

import json
from pathlib import Path

import jax
import pytest

from sgnjax import config as config_lib
from sgnjax.analysis.claims import CLAIMS, ledger, readme
from sgnjax.analysis.claims import lab as lab_module
from sgnjax.analysis.claims.claim import HOLDS, NEEDS, WITH_LEAK, Finding
from sgnjax.errors import UserError
from sgnjax.jobs import reproduce

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def trained(monkeypatch):
  """Trainings that end at once, lower where the future is seen; the list of their workdirs."""
  done = []

  def train(config, workdir, audited):
    done.append(workdir)
    leaky = config.allow_leak
    loss = 2 - leaky + 0.5 * (config.model.mixer == 'ega') + 0.01 * config.seed
    workdir.mkdir(parents=True)
    record = {'kind': 'evaluation', 'loss': loss, 'leaky': leaky}
    (workdir / 'metrics.jsonl').write_text(json.dumps(record) + '\n')
    return {'status': 'finished'}

  def committed(workdir):
    done = (workdir / 'metrics.jsonl').exists()
    return [size.steps for size in lab_module.SIZES] if done else []

  monkeypatch.delenv(reproduce.DATA, raising=False)
  monkeypatch.setattr(lab_module.loop, 'train', train)
  monkeypatch.setattr(lab_module, 'committed', committed)
  monkeypatch.setattr(lab_module.Lab, '_audit', lambda lab, config: None)
  monkeypatch.setattr(jax, 'clear_caches', lambda: None)
  return done


def run(workdir, claims: str, how='size=tiny'):
  told = [f'reproduce.claims={claims}', f'reproduce.{how}']
  assert reproduce.run(config_lib.load(config_lib.CONFIGS / 'quickstart.py', told), workdir) == 0
  return ledger.read(workdir / 'claims.json')


@pytest.mark.parametrize(('how', 'more'), [('size=tiny', 0), ('budget=1h', 1)])
def test_a_second_time_trains_nothing_and_finds_the_same(trained, tmp_path, how, more):
  first = run(tmp_path, 'ega-04', how)['ega-04']
  assert first.verdict == WITH_LEAK
  assert len(trained) == len(set(trained)) == 3 * CLAIMS['ega-04'].arms + more  # one for the rate
  before = list(trained)
  assert run(tmp_path, 'ega-04', how)['ega-04'] == first
  assert trained == before


def test_a_verdict_keeps_the_commit_that_made_it(tmp_path, monkeypatch):
  for commit, claim in (('aaaaaaa', 'ega-01'), ('bbbbbbb', 'ega-02')):
    monkeypatch.setattr(reproduce, 'commit', lambda commit=commit: commit)
    found = run(tmp_path, claim)
  assert {name: f.commit for name, f in found.items()} == {'ega-01': 'aaaaaaa', 'ega-02': 'bbbbbbb'}
  rows = ledger.made(list(CLAIMS.values()), found)
  assert [(row[0], row[-1]) for row in rows[1:]] == [('aaaaaaa', 'ega-01'), ('bbbbbbb', 'ega-02')]
  page = (tmp_path / 'claims.md').read_text()
  assert f'| aaaaaaa | {found["ega-01"].when} | {found["ega-01"].machine} | ega-01 |' in page


def test_a_ledger_of_before_is_read(tmp_path):
  own = [CLAIMS['ega-01']]
  ledger.write(tmp_path, own, {'ega-01': Finding(HOLDS, 'counted', commit='ccccccc')})
  record = json.loads((tmp_path / 'claims.json').read_text())
  for key in ('commit', 'when', 'machine'):
    del record['claims'][0][key]
  (tmp_path / 'claims.json').write_text(json.dumps(record))
  found = ledger.read(tmp_path / 'claims.json')
  assert found == {'ega-01': Finding(HOLDS, 'counted')}
  assert ledger.made(own, found)[1] == (*['not recorded'] * 3, 'ega-01')


def test_needs_are_told_whole():
  assert all(set(claim.needs) <= set(NEEDS) for claim in CLAIMS.values())
  page = ledger.markdown([CLAIMS['chi-15']], {})
  assert f'not tried: needs {NEEDS["P"]} and {NEEDS["S"]} |' in page


def test_a_budget_leaves_the_size_of_claims_that_train_nothing(tmp_path, capsys):
  told = ['reproduce.claims=ega-01', 'reproduce.size=tiny', 'reproduce.budget=1h']
  reproduce.run(config_lib.load(config_lib.CONFIGS / 'quickstart.py', told), tmp_path)
  assert 'trainings on text: tiny' in capsys.readouterr().out


def test_the_table_of_the_readme_is_the_ledger():
  findings = ledger.read(ROOT / 'docs' / 'results' / 'claims.json')
  table = readme.table(list(CLAIMS.values()), findings)
  said = 'python -m sgnjax.analysis.claims.readme README.md docs/results/claims.json'
  assert table in (ROOT / 'README.md').read_text(encoding='utf-8'), said
  assert f'ega-03): **{findings["ega-03"].verdict}** (smaller than the paper)' in table


def test_only_what_is_between_the_markers_is_written(tmp_path):
  page, record = tmp_path / 'README.md', tmp_path / 'claims.json'
  page.write_text(f'above\n\n{readme.BEGIN}\nbefore it\n{readme.END}\n\nbelow\n')
  with pytest.raises(UserError, match='--job=reproduce writes one'):
    readme.write(page, record)
  found = {c: Finding(HOLDS, 'seen') for c in ('sgn-11', 'sgn-01')}
  ledger.write(tmp_path, list(CLAIMS.values()), found)
  readme.write(page, record)
  text = page.read_text()
  assert text.startswith('above\n')
  assert text.endswith('\n\nbelow\n')
  assert 'before it' not in text
  assert '(sgn-11): **holds** | 15; holds: 2, not tried: 13 |' in text
  assert '(ega-03): **not tried** | 21; not tried: 21 |' in text
  readme.write(page, record)
  assert page.read_text() == text
  page.write_text('nothing')
  with pytest.raises(UserError, match='has not the lines'):
    readme.write(page, record)
