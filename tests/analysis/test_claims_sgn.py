"""Verdicts on SGN's claims: formulas as they come out, trainings both ways in a fake laboratory."""

import jax.numpy as jnp
import numpy as np
import pytest

from sgnjax.analysis.claims import sgn, sgn_code, sgn_learned, sgn_operator, sgn_runs
from sgnjax.analysis.claims.claim import FAILS, HOLDS, OPEN, UNDECIDED, WITH_LEAK
from sgnjax.data import pipeline, sources, tokenizers
from tests.analysis.fake_lab import TRY, FakeLab

LAB = FakeLab(lambda config: 1.0)


def test_identifiers_are_those_of_the_paper_in_order():
  assert [c.id for c in sgn.CLAIMS] == [f'sgn-{i:02}' for i in range(1, 16)]


def test_fewer_flops_by_every_counting():
  found = sgn.fewer_flops(LAB)
  assert found.verdict == HOLDS
  assert '39.1% fewer' in found.said
  by_name = {row[:2]: row for row in found.tables[0].rows}
  assert by_name['sgn-published-block', 'matrix'][3:] == ('29.8%', '21.2%')


def test_more_is_asked_than_the_gated_form_saves(monkeypatch):
  monkeypatch.setattr(sgn, 'FEWER', 0.4)
  assert sgn.fewer_flops(LAB).verdict == FAILS


def test_theorem_1():
  found = sgn_operator.theorem(LAB)
  assert found.verdict == FAILS
  made = {row[0]: row[1:] for row in found.tables[0].rows}
  assert made['an operator of a gate'][-1] == '0.000'
  assert made['the token before'][-1] != '0.000'


def test_what_a_gate_can_make_is_left_to_rounding():
  n = 16
  cosines = np.cos(np.pi / n * np.arange(n)[:, None] * (np.arange(n)[None] + 0.5))
  cosines *= np.sqrt(np.where(np.arange(n) == 0, 1, 2) / n)[:, None]
  gate = np.random.default_rng(0).normal(size=n)
  matrix = cosines.T @ (gate[:, None] * cosines)
  assert sgn_operator.nearest_gate(matrix, n) < 1e-12
  rest = np.linalg.norm(gate[4:]) / np.linalg.norm(gate)
  assert sgn_operator.nearest_gate(matrix, 4) == pytest.approx(rest, rel=1e-12)


def test_edges():
  found = sgn_operator.edges(LAB)
  assert found.verdict == HOLDS
  assert all(float(row[-1]) < 1e-12 for row in found.tables[0].rows)


def test_no_artefact_where_the_layer_is_the_identity(monkeypatch):
  monkeypatch.setattr(sgn_operator, 'spectral_gate', lambda x_BLD, gate_ND: x_BLD)
  assert sgn_operator.edges(LAB).verdict == FAILS


def test_the_table_of_images_is_underspecified():
  found = sgn.underspecified(LAB)
  assert found.verdict == HOLDS
  assert [row[1] for row in found.tables[0].rows] == ['256', '64', '16']
  assert '--config.model.classes=10' in found.decision.command


@pytest.mark.parametrize('decide', [sgn_runs.c4, sgn_runs.cifar10, sgn_runs.imagenet])
def test_what_needs_a_gpu_is_told_with_its_cost(decide):
  found = decide(LAB)
  assert found.verdict == OPEN
  assert 'FLOPs in all' in found.decision.cost


def test_growth_tells_n_squared_from_n_log_n(monkeypatch):
  lengths = (16, 32, 64)
  monkeypatch.setattr(sgn.timing, 'program', lambda function, *_: function)
  times = {'_published': 1.1, '_causal': 1.1, '_attention': 2}

  class Timed:
    flops = 1.0

    def __init__(self, name):
      self.name = name

  monkeypatch.setattr(sgn.timing, 'gradient', lambda layer: Timed(layer.__name__))

  def rounds(programs, *_, **__):
    return {n: int(n) ** times[program.name] for n, program in programs.items()}

  monkeypatch.setattr(sgn.timing, 'interleaved', rounds)
  assert sgn.growth(LAB, lengths).verdict == HOLDS
  times['_causal'] = 2
  found = sgn.growth(LAB, lengths)
  assert found.verdict == FAILS
  assert '2.00' in found.said


def losses(published: float, causal: float, *, noise: float = 0.0):
  """The paper's arm of each form is lower than the others by so much."""

  def of(config):
    m = config.model
    own = m.mixer == 'sgn' and m.sgn.gate == 'learned' and m.sgn.basis == 'dct'
    own = own and m.block != 'sgn_bare'
    less = published if m.form == 'published' else causal
    slower = 0.5 * (m.mixer == 'linear')
    return 2.0 + slower - own * (less + noise * (-1) ** config.seed)

  return of


ABLATIONS = [sgn_runs.learned, sgn_runs.residual, sgn_runs.basis]


@pytest.mark.parametrize('decide', [*ABLATIONS, sgn_runs.wikitext])
@pytest.mark.parametrize(
  ('published', 'causal', 'noise', 'verdict'),
  [
    (0.3, 0.1, 0.0, HOLDS),
    (-0.3, 0.1, 0.0, HOLDS),
    (0.3, -0.1, 0.0, WITH_LEAK),
    (-0.3, -0.1, 0.0, FAILS),
    (0.3, 0.1, 1.0, UNDECIDED),
  ],
)
def test_forms_are_told_apart(decide, published, causal, noise, verdict):
  lab = FakeLab(losses(published, causal, noise=noise))
  found = decide(lab)
  assert found.verdict == verdict
  assert 'LEAKY' in found.said
  assert '--config.model.form=published' in found.decision.command
  seeds = {config.seed for config in lab.asked}
  assert seeds == set(range(5 if noise else 3))
  assert len(found.runs) == len(lab.asked)


@pytest.mark.parametrize('decide', ABLATIONS)
def test_arms_of_an_ablation_are_different_models(decide):
  lab = FakeLab(losses(0.3, 0.1))
  decide(lab)
  models = {str(config.model) for config in lab.asked if config.seed == 0}
  assert len(models) == sum(config.seed == 0 for config in lab.asked)
  causal = {config.model.form for config in lab.asked}
  assert causal == {'causal', 'published'}


@pytest.mark.parametrize(
  ('same_steps', 'same_time', 'verdict'),
  [(0.2, 0.1, HOLDS), (0.2, -0.1, FAILS), (0.2, 0.0, UNDECIDED), (-0.2, -0.3, FAILS)],
)
def test_a_drop_in_is_below_attention_at_equal_steps_and_time(same_steps, same_time, verdict):
  def of(config):
    if config.model.mixer == 'sgn':
      return 2.0
    return 2.0 + (same_steps if config.train.steps == TRY.steps else same_time)

  lab = FakeLab(of, kept={'sgn_time_try': 2.0})
  found = sgn_runs.drop_in(lab)
  assert found.verdict == verdict
  assert {config.train.steps for config in lab.asked} == {TRY.steps, 2 * TRY.steps}
  assert '6 steps of attention in the time of 3' in found.said


@pytest.mark.parametrize(
  ('code', 'prose', 'verdict'),
  [(0.5, 0.25, HOLDS), (-0.25, 0.25, FAILS), (0.25, 0.25, UNDECIDED)],
)
def test_code_is_compared_with_prose_by_what_sgn_loses(code, prose, verdict, monkeypatch, tmp_path):
  paths = {name: tmp_path / f'{name}.txt' for name in ('code', 'prose')}
  monkeypatch.setattr(sgn_code, 'write', lambda folder: paths)

  def of(config):
    loses = {str(paths['code']): code, str(paths['prose']): prose}[config.data.path]
    return (
      1.0 + 0.5 * (config.data.path == str(paths['code'])) + loses * (config.model.mixer == 'sgn')
    )

  assert sgn_runs.code_against_prose(FakeLab(of, workdir=tmp_path)).verdict == verdict


def test_programs_and_prose_are_of_one_length(tmp_path, monkeypatch):
  monkeypatch.setattr(sources, 'MODULES', ('bdb',))
  monkeypatch.setattr(sources, 'embedded', lambda: 'words ' * 1000)
  texts = {name: path.read_text() for name, path in sgn_code.write(tmp_path).items()}
  assert len(texts['code']) == len(texts['prose']) == 6000
  assert 'def ' in texts['code']
  assert sgn_code.bare('def f():\n  "why"\nx = 1  # so\n') == 'def f():\n    pass\nx = 1'


@pytest.mark.parametrize(
  ('published', 'causal', 'verdict'),
  [(-1, -1, HOLDS), (-1, 1, WITH_LEAK), (1, 1, FAILS), (1, -1, HOLDS)],
)
def test_frequencies_are_those_of_gates_and_text(published, causal, verdict, monkeypatch):
  """Gates that fall or rise with frequency by these powers; a text that repeats its letters."""
  tokenizer = tokenizers.make('char', 'ab')
  lab = FakeLab(lambda config: 2.0)

  def load(workdir, step):
    config = lab.asked[int(workdir.name) - 1]
    power = published if config.model.form == 'published' else causal
    gate_LND = np.arange(1, 34)[None, :, None] ** float(power) * np.ones((2, 1, 4))
    params = {
      'stack': {'group': {'mixer': {'gate': jnp.asarray(gate_LND)}}},
      'embedding': jnp.eye(2),
    }
    return config, params, tokenizer, step

  text = np.asarray(([0] * 32 + [1] * 32) * 40, np.int32)
  corpus = pipeline.Corpus({'validation': text}, {}, {}, {}, tokenizer, 'here')
  monkeypatch.setattr(sgn_learned, 'load_params', load)
  monkeypatch.setattr(pipeline, 'load', lambda config, tokenizer: corpus)
  found = sgn_learned.frequencies(lab)
  assert found.verdict == verdict
  assert len(lab.asked) == 6


def test_the_lowest_quarter():
  assert sgn_learned._low(np.ones((33, 2))) == pytest.approx(0.25)
  assert sgn_learned._low(np.eye(8)[:, :2]) == 1.0
