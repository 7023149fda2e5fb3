"""What is read off an iterator of batches, and whether two are the same."""

import numpy as np


def take(iterator, count):
  return [next(iterator) for _ in range(count)]


def assert_same(a, b):
  """Lists and dicts of arrays, as deep as they are."""
  if isinstance(a, list):
    assert len(a) == len(b)
    for x, y in zip(a, b, strict=True):
      assert_same(x, y)
  elif isinstance(a, dict):
    assert a.keys() == b.keys()
    for key in a:
      assert_same(a[key], b[key])
  else:
    np.testing.assert_array_equal(a, b, strict=True)
