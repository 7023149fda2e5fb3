"""Nothing crosses a segment, or segments are refused by name."""

import numpy as np

from tests.theorems.instances import N, asked, every_variant, inputs, instance


@every_variant
def test_nothing_crosses_a_segment_or_segments_are_refused_by_name(name, record_property):
  """Three rows: two documents packed, and each of them alone."""
  mixer, first_LD, second_LD = instance(name), *inputs(2, 11)
  second_LD, rest_LD = second_LD[:7], inputs(1, N, seed=3)[0]
  rows = (np.concatenate(r)[:N] for r in ((first_LD, second_LD, rest_LD),
                                          (first_LD, rest_LD), (second_LD, rest_LD)))  # fmt: skip
  x_BLD, at_L = np.stack(list(rows)), np.arange(N, dtype=np.int32)
  call = {
    'mask_BL': at_L[None, :] < np.asarray([18, 11, 7])[:, None],
    'segments_BL': np.stack([at_L >= 11, at_L < 0, at_L < 0]).astype(np.int32),
    'positions_BL': np.stack([np.where(at_L < 11, at_L, at_L - 11), at_L, at_L]).astype(np.int32),
  }
  y_BLD, said = asked(mixer, x_BLD, **call)
  if said:
    assert f"mixer '{mixer.module.label}'" in said
    assert 'segments' in said or 'padding mask' in said
    record_property('cell', 'refused')
    return
  np.testing.assert_allclose(y_BLD[0, :11], y_BLD[1, :11], rtol=1e-12, atol=1e-12)
  np.testing.assert_allclose(y_BLD[0, 11:18], y_BLD[2, :7], rtol=1e-12, atol=1e-12)
