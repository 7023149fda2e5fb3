"""The verdicts on FourierQK: formulas as they come out, and the arithmetic of trials both ways."""

from types import SimpleNamespace

import numpy as np
import pytest

from sgnjax import audit
from sgnjax.analysis.claims import fourier_qk as claims
from sgnjax.analysis.claims import fourier_qk_gap as gap
from sgnjax.analysis.claims import fourier_qk_leaks as leaks
from sgnjax.analysis.claims import fourier_qk_learned as learned
from sgnjax.analysis.claims import fourier_qk_runs as runs
from sgnjax.analysis.claims.claim import FAILS, HOLDS, UNDECIDED, WITH_LEAK
from sgnjax.analysis.claims.lab import Lab, OutOfBudgetError
from sgnjax.ops import filters
from tests.analysis.fake_lab import TRY, FakeLab


def softmax(config) -> bool:
  return config.model.mixer == 'softmax'


def seed_sign(config) -> float:
  return 0.1 * (-1) ** config.seed


def options(config):
  return config.model.fourier_qk


def fake_gap(monkeypatch, gap_of):
  """Makes what is measured on a finished run its loss and `gap_of` its config."""

  def kept(run, name, measure):
    return run.loss + gap_of(run.config)

  monkeypatch.setattr(gap, 'kept', kept)
  monkeypatch.setattr(leaks, 'kept', kept)


def fake_audit(monkeypatch, leaky):
  def twin_report(config):
    found = leaky(config)
    return SimpleNamespace(leaky=found, size=0.5 * found)

  monkeypatch.setattr(audit, 'twin_report', twin_report)


def test_the_list_is_whole_and_in_order():
  assert [c.id for c in claims.CLAIMS] == [f'fqk-{n:02}' for n in range(1, 22)]


def test_coverages_and_their_definitions(monkeypatch):
  found = claims.coverages(None)
  assert found.verdict == FAILS
  assert '3.9%' in found.said
  assert '17.8%' in found.said
  assert '2 of 3 agree' in found.said
  monkeypatch.setattr(claims, 'COVERED', {'sigma 2': 5 / 129, 'sigma 16': 23 / 129})
  assert claims.coverages(None).verdict == HOLDS


def test_wavelets_have_nothing_at_frequency_zero(monkeypatch):
  found = claims.zero_at_dc(None)
  assert found.verdict == HOLDS
  assert '0.062' in found.said or '0.063' in found.said  # of the half Mexican hat, a = 8
  monkeypatch.setattr(
    filters, 'paul', lambda omega_F, scale_K, _: filters.gaussian(omega_F, scale_K, 9)
  )
  assert claims.zero_at_dc(None).verdict == FAILS


def test_the_band_of_a_mexican_hat():
  middle, width = claims._band()
  u = (np.array([middle - width / 2, middle + width / 2]) * 2**0.5) ** 2
  np.testing.assert_allclose(u * np.exp(-u / 2), np.exp(-1), rtol=1e-12)


def test_the_dc_filter_is_uniform_attention():
  apart, pull = leaks.uniform_apart()
  assert apart < 1e-12
  assert pull < 1e-12


@pytest.mark.parametrize('claim', [runs.shapes, runs.whole_context])
def test_causal_filters_against_the_dot_product(claim):
  worse = claim(FakeLab(lambda c: 1.0 if softmax(c) else 1.1))
  assert worse.verdict == HOLDS
  assert '+0.1000' in worse.said
  assert worse.decision
  assert claim(FakeLab(lambda c: 1.0 if softmax(c) else 0.9)).verdict == FAILS
  open_ = claim(FakeLab(lambda c: 1.0 if softmax(c) else 1.0 + seed_sign(c)))
  assert open_.verdict == UNDECIDED


def test_scales_of_causal_morlet():
  assert runs.scales(FakeLab(lambda c: 1 / options(c).widths[0])).verdict == HOLDS
  assert runs.scales(FakeLab(lambda c: options(c).widths[0])).verdict == FAILS


def test_masked_characters(monkeypatch):
  fake_audit(monkeypatch, lambda config: False)
  assert runs.masked(FakeLab(lambda c: 1.0 + softmax(c))).verdict == HOLDS
  assert runs.masked(FakeLab(lambda c: 1.0 - softmax(c))).verdict == FAILS
  fake_audit(monkeypatch, lambda config: True)
  assert runs.masked(FakeLab(lambda c: 1.0 + softmax(c))).verdict == FAILS


def test_words():
  losses = {'fourier_qk': 1.0, 'softmax': 1.2, 'haar': 1.1}
  assert runs.words(FakeLab(lambda c: losses[c.model.mixer])).verdict == HOLDS
  losses['haar'] = 0.9
  assert runs.words(FakeLab(lambda c: losses[c.model.mixer])).verdict == FAILS


def test_several_scales_against_one():
  assert runs.multi_scale(FakeLab(lambda c: 1 / len(options(c).periods))).verdict == HOLDS
  assert runs.multi_scale(FakeLab(lambda c: len(options(c).periods))).verdict == FAILS


@pytest.mark.parametrize(
  ('published', 'causal', 'verdict'),
  [(-0.2, 0.1, WITH_LEAK), (-0.2, -0.1, HOLDS), (0.2, 0.1, FAILS)],
)
def test_nyquist_and_sigma_2_with_the_leak_and_without(monkeypatch, published, causal, verdict):
  fake_gap(monkeypatch, lambda config: 3.0)

  def loss(config):
    better = options(config).filter == 'nyquist' or options(config).sigma == 2.0
    if options(config).filter == 'dc':
      better = False
    return 2.0 + better * (published if config.model.form == 'published' else causal)

  assert leaks.nyquist(FakeLab(loss)).verdict == verdict
  found = leaks.single_scale(FakeLab(loss))
  assert found.verdict == verdict
  assert '3.00 LEAKY' in found.said


@pytest.mark.parametrize(
  ('shift', 'apart', 'verdict'),
  [(0.01, 0.0, HOLDS), (0.5, 0.0, FAILS), (0.01, 1e-3, FAILS)],
)
def test_dc_against_random_phases(monkeypatch, shift, apart, verdict):
  fake_gap(monkeypatch, lambda config: shift)
  monkeypatch.setattr(leaks, 'uniform_apart', lambda: (apart, 0.0))
  assert leaks.constant_scores(FakeLab(lambda c: 2.0)).verdict == verdict


def test_a_wide_band(monkeypatch):
  def narrow(config):
    return 1 / options(config).sigma

  fake_gap(monkeypatch, narrow)
  assert leaks.wide(FakeLab(narrow)).verdict == HOLDS
  fake_gap(monkeypatch, lambda config: options(config).sigma)
  assert leaks.wide(FakeLab(narrow)).verdict == FAILS


def test_shapes_by_their_gaps(monkeypatch):
  order = {'mexican_hat': 3.0, 'paul': 2.0, 'gaussian': 1.0}
  fake_gap(monkeypatch, lambda config: order[options(config).filter])
  assert leaks.shapes(FakeLab(lambda c: 1.0)).verdict == HOLDS
  order['paul'] = 0.5
  assert leaks.shapes(FakeLab(lambda c: 1.0)).verdict == FAILS


def test_gap_over_coverage(monkeypatch):
  def share(config):
    f = options(config)
    place = {'periods': f.periods} if f.filter == 'mexican_hat' else {'bins': f.bins}
    return leaks.coverage(runs.filtered(filter=f.filter, sigma=f.sigma, **place), 256)

  lab = FakeLab(lambda c: 1.0, size=TRY._replace(context=256))
  fake_gap(monkeypatch, lambda config: 5 - share(config))
  found = leaks.monotone(lab)
  assert found.verdict == HOLDS
  assert [row[0] for row in found.tables[0].rows][-1] == '62.8%'
  fake_gap(monkeypatch, lambda config: 5 - share(config) * (options(config).sigma < 16))
  assert leaks.monotone(lab).verdict == FAILS


def test_bins_of_the_analytic_branch(monkeypatch):
  def low(config):
    return 4 / (1 + options(config).bins[0])

  fake_gap(monkeypatch, low)
  assert leaks.analytic_gaps(FakeLab(lambda c: 1.0)).verdict == HOLDS
  fake_gap(monkeypatch, lambda config: -low(config))
  assert leaks.analytic_gaps(FakeLab(lambda c: 1.0)).verdict == FAILS
  one = FakeLab(lambda c: {'loss': abs(options(c).bins[0] - 1), 'leaky': False})
  assert leaks.best_bin(one).verdict == HOLDS
  assert leaks.best_bin(FakeLab(lambda c: abs(options(c).bins[0] - 1))).verdict == WITH_LEAK
  assert leaks.best_bin(FakeLab(lambda c: abs(options(c).bins[0] - 4))).verdict == FAILS


@pytest.mark.parametrize(
  ('leaky', 'loss', 'verdict'), [(True, 0.1, HOLDS), (True, 2.0, FAILS), (False, 0.1, FAILS)]
)
def test_four_scales(monkeypatch, leaky, loss, verdict):
  fake_gap(monkeypatch, lambda config: 0.58)
  fake_audit(monkeypatch, lambda config: leaky)
  found = leaks.four_scales(FakeLab(lambda c: 1.5 if softmax(c) else loss))
  assert found.verdict == verdict


def test_the_rule_of_the_gap(monkeypatch):
  def clean(config):
    """As the paper says: sigma 2 and bin 0 are clean, sigma 16 is not."""
    return softmax(config) or options(config).sigma < 16

  def loss(config):
    return {'loss': 1.0, 'leaky': not clean(config)}

  fake_audit(monkeypatch, lambda config: not clean(config))
  fake_gap(monkeypatch, lambda config: 5.0 if clean(config) else 1.0)
  assert gap.gap_rule(FakeLab(loss)).verdict == HOLDS
  fake_gap(monkeypatch, lambda config: 1.0)  # a causal model with a small gap
  found = gap.gap_rule(FakeLab(loss))
  assert found.verdict == FAILS
  assert 'on 2 of 6' in found.said
  fake_audit(monkeypatch, lambda config: True)
  fake_gap(monkeypatch, lambda config: 5.0 if clean(config) else 1.0)
  assert gap.gap_rule(FakeLab(loss)).verdict == FAILS


def test_the_rule_is_decided_without_a_budget_too(monkeypatch):
  def spent(config):
    raise OutOfBudgetError

  fake_audit(monkeypatch, lambda config: True)
  found = gap.gap_rule(FakeLab(spent))
  assert found.verdict == FAILS
  assert 'on 2 of 3' in found.said


def test_leaks_of_wavelets_and_gaussians(monkeypatch):
  sizes = {'mexican_hat': (0.1, 0.11), 'gaussian': (0.2, 0.24)}
  monkeypatch.setattr(claims, '_leak_sizes', lambda period, shape, seeds: sizes[shape])
  assert claims.admissible_leaks_less(None).verdict == HOLDS
  sizes['mexican_hat'] = (0.4, 0.41)
  assert claims.admissible_leaks_less(None).verdict == FAILS
  sizes['mexican_hat'] = (0.2, 0.24)  # as much
  assert claims.admissible_leaks_less(None).verdict == FAILS
  sizes['mexican_hat'] = (0.1, 0.48)
  assert claims.admissible_leaks_less(None).verdict == UNDECIDED


def test_learned_frequencies(monkeypatch):
  lab = FakeLab(lambda c: 1.0, size=TRY._replace(steps=1000))
  monkeypatch.setattr(learned, 'centres', lambda run: np.full((2, 2), options(run.config).bins[0]))
  found = learned.learned_frequency(lab)
  assert found.verdict == HOLDS
  assert 'not a finding' in found.said
  few = FakeLab(lambda c: 1.0)
  assert learned.learned_frequency(few).verdict == UNDECIDED  # nowhere else within reach
  monkeypatch.setattr(learned, 'centres', lambda run: np.full((2, 2), 9.0))
  found = learned.learned_frequency(lab)
  assert found.verdict == FAILS
  assert 'not a finding' not in found.said


def test_near_dyadic(monkeypatch):
  monkeypatch.setattr(learned, 'centres', lambda run: np.array([[2.0, 2.0], [4.1, 4.1], [8, 8]]))
  assert learned.dyadic(FakeLab(lambda c: 1.0)).verdict == HOLDS
  monkeypatch.setattr(learned, 'centres', lambda run: np.full((3, 2), 4.0))
  assert learned.dyadic(FakeLab(lambda c: 1.0)).verdict == UNDECIDED  # too few steps to part
  far = FakeLab(lambda c: 1.0, size=TRY._replace(steps=1000))
  assert learned.dyadic(far).verdict == FAILS


@pytest.mark.slow
def test_the_gap_of_a_real_run(tmp_path, monkeypatch):
  """In order a score is the run's own loss; it is measured once."""
  data = tmp_path / 'tinyshakespeare'
  data.mkdir()
  (data / 'input.txt').write_text('the quick brown fox jumps over the lazy dog. ' * 60)
  lab = Lab(tmp_path / 'work', tmp_path, TRY._replace(batch=8))  # tests have eight devices
  keys = runs.filtered() | {'train.compile_cache': False, 'model.vocab': None}
  run = lab.train(lab.config(keys, file=runs.FILE))
  assert run.leaky
  np.testing.assert_allclose(gap.score(run), run.loss, rtol=1e-6)
  (first,) = gap.gaps((run,))
  assert first != 0
  assert gap.score(run, surrogate='random') != run.loss
  assert learned.centres(run).shape == (1, 1)
  monkeypatch.setattr(gap, 'score', None)
  assert gap.gaps((run,)) == (first,)
