"""The config's own step: the benchmark's arithmetic, on a model small enough to time at once."""

import json

import pytest

from configs import base
from sgnjax.analysis.benchmark import step
from sgnjax.analysis.flops import flops
from sgnjax.jobs import benchmark
from sgnjax.jobs.plan import ASSUMED


@pytest.fixture(scope='module')
def config():
  config = base.get_config().unlock()
  config.model.update(mixer='sgn', width=16, heads=2, layers=1, context=16, dtype='bfloat16')
  config.train.batch = 8
  config.optim.warmup = 0
  return config.lock()


@pytest.fixture(scope='module')
def found(config):
  return benchmark.measure(config, size=64, repeats=3)


def test_rates_follow_from_times(config, found):
  seconds = found['step_seconds']
  assert seconds > 0
  assert found['tokens_per_second'] == pytest.approx(8 * 16 / seconds)
  twin = config.copy_and_resolve_references().unlock()
  twin.model.vocab = ASSUMED['char']
  terms = flops(twin, batch=8, length=16, training=True)
  assert found['step_flops'] == sum(terms.values()) > 0
  assert set(found['matrix_flops_per_second']) == {'float32', 'bfloat16'}
  for dtype, rate in found['matrix_flops_per_second'].items():
    share = found['share_of_matrix_rate'][dtype]
    assert share == pytest.approx(found['flops_per_second'] / rate)


def test_the_job_prints_its_convention_and_writes_json(
  found, config, tmp_path, monkeypatch, capsys
):
  monkeypatch.setattr(benchmark, 'measure', lambda config, repeats: found)
  folder = tmp_path / 'run'
  assert benchmark.run(config, folder) == 0
  assert json.loads((folder / 'benchmark.json').read_text()) == found
  said = capsys.readouterr().out
  for part in ('tokens/s', 'of the float32 matrix rate', 'forward and backward', 'jax 0.'):
    assert part in said
  assert 'LEAKY' not in said
  assert 'tokens/s LEAKY' in step.describe(found | {'leaky': True})
  # Sections measured before are kept beside it.
  sections = {'sections': {'ops/dct': {}}}
  (folder / 'benchmark.json').write_text(json.dumps(sections))
  assert benchmark.run(config, folder) == 0
  assert json.loads((folder / 'benchmark.json').read_text()) == found | sections
