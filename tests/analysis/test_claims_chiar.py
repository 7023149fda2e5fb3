"""CHIAR-Former's claims: verdicts by formula, and the arithmetic of what trainings decide."""

import dataclasses
import json

import numpy as np
import pytest

from sgnjax.analysis import dispatch
from sgnjax.analysis.claims import chiar, chiar_costs, chiar_inside, chiar_runs
from sgnjax.analysis.claims.claim import FAILS, HOLDS, OPEN, UNDECIDED, WITH_LEAK
from sgnjax.ops.dct import dct_matrix
from sgnjax.ops.entropy import white_entropy
from tests.analysis.fake_lab import FakeLab


def quiet():
  return FakeLab(lambda config: 0.0)


def test_every_claim_is_there_in_order():
  assert [claim.id for claim in chiar.CLAIMS] == [f'chi-{n:02}' for n in range(1, 17)]


def test_parameters_are_those_of_the_paper():
  assert chiar_costs.parameters_400m(quiet()).verdict == HOLDS


def test_more_is_claimed_than_all_attention_costs(monkeypatch):
  found = chiar_costs.fewer_flops(quiet())
  assert found.verdict == FAILS
  assert [row[2] for row in found.tables[0].rows] == ['0.7%', '8.8%', '16.0%']
  monkeypatch.setattr(chiar_costs, 'SAVED', 0.16)
  assert chiar_costs.fewer_flops(quiet()).verdict == HOLDS


def test_attention_of_a_routed_layer_saves_a_half(monkeypatch):
  found = chiar_costs.attention_saved(quiet())
  assert found.verdict == FAILS
  assert [row[1] for row in found.tables[0].rows] == ['0.0%', '27.8%', '52.8%']
  monkeypatch.setattr(chiar_costs, 'SAVED_OF_ATTENTION', 0.53)
  assert chiar_costs.attention_saved(quiet()).verdict == HOLDS


def vectors(kind):
  """White noise; or 'low', tokens whose energy leans to the first coefficients."""

  def made(width, words, count):
    noise_ND = np.random.default_rng(2).standard_normal((400, width))
    text_ND = noise_ND
    if kind == 'low':
      basis_DD = np.asarray(dct_matrix(width, np.float32))
      # From flat to concentrated at the lowest coefficients, one token after the other.
      fall_N1 = np.linspace(0, 3, 400)[:, None]
      text_ND = (noise_ND * np.exp(-fall_N1 * np.arange(width) / width)) @ basis_DD
    return {'white noise': noise_ND, 'embeddings of words': text_ND}

  return made


@pytest.mark.parametrize(('kind', 'verdict'), [('noise', HOLDS), ('low', FAILS)])
def test_the_threshold_halves_what_is_like_noise(monkeypatch, kind, verdict):
  monkeypatch.setattr(chiar, 'vectors', vectors(kind))
  assert chiar.halves(quiet()).verdict == verdict


@pytest.mark.parametrize(('kind', 'verdicts'), [('noise', {FAILS, UNDECIDED}), ('low', {HOLDS})])
def test_low_entropy_is_low_frequency_where_it_was_made_so(monkeypatch, kind, verdicts):
  monkeypatch.setattr(chiar, 'vectors', vectors(kind))
  assert chiar.compaction(quiet()).verdict in verdicts


def test_entropy_runs_from_0_to_1(monkeypatch):
  assert chiar.entropy_range(quiet()).verdict == HOLDS
  entropy = chiar.entropy
  monkeypatch.setattr(chiar, 'entropy', lambda x, **options: 1.1 * entropy(x, **options))
  assert chiar.entropy_range(quiet()).verdict == FAILS


def test_400m_is_not_decided_and_says_what_would():
  found = chiar.perplexity_400m(quiet())
  assert found.verdict == OPEN
  assert '--config.model.mixer=chiar_attention' in found.decision.command


def by_arm(**losses):
  """Losses by router, mixer, basis or mixture; `seed` adds one of either sign."""

  def gives(config):
    m = config.model
    name = 'attention' if m.mixer == 'chiar_attention' else m.chiar.router
    name = m.chiar.basis if m.chiar.basis != 'dct' else name
    name = 'mixture' if config.data.mixture else name
    noise = losses.get('noise', 0) * (-1) ** config.seed
    return losses.get(name, 2.0) + noise * (name != 'threshold')

  return FakeLab(gives)


@pytest.fixture
def shares(monkeypatch):
  """In place of what runs logged: by metric and form, (records, layers)."""
  told = {'attention_share': [[0.4, 0.6]]}
  monkeypatch.setattr(chiar_runs, 'watched', lambda run, name: np.asarray(told[name], float))
  monkeypatch.setattr(
    chiar_inside,
    'watched',
    lambda run, name: np.asarray(told.get((name, run.config.model.form), told.get(name)), float),
  )
  return told


@pytest.mark.parametrize(
  ('random', 'noise', 'verdict'), [(2.1, 0, HOLDS), (1.9, 0, FAILS), (2.0, 0.1, UNDECIDED)]
)
def test_random_routes_have_the_rate_that_entropy_had(shares, random, noise, verdict):
  lab = by_arm(random=random, noise=noise)
  found = chiar_runs.random_router(lab)
  assert found.verdict == verdict
  asked = [c.model.chiar for c in lab.asked]
  assert {c.rate for c in asked if c.router == 'random'} == {0.5}
  assert {c.tau for c in asked} == {round(white_entropy(32), 4)}
  assert {c.model.layers for c in lab.asked} == {4}


@pytest.mark.parametrize(
  ('attention', 'noise', 'verdict'), [(1.9, 0, HOLDS), (2.1, 0, FAILS), (2.0, 0.1, UNDECIDED)]
)
def test_routing_costs_where_attention_alone_is_lower(attention, noise, verdict):
  assert chiar_runs.gap(by_arm(attention=attention, noise=noise)).verdict == verdict


@pytest.mark.parametrize(('mixture', 'verdict'), [(1.9, HOLDS), (2.1, FAILS)])
def test_a_mixture_helps_where_its_loss_is_lower(tmp_path, mixture, verdict):
  lab = by_arm(mixture=mixture)
  lab.data = tmp_path
  for folder, name, text in (
    ('wikitext-2', 'test.txt', 'a <unk> b c'),
    ('wikitext-103', 'wiki.test.tokens', 'a rare b d'),
  ):
    (tmp_path / folder).mkdir()
    (tmp_path / folder / name).write_text(text)
  found = chiar_runs.mixed(lab)
  assert found.verdict == verdict
  assert '75.0%' in found.said
  assert (('imdb_reviews', 1.0, str(tmp_path / 'imdb')),) in {c.data.mixture for c in lab.asked}


@pytest.mark.parametrize(
  ('start', 'end', 'verdict'), [(0.2, 0.01, HOLDS), (0.3, 0.2, UNDECIDED), (0.3, 0.3, FAILS)]
)
def test_rbf_is_left_out_where_its_share_is_small_at_the_end(shares, start, end, verdict):
  shares['rbf_share'] = [[0.3, 0.3], [start, start], [end, end]]
  found = chiar_inside.collapse(quiet())
  assert found.verdict == verdict
  assert chiar_inside.rbf_weights() < 1e-12  # normed tokens do not mix


@pytest.mark.parametrize(
  ('causal', 'published', 'verdict'),
  [
    ([0.5, 0.22, 0.22], [0.5, 0.5, 0.5], HOLDS),
    ([0.5, 0.5, 0.5], [0.5, 0.25, 0.22], WITH_LEAK),
    ([0.5, 0.4, 0.4], [0.5, 0.6, 0.6], FAILS),
    ([0.5, 0.4, 0.3], [0.5, 0.6, 0.6], UNDECIDED),
  ],
)
def test_the_meta_gate_settles_or_not(shares, causal, published, verdict):
  shares['meta_gate', 'causal'] = [[g] for g in causal]
  shares['meta_gate', 'published'] = [[g] for g in published]
  found = chiar_inside.meta_gate(quiet())
  assert found.verdict == verdict
  assert ' LEAKY' in found.said


@pytest.mark.parametrize(('function', 'verdict'), [(False, HOLDS), (True, FAILS)])
def test_function_words_are_told_from_others(monkeypatch, function, verdict):
  class Tokenizer:
    vocab_size = 4

    def decode(self, ids):
      return ' ' + ('the', 'castle', '<unk>', 'of')[ids[0]]

  tokens_BL = np.asarray([[0, 1, 2, 3]])
  attends = np.isin(tokens_BL, [0, 3]) == function
  debug = {'route/01': attends, 'route/02': attends, 'entropy/01': tokens_BL}
  monkeypatch.setattr(chiar_inside, 'looked', lambda run: (tokens_BL, Tokenizer(), debug))
  assert chiar_inside.words(quiet()).verdict == verdict


def test_metrics_are_read_by_layer(tmp_path):
  run = chiar_runs.train(quiet(), chiar_runs.pick('entropy')).arms['entropy'][0]
  records = [{'kind': 'train', 'meta_gate/00': g, 'meta/00': 9} for g in (0.5, 0.4)]
  (tmp_path / 'metrics.jsonl').write_text(
    '\n'.join(map(json.dumps, [*records, {'kind': 'evaluation', 'loss': 2.0}]))
  )
  run = dataclasses.replace(run, workdir=tmp_path)
  assert chiar_runs.watched(run, 'meta_gate').tolist() == [[0.5], [0.4]]


def covariance(kind, width=32):
  """Of neighbours that are alike, or of the same in another order of channels."""
  cov_DD = 0.95 ** np.abs(np.subtract.outer(np.arange(width), np.arange(width)))
  order = np.random.default_rng(3).permutation(width)
  return cov_DD if kind == 'toeplitz' else cov_DD[np.ix_(order, order)]


def test_a_smooth_covariance_is_toeplitz_and_the_dct_suits_it():
  report = chiar_inside.basis_report(covariance('toeplitz'))
  assert report['toeplitz'] == pytest.approx(1)
  assert report['DCT'] > 0.95 > report['DCT, permuted'] > report['random basis'] - 0.2
  report = chiar_inside.basis_report(covariance('shuffled'))
  assert report['toeplitz'] < report['toeplitz, permuted'] * 1.5 < 0.4
  assert report['DCT'] < 0.5


@pytest.mark.parametrize(
  ('kind', 'controls', 'verdict'),
  [('toeplitz', 2.1, HOLDS), ('toeplitz', 1.9, UNDECIDED), ('shuffled', 1.9, FAILS)],
)
def test_the_dct_suits_embeddings_where_basis_and_losses_say_so(
  monkeypatch, kind, controls, verdict
):
  root_DD = np.linalg.cholesky(covariance(kind))
  noise_VD = np.random.default_rng(4).standard_normal((4000, 32))
  monkeypatch.setattr(chiar_inside, 'embedding', lambda run: noise_VD @ root_DD.T)
  lab = by_arm(orthogonal=controls, permuted=controls)
  assert chiar_inside.toeplitz(lab).verdict == verdict


@pytest.mark.parametrize(('dense', 'verdict'), [(1.0, FAILS), (0.5, HOLDS)])
def test_one_operator_for_each_token_is_half_way_to_attention(monkeypatch, dense, verdict):
  def counted(config, **_):
    if config.model.stack:
      return {'chiar_dct': 1.0, 'chiar_attention': 2.0}[config.model.stack[1][0]]
    return 1 + (dense if config.model.chiar.dispatch == dispatch.DENSE else 0.4)

  rows = {'routed 50%': {'measured': 0.25}, 'all 50%': {'measured': 0.1}, dispatch.DENSE: {}}
  monkeypatch.setattr(chiar_costs, 'xla_flops', counted)
  monkeypatch.setattr(dispatch, 'measure', lambda *_, **__: {'rows': rows})
  found = chiar_costs.one_operator(quiet())
  assert found.verdict == verdict
  assert f'XLA counts {dense:.2f}' in found.said
  assert '0.75 of the time' in found.said


@pytest.mark.parametrize(('power', 'verdict'), [(1, HOLDS), (-1, FAILS)])
def test_savings_that_grow_with_width(monkeypatch, power, verdict):
  def measure(config, **_):
    saved = 0.1 * (config.model.width / 128) ** power
    return {'rows': {'routed 50%': {'analytic': saved, 'measured': saved}}}

  monkeypatch.setattr(dispatch, 'measure', measure)
  found = chiar_costs.sizes(quiet())
  assert found.verdict == verdict
  assert ' at 16M and ' in found.said
