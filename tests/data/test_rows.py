"""Rows: documents packed without touching, labels, and what an evaluation covers."""

import numpy as np
import pytest

from sgnjax.data import rows


def documents(lengths):
  """Tokens that tell document and place: 1000 d + place."""
  tokens = np.concatenate([1000 * d + np.arange(n) for d, n in enumerate(lengths, 1)])
  return tokens.astype(np.int32), np.cumsum(lengths)


LENGTHS = {
  'short': [3, 5, 2, 9, 4, 4, 7, 2, 3, 6, 8],
  'long': [30, 1, 17, 9, 2, 25, 10, 1, 3],
  'one': [40],
  'tiny': [1, 2, 1],
  'exact': [9, 9, 17, 8, 9],
  'random': np.random.default_rng(0).integers(1, 40, 300).tolist(),
}


@pytest.mark.parametrize('lengths', LENGTHS.values(), ids=LENGTHS)
def test_every_target_is_there_once_and_nothing_crosses(lengths):
  tokens, ends = documents(lengths)
  packed = rows.Packed(tokens, ends, 8)
  batch = packed.take(np.arange(len(packed)))
  scored = batch['targets'] != -1
  np.testing.assert_array_equal(scored, batch['mask'])
  np.testing.assert_array_equal(scored, batch['segments'] > 0)
  np.testing.assert_array_equal(batch['targets'][scored], batch['tokens'][scored] + 1)
  expected = np.concatenate([1000 * d + np.arange(1, n) for d, n in enumerate(lengths, 1)])
  assert sorted(batch['targets'][scored].tolist()) == expected.tolist()
  for key in ('tokens', 'segments', 'positions'):
    assert (batch[key][~scored] == 0).all()
    assert batch[key].dtype == np.int32
  for row in range(len(packed)):
    real = int(batch['mask'][row].sum())
    assert real > 0
    assert batch['mask'][row, :real].all()  # padding is on the right
    segments = batch['segments'][row, :real]
    assert segments[0] == 1
    assert set(np.diff(segments)) <= {0, 1}
    for segment in range(1, segments[-1] + 1):
      own = segments == segment
      assert len(set(batch['tokens'][row, :real][own] // 1000)) == 1
      np.testing.assert_array_equal(batch['positions'][row, :real][own], np.arange(own.sum()))


def test_a_document_that_fits_is_not_cut():
  tokens, ends = documents(LENGTHS['short'])
  packed = rows.Packed(tokens, ends, 8)
  batch = packed.take(np.arange(len(packed)))
  pieces = {(r, s) for r in range(len(packed)) for s in batch['segments'][r] if s}
  assert len(pieces) == len(LENGTHS['short'])
  assert len(packed) == -(-sum(n - 1 for n in LENGTHS['short']) // 8)  # 42 of 48 places


def test_packing_wastes_little():
  lengths = np.random.default_rng(1).integers(2, 400, 5000)
  _, length, first = rows.pack(np.cumsum(lengths) - lengths, lengths - 1, 256)
  assert length.sum() == (lengths - 1).sum()
  assert length.sum() / ((len(first) - 1) * 256) > 0.99


def test_labelled_documents_are_padded_or_cut():
  tokens, ends = documents([3, 20, 0, 8, 1])
  labels = np.array([1, 0, 2, 1, 0], np.int32)
  batch = rows.Labelled(tokens, ends, labels, 8).take(np.arange(5))
  assert batch['label'].tolist() == labels.tolist()
  assert batch['mask'].sum(axis=1).tolist() == [3, 8, 0, 8, 1]
  assert batch['tokens'][0].tolist() == [1000, 1001, 1002, 0, 0, 0, 0, 0]
  assert batch['tokens'][1].tolist() == list(range(2000, 2008))
  assert batch['tokens'][4].tolist() == [5000] + [0] * 7
  assert (batch['tokens'][~batch['mask']] == 0).all()


@pytest.mark.parametrize('kind', [np.int32, np.float32])
def test_rows_in_order_score_each_once(kind):
  tokens, ends = documents([3, 4, 5, 6, 7])
  labels = np.arange(5).astype(kind)
  found = rows.InOrder(rows.Labelled(tokens, ends, labels, 8), 3)
  batches = list(found)
  assert len(batches) == len(found) == 2
  assert all(batch['label'].shape == (3,) for batch in batches)
  seen = np.concatenate([batch['label'] for batch in batches])
  assert seen[:5].tolist() == labels.tolist()
  assert seen[5] == -1 if kind is np.int32 else np.isnan(seen[5])
  np.testing.assert_array_equal(batches[1]['tokens'][2], batches[1]['tokens'][1])
  packed = list(rows.InOrder(rows.Packed(tokens, ends, 8), 2))
  assert sum((batch['targets'] != -1).sum() for batch in packed) == 20


def test_windows_of_small_integers_are_widened():
  batch = rows.Windows(np.arange(60_000, 60_050, dtype=np.uint16), 8, 3).take(np.array([1]))
  assert batch['tokens'].dtype == batch['targets'].dtype == np.int32
  assert batch['tokens'][0, 0] == 60_003
