"""The page about the mechanisms names every variant, and only keys and pictures that exist."""

import re
import shlex
from pathlib import Path

import pytest

from configs import base
from launch import main
from sgnjax.config import apply_override, leaves, load
from sgnjax.models.variants import VARIANTS

ROOT = Path(__file__).parent.parent
DOCS = ROOT / 'docs'
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


def test_the_reference_of_keys_is_the_config():
  from sgnjax.analysis import config_page

  said = dict(config_page.keys(config_page.BASE.read_text(encoding='utf-8')))
  assert set(said) == set(leaves(base.get_config()))
  written = (DOCS / 'config.md').read_text(encoding='utf-8')
  assert written == config_page.page(), 'python -m sgnjax.analysis.config_page docs/config.md'


def test_every_set_is_in_the_page_of_data():
  from sgnjax.data import sources

  page = (DOCS / 'data.md').read_text(encoding='utf-8')
  for name in sources.names():
    group, _, part = name.rpartition('/')
    told = f'{group}/TASK' if group.endswith('glue') else name
    assert f'`{told}`' in page or part in page, name


def commands():
  """Every command of a page that starts a job, with the values that stand for a reader's own."""
  for page in [ROOT / 'README.md', *sorted(DOCS.rglob('*.md'))]:
    text = page.read_text(encoding='utf-8').replace('\\\n', ' ')
    for found in re.findall(r'launch/main\.py +(--[^`#\n]*)', text):
      if '...' not in found and '$' not in found and found.strip() != '--help':
        yield page.name, found.strip()


@pytest.mark.parametrize(('page', 'command'), sorted(set(commands())))
def test_every_command_names_a_job_and_keys_that_there_are(page, command, monkeypatch):
  monkeypatch.chdir(ROOT)
  unquoted = r"[|;&>)](?=(?:[^']*'[^']*')*[^']*$)| --workdir=DIR"  # a command ends there
  flags, overrides = main.parse(shlex.split(re.split(unquoted, command)[0]))
  if flags.config and '/' in flags.config and (ROOT / flags.config).suffix == '.py':
    load(flags.config, [key for key in overrides if not re.search('=[A-Z_]+$', key)])
  for key in overrides:
    assert key.partition('=')[0] in set(leaves(base.get_config())), key
