"""The table of what a token costs, at a tiny size."""

from configs import base
from sgnjax.analysis import decoding


def test_a_small_measurement_and_its_table(monkeypatch):
  kinds = {name: decoding.KINDS[name] for name in ('softmax', decoding.WHOLE)}
  monkeypatch.setattr(decoding, 'KINDS', kinds)
  config = base.get_config().unlock()
  config.model.update(layers=1, width=8, heads=2, vocab=5)
  config.train.batch = 2
  found = list(decoding.measure(config, (8,), steps=4, repeats=1))
  assert [(kind, context, timed.steps) for kind, context, timed in found] == [
    ('softmax', 8, 4),
    (decoding.WHOLE, 8, 8),
  ]
  softmax, blocked = (timed for _, _, timed in found)
  assert softmax.worst is None
  assert blocked.worst > 0
  # 8 slots of 2 rows: keys and values of width 8, segments; lengths, and the decoder's counts.
  assert softmax.cache_bytes == 2 * (8 * (16 * 4 + 4) + 4) + 2 * 4
  head, line, *rows = decoding.table(iter(found), 2)
  assert len(rows) == 2
  assert all(row.count('|') == head.count('|') == line.count('|') for row in rows)
