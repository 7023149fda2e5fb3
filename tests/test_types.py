"""The API as a type checker sees it from outside: what is wrong is told, and no more."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / 'colab').glob('*.py'))
RIGHT = """
import sgnjax

run = sgnjax.train('configs/quickstart.py', workdir='runs/a')
step: int = run.step
path: str = str(run.report())
text: str = run.write('The ', 20, temperature=0.0)
model, params, tokenizer = sgnjax.load(run.workdir, 'latest')
leaky: bool = sgnjax.audit(lambda tokens: tokens, vocab=7, length=10).leaky
line: str = sgnjax.audit(model, params).verdict()

@sgnjax.register('mine')
def mine(x_BLD):
  return x_BLD

version: str = sgnjax.__version__
"""
WRONG = {
  'sgnjax.train()': 'Missing positional argument "config" in call to "train"',
  "sgnjax.train('a.py').steps": '"Run" has no attribute "steps"',
  "sgnjax.load('runs/a', which=1.5)": 'Argument "which" to "load"',
  "sgnjax.load('runs/a').weights": '"Loaded" has no attribute "weights"',
  "sgnjax.audit(len, vocab='7')": 'Argument "vocab" to "audit"',
  'sgnjax.audit(len, vocab=7).leak': '"Report" has no attribute "leak"',
  "sgnjax.sample('runs/a')": 'Module has no attribute "sample"',
}


def checked(folder: Path, *files: Path) -> list[str]:
  """Lines of the type checker about files that use sgnjax; it looks into nothing else."""
  (folder / 'mypy.ini').write_text(
    '[mypy]\nfollow_imports = skip\nignore_missing_imports = True\n'
    '[mypy-sgnjax,sgnjax.*]\nfollow_imports = silent\n'
  )
  words = [sys.executable, '-m', 'mypy', '--no-incremental', '--config-file', 'mypy.ini']
  words += map(str, files)
  done = subprocess.run(
    words, cwd=folder, env={'MYPYPATH': str(ROOT)}, capture_output=True, text=True
  )
  assert done.returncode in (0, 1), done.stderr + done.stdout
  names = {file.name for file in files}
  return [line for line in done.stdout.splitlines() if Path(line.split(':')[0]).name in names]


@pytest.mark.slow
def test_what_a_type_checker_says(tmp_path):
  right, wrong = tmp_path / 'right.py', tmp_path / 'wrong.py'
  right.write_text(RIGHT)
  wrong.write_text('import sgnjax\n' + '\n'.join(WRONG))
  assert checked(tmp_path, right) == []
  told = checked(tmp_path, wrong)
  assert len(told) == len(WRONG), told
  for line, said in zip(told, WRONG.values(), strict=True):
    assert said in line


@pytest.mark.slow
def test_what_the_notebooks_name_is_there(tmp_path):
  """They are run rarely, and use more of the package than its public names."""
  copies = []
  for number, path in enumerate(NOTEBOOKS):
    copies.append(tmp_path / f'notebook_{number}.py')
    copies[-1].write_text(path.read_text())
  missing = ('[attr-defined]', '[call-arg]', '[name-defined]')
  assert [line for line in checked(tmp_path, *copies) if line.endswith(missing)] == []
