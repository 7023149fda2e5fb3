"""FLOPs that dispatch saves, by the formula and by XLA; the table of a small measurement."""

import json

import pytest

from sgnjax.analysis import dispatch, flops
from sgnjax.errors import UserError
from tests.analysis.test_flops import config_of


@pytest.mark.slow
@pytest.mark.parametrize('kv', ['all', 'routed'])
def test_compiled_flops_fall_as_the_formula_says(kv):
  found = {}
  for name, config in dispatch.kinds(config_of('chiar'), (0.5, 0.25)).items():
    if name.startswith(('dense', kv)):
      twin = flops.counting_twin(config)
      shape = {'batch': 2, 'length': twin.model.context}
      ours = sum(flops.flops(twin, **shape, training=True).values())
      found[name] = ours, flops.xla_flops(twin, **shape, gradient=True)
  ours_dense, theirs_dense = found.pop('dense')
  assert len(found) == 2
  for ours, theirs in found.values():
    assert ours == pytest.approx(theirs, rel=0.02)
    assert ours_dense - ours == pytest.approx(theirs_dense - theirs, rel=0.03)


def test_projections_scores_and_values_follow_the_capacity_by_hand():
  kinds = dispatch.kinds(config_of('chiar', layers=3), (0.5,))
  terms = {name: flops.flops(c, batch=1, length=256) for name, c in kinds.items()}
  # One layer of three is routed, and the last attends with every token.
  for kv, scores, projections in (('all', 0.5, (0.5 + 2) / 3), ('routed', 0.25, 0.5)):
    for term, share in (('scores', scores), ('q, k, v projections', projections)):
      kept = terms[f'{kv} 50%'][term] / (terms['dense'][term] / 2) - 1
      assert kept == pytest.approx(share)


@pytest.mark.slow
def test_a_small_measurement_and_its_table():
  config = config_of('chiar', width=32, heads=2, vocab=64, layers=1, stack=(('chiar', 1),))
  found = dispatch.measure(config, capacities=(0.25,), length=128, repeats=1)
  assert list(found['rows']) == ['dense', 'all 25%', 'routed 25%']
  saved = [found['rows'][name]['analytic'] for name in ('all 25%', 'routed 25%')]
  assert 0 < saved[0] < saved[1] < 1
  text = dispatch.table(json.loads(json.dumps(found)))
  assert '| routed 25% |' in text
  assert 'batch 1 x 128 tokens' in text
  with pytest.raises(UserError, match='softmax'):
    dispatch.kinds(config_of('softmax'), (0.5,))
