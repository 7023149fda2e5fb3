"""Laws against exact powers, what is not run, and a page that says which numbers are measured."""

import math

import numpy as np
import pytest

from configs import base
from launch import main
from sgnjax.analysis.scaling import measure
from sgnjax.analysis.scaling.law import fit
from sgnjax.analysis.scaling.page import curves, figure, laws, write
from sgnjax.errors import UserError

LENGTHS = [4**n for n in range(2, 9)]


def test_an_exact_power_has_no_interval():
  law = fit(LENGTHS, [3e-6 * n**1.5 for n in LENGTHS])
  np.testing.assert_allclose((law.exponent, law.low, law.high), 1.5, atol=1e-6)
  np.testing.assert_allclose(law(1e6), 3e3)
  assert law.points == len(LENGTHS)
  assert fit(LENGTHS[::-1], [max(n, 1000) for n in LENGTHS[::-1]], 3).exponent > 0.99


def test_an_interval_by_hand():
  # Logarithms 0, 1, 2, 3 against 0, 1, 2, 4 have slope 1.3 and residuals 0.2, -0.1, -0.4, 0.3.
  law = fit([1, 2, 4, 8], [1, 2, 4, 16])
  half = 4.30265 * math.sqrt(0.3 / 2 / 5)  # Student's t with two degrees of freedom
  expected = 1.3 - half, 1.3, 1.3 + half
  np.testing.assert_allclose((law.low, law.exponent, law.high), expected, 1e-5)


def test_intervals_hold_the_exponent_as_often_as_they_say():
  rng, hits = np.random.default_rng(0), 0
  for _ in range(400):
    values = np.exp(0.1 * rng.standard_normal(5)) * np.asarray(LENGTHS[:5], float) ** 2
    law = fit(LENGTHS[:5], values)
    hits += law.low < 2 < law.high
  assert 0.92 < hits / 400 < 0.98


def test_few_points():
  assert fit([16], [1.0]) is None
  law = fit([16, 64], [1.0, 4.0])
  assert (round(law.exponent, 9), law.low) == (1, -math.inf)
  assert str(law) == '1.00 (two points)'


def config(**scaling):
  c = base.get_config().unlock()
  c.model.update(width=16, heads=2, layers=2, vocab=16, positions='none')
  c.scaling.update({'mixers': ('identity',), 'lengths': (8, 32), 'devices': 2} | scaling)
  c.train.compile_cache = False
  return c


def test_what_would_take_too_long_or_too_much_is_not_run():
  known = [{'mixer': 'identity', 'kind': 'program', 'length': n, 'peak': 2**30} for n in (8, 32)]
  step = measure._Step(config(), 'identity', 32)
  found = measure._time(config(memory_gib=0.5), step, known)
  assert 'GiB, more than scaling.memory_gib=0.5' in found['skipped']
  known += [{'mixer': 'identity', 'kind': 'time', 'length': n, 'seconds': n**2} for n in (2, 4, 8)]
  found = measure._time(config(seconds=1000.0), step, known)
  assert found['skipped'].startswith('1,024 s by the law')


def test_a_job_goes_on_where_it_was(tmp_path, capsys):
  (tmp_path / 'c.py').write_text(
    'from tests.analysis.test_scaling import config\ndef get_config():\n  return config()\n'
  )
  flags = ['--job=scaling', f'--config={tmp_path}/c.py', f'--workdir={tmp_path}/w']
  assert main.main([*flags, '--config.scaling.lengths=(8,)']) == 0
  assert main.main(flags) == 0
  said = capsys.readouterr().out
  assert said.count('identity at 8: ') == 3  # once: a program, what it sends, a time
  assert said.count('identity at 32: ') == 2  # collectives are of every third length
  records = measure.read(tmp_path / 'w', config())
  by_kind = {
    k: {r['length'] for r in records if r['kind'] == k} for k in ('program', 'several', 'time')
  }
  assert by_kind == {'program': {8, 32}, 'several': {8}, 'time': {8, 32}}
  assert all(r['processor_seconds'] > 0 for r in records if r['kind'] == 'time')
  other = config()
  other.model.width = 32
  assert measure.read(tmp_path / 'w', other) == []
  assert '| identity |' in (tmp_path / 'w' / 'scaling.md').read_text()


def test_the_page_says_what_is_measured_and_what_the_law_says(tmp_path):
  records = []
  for mixer, power, last in (('softmax', 2, 16384), ('sgn-published', 1, 2**20)):
    for n in (4**k for k in range(4, 11)):
      r = {'mixer': mixer, 'length': n, 'leaky': mixer == 'sgn-published'}
      records.append(r | {'kind': 'program', 'peak': 1e4 * n**power, 'flops': 1e3 * n**power})
      records.append(r | {'kind': 'several', 'collectives': {'all-to-all': 8.0 * n}})
      took = (
        {'processor_seconds': 1e-7 * n**power}
        if n <= last
        else {'skipped': '1,000 GiB, more than 8'}
      )
      records.append(r | {'kind': 'time'} | took)
  (tmp_path / 'results').mkdir()
  page = write(config(), records, tmp_path / 'results' / 'p.md', tmp_path / 'pictures')
  text = page.read_text()
  assert '](../pictures/scaling_time.png)' in text
  assert '| softmax | 2.00 (2.00 to 2.00) | 16,384 | 26.8 | 109,951, by the law |' in text
  leaks = next(line for line in text.splitlines() if line.startswith('| sgn-published |'))
  assert (
    '| 1.00 (1.00 to 1.00) LEAKY | 1,048,576 LEAKY | 0.105 LEAKY | 0.105, measured LEAKY' in leaks
  )
  assert leaks.count('LEAKY') == 8
  assert 'softmax from 65,536 on (1,000 GiB, more than 8)' in text
  found = curves(records)
  ax = figure('t', 'y', found['seconds'], {'sgn-published'}, laws(found['seconds'])).axes[0]
  styles = [line.get_linestyle() for line in ax.lines]
  assert styles == ['-', ':', '-']  # softmax measured, softmax by the law, sgn measured
  assert [line.get_label().endswith('LEAKY') for line in ax.lines] == [False, False, True]


@pytest.mark.parametrize(
  ('changes', 'said'),
  [
    ({'mixers': ('sgm',)}, "did you mean 'sgn'"),
    ({'lengths': (1.5,)}, 'scaling.lengths'),
    ({'devices': 1}, 'scaling.devices'),
  ],
)
def test_what_is_refused(changes, said):
  with pytest.raises(UserError) as error:
    measure.check(config(**changes))
  assert said in str(error.value)
