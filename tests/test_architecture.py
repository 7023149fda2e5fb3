"""Who may import whom, and what the command line may not wait for."""

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import setuptools

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / 'sgnjax'
EVERYONE = {'errors', 'config', 'grid', 'called', 'machine'}
MAY = {
  'ops': set(),
  'parallel': set(),
  'data': set(),
  'mixers': {'ops', 'parallel'},
  'models': {'mixers', 'ops', 'parallel'},
  'audit': {'models', 'mixers', 'ops'},
  'train': {'models', 'data', 'parallel', 'audit'},
  'decode': {'models', 'data', 'audit', 'train.checkpoint'},
}
MAY['export'] = {'models', 'mixers', 'ops', 'data', 'audit', 'train', 'decode'}
MAY['analysis'] = {'models', 'mixers', 'ops', 'parallel', 'data', 'audit', 'train', 'decode'}
MAY['jobs'] = MAY['analysis'] | {'analysis', 'export'}


def ours(path: Path):
  """Dotted names below `sgnjax` that a file imports."""
  for node in ast.walk(ast.parse(path.read_text())):
    if isinstance(node, ast.Import):
      names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom) and node.module:
      names = [f'{node.module}.{alias.name}' for alias in node.names]
    else:
      continue
    for name in names:
      if name.split('.')[0] in ('sgnjax', 'launch', 'configs', 'tests'):
        yield name


@pytest.mark.parametrize('folder', MAY)
def test_imports_go_one_way(folder):
  for path in (PACKAGE / folder).rglob('*.py'):
    for name in ours(path):
      assert name.startswith('sgnjax.'), f'{path} imports {name}'
      target = name.removeprefix('sgnjax.')
      allowed = EVERYONE | {folder} | MAY[folder]
      assert any((target + '.').startswith(f'{a}.') for a in allowed), f'{path} imports {name}'


def test_every_folder_is_ruled():
  folders = {p.name for p in PACKAGE.iterdir() if p.is_dir() and p.name != '__pycache__'}
  assert folders == set(MAY)


def test_configs_import_ml_collections_alone():
  for path in (PACKAGE.parent / 'configs').glob('*.py'):
    for node in ast.walk(ast.parse(path.read_text())):
      if isinstance(node, ast.ImportFrom):
        assert node.module in ('ml_collections', 'configs'), f'{path} imports {node.module}'
      assert not isinstance(node, ast.Import), path


def test_the_command_line_answers_before_jax_is_imported():
  code = (
    "import sys; sys.argv[0] = 'launch/main.py'; from launch import main;"
    "status = main.main(['--config=configs/quickstart.py', '--config.model.widht=3']);"
    "heavy = {'jax', 'tensorflow', 'matplotlib', 'orbax'} & set(sys.modules);"
    'sys.exit(f"{status} {heavy}" if status != 2 or heavy else 0)'
  )
  done = subprocess.run(
    [sys.executable, '-c', code], cwd=PACKAGE.parent, capture_output=True, text=True, check=False
  )
  assert done.returncode == 0, done.stderr
  assert "did you mean 'model.width'?" in done.stderr


def test_a_wheel_holds_every_package():
  told = tomllib.loads((ROOT / 'pyproject.toml').read_text())['tool']['setuptools']
  found = setuptools.find_packages(str(ROOT), include=['sgnjax*'])
  assert told['packages'] == sorted([*found, *told['package-dir']])
