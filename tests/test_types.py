"""The public API as a type checker sees it from outside: what is wrong is told, and no more."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
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


def checked(text: str, folder: Path) -> list[str]:
  """Lines of the type checker about a file that uses sgnjax; it looks into nothing else."""
  (folder / 'user.py').write_text(text)
  (folder / 'mypy.ini').write_text(
    '[mypy]\nfollow_imports = skip\nignore_missing_imports = True\n'
    '[mypy-sgnjax,sgnjax.*]\nfollow_imports = silent\n'
  )
  words = [sys.executable, '-m', 'mypy', '--no-incremental', '--config-file', 'mypy.ini', 'user.py']
  done = subprocess.run(
    words, cwd=folder, env={'MYPYPATH': str(ROOT)}, capture_output=True, text=True
  )
  assert done.returncode in (0, 1), done.stderr
  return [line for line in done.stdout.splitlines() if line.startswith('user.py')]


@pytest.mark.slow
def test_what_a_type_checker_says(tmp_path):
  wrong = 'import sgnjax\n' + '\n'.join(WRONG)
  assert checked(RIGHT, tmp_path) == []
  told = checked(wrong, tmp_path)
  assert len(told) == len(WRONG), told
  for line, said in zip(told, WRONG.values(), strict=True):
    assert said in line
