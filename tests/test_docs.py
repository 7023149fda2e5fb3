"""The page about the mechanisms names every variant, and only keys and pictures that exist."""

import re
from pathlib import Path

import pytest

from configs import base
from sgnjax.config import apply_override
from sgnjax.models.variants import VARIANTS

DOCS = Path(__file__).parent.parent / 'docs'
PAGE = (DOCS / 'mechanisms.md').read_text(encoding='utf-8')


def test_every_variant_is_in_a_table():
  cells = re.findall(r'^\| ([^|`]+) \|', PAGE, re.MULTILINE)
  named = {name.strip() for cell in cells for name in cell.split(',')}
  assert not set(VARIANTS) - named


def test_every_config_line_is_one():
  lines = re.findall(r'`([a-z_]+(?:\.[a-z_]+)?=[^` ]+)`', PAGE)
  assert len(lines) > 80
  for line in lines:
    config = base.get_config().unlock()
    config.model.unlock()
    apply_override(config, f'model.{line}')


@pytest.mark.parametrize('page', sorted(DOCS.glob('*.md')), ids=lambda page: page.name)
def test_links_lead_somewhere(page):
  for target in re.findall(r'\]\(([^)#]+)\)', page.read_text(encoding='utf-8')):
    assert (page.parent / target).exists(), target


def test_every_picture_of_the_gallery_is_shown():
  from sgnjax.analysis.gallery import DRAWN

  assert {draw.__name__ for draw in DRAWN} <= set(re.findall(r'pictures/(\w+)\.png', PAGE))
