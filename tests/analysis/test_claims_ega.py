"""The verdicts on EGA: the arithmetic of trainings both ways, in a fake laboratory."""

import numpy as np
import pytest

from sgnjax.analysis.claims import ega, ega_learned, ega_runs
from sgnjax.analysis.claims.claim import FAILS, HOLDS, UNDECIDED, WITH_LEAK
from tests.analysis.fake_lab import FakeLab


def test_the_list_is_whole_and_in_order():
  assert [claim.id for claim in ega.CLAIMS] == [f'ega-{n:02}' for n in range(1, 22)]


def gate(published: float, causal: float, *, noise: float = 0.0):
  """A lab in which the gate is lower than attention by so much."""

  def gives(config):
    less = published if config.model.form == 'published' else causal
    own = config.model.mixer == 'ega'
    return 2.0 - own * (less + noise * (-1) ** config.seed)

  return FakeLab(gives)


@pytest.mark.parametrize(
  'decide', [ega_runs.published_gain, ega_runs.penn_treebank, ega_runs.statistics]
)
@pytest.mark.parametrize(
  ('published', 'causal', 'noise', 'verdict'),
  [
    (0.2, 0.1, 0.0, HOLDS),
    (0.2, -0.1, 0.0, WITH_LEAK),
    (-0.2, -0.1, 0.0, FAILS),
    (0.2, 0.0, 1.0, UNDECIDED),
  ],
)
def test_a_published_gain_is_told_from_a_causal_one(decide, published, causal, noise, verdict):
  found = decide(gate(published, causal, noise=noise))
  assert found.verdict == verdict
  assert ' LEAKY' in found.said


@pytest.mark.parametrize(
  'id', [claim.id for claim in ega.CLAIMS if claim.decide.__module__.endswith('ega_runs')]
)
def test_as_many_models_are_trained_as_a_budget_counts(id):
  claim, lab = next(c for c in ega.CLAIMS if c.id == id), gate(0.2, 0.1)
  found = claim.decide(lab)
  assert sum(config.seed == 0 for config in lab.asked) == claim.arms
  assert len(found.runs) == len(lab.asked)
  assert found.setting.startswith('smaller')


@pytest.mark.parametrize(('at', 'verdict'), [(5.01, FAILS), (8.0, UNDECIDED)])
def test_a_product_that_stays_at_its_start_is_no_finding(monkeypatch, at, verdict):
  params = {'log_omega0': np.log([at]), 'log_sigma': np.zeros(1)}
  monkeypatch.setattr(ega_learned, '_leaf', lambda p, name: params[name])
  monkeypatch.setattr(ega_learned, '_weights', lambda run: None)
  assert ega_learned.morlet_product(gate(0, 0)).verdict == verdict


@pytest.mark.parametrize(('last', 'verdict'), [(0.1, HOLDS), (2.0, FAILS)])
def test_scale_weights_of_the_published_form_are_marked(monkeypatch, last, verdict):
  monkeypatch.setattr(ega_learned, '_leaf', lambda p, name: np.array([0.0, 0, 0, last]))
  monkeypatch.setattr(ega_learned, '_weights', lambda run: None)
  found = ega_learned.scale_weights(gate(0, 0))
  assert found.verdict == verdict
  assert ' LEAKY' in found.said
  assert found.setting.endswith('3 seeds')


@pytest.mark.parametrize(('tau', 'gates', 'verdict'), [(0.35, 0.36, HOLDS), (0.0, 0.5, UNDECIDED)])
def test_a_threshold_and_the_tokens_above_it(monkeypatch, tau, gates, verdict):
  monkeypatch.setattr(ega_learned, '_leaf', lambda p, name: np.full(4, tau))
  monkeypatch.setattr(ega_learned, '_weights', lambda run: None)
  shown = np.arange(100) < 100 * gates
  monkeypatch.setattr(ega_learned, '_shown', lambda run, key: shown)
  found = ega_learned.threshold(gate(0, 0))
  assert found.verdict == verdict
  assert f'{gates:.0%} LEAKY' in found.said
