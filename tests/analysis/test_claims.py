"""What two papers say they save: parts of the page against numbers known by hand."""

import re

from sgnjax import config as config_lib
from sgnjax.analysis.claims.lab import PATHS
from sgnjax.analysis.flops import claims


def test_attention_is_36_percent_of_a_block_of_chiar():
  text = '\n'.join(claims.chiar())
  share = float(re.search(r'attention is ([\d.]+)%', text)[1])
  assert 35.5 < share < 36.5
  # By hand, a token: projections 4 D^2, scores and values 2 L D, in multiply-adds.
  projections = 4 * 1024**2 / (4 * 1024**2 + 2 * 256 * 1024)
  said = float(re.search(r'projections are ([\d.]+)%', text)[1]) / 100
  assert abs(said - projections) < 0.02


def test_savings_leave_out_what_both_have():
  of, against = {'ffn': 4.0, 'head': 6.0}, {'ffn': 4.0, 'scores': 4.0, 'head': 6.0}
  assert claims.saving(of, against) == 4 / 14
  assert claims.saving(of, against, ('head',)) == 0.5


def test_the_part_about_sgn_names_every_term():
  text = '\n'.join(claims.sgn())
  for term in ('scores', 'weighted values', 'q, k, v projections', 'ffn products', 'head'):
    assert f'| {term} |' in text
  assert re.search(r'layers of the published SGN need [\d.]+% fewer', text)


def test_sets_that_lie_in_the_folder_of_real_data_go_by_the_names_that_configs_give():
  named = {config_lib.load(path).data.name for path in config_lib.CONFIGS.glob('[!_]*.py')}
  assert set(PATHS) <= named
