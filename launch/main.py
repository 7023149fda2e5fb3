"""Runs one job of sgnjax: `python launch/main.py --config=configs/quickstart.py [--job=train]`."""

import argparse
import importlib
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if (ROOT / 'sgnjax').is_dir():  # a checkout, installed or not
  sys.path.insert(0, str(ROOT))

try:
  from sgnjax import config as config_lib
  from sgnjax import grid
  from sgnjax.errors import LeakError, UserError, nearest
  from sgnjax.jobs import ALONE, JOBS, OWN_CONFIG, TOGETHER
  from sgnjax.memory import keep_freed
  from sgnjax.parallel import hosts
except ModuleNotFoundError as error:  # another Python than that of the environment
  if __name__ != '__main__':
    raise
  print(
    f'error: {error.name} is not installed for {sys.executable}: activate the environment that '
    'sgnjax is installed in (. .venv/bin/activate), or install it as README.md says',
    file=sys.stderr,
  )
  sys.exit(2)

SHORT = {'--claims': 'reproduce.claims', '--budget': 'reproduce.budget'}


def parse(argv: list[str]) -> tuple[argparse.Namespace, list[str]]:
  """The flags, with `runs` those of job compare, and the `key=value` overrides of the config."""
  jobs = '\n'.join(f'  {name:<10} {what}' for name, what in JOBS.items())
  parser = argparse.ArgumentParser(
    prog='python launch/main.py',
    description='Train and study spectral sequence models.',
    epilog=f'jobs:\n{jobs}\n\nany key of configs/base.py: --config.train.steps=1000',
    formatter_class=argparse.RawDescriptionHelpFormatter,
    allow_abbrev=False,
  )
  parser.add_argument('--config', help='a config file; left out: the config stored in the workdir')
  parser.add_argument('--workdir', help='where the run lives (default: runs/<config name>)')
  parser.add_argument('--job', default='train', help='what to do (default: train)')
  parser.add_argument(
    '--only', default='', help='job sweep: places on its axes, as sgn,seed-0,seed-1'
  )
  flags, rest = parser.parse_known_args(argv)
  overrides, flags.runs = [], []
  rest = iter(rest)
  for flag in rest:
    if flags.job == 'compare' and not flag.startswith('-'):
      flags.runs.append(flag)
      continue
    name, equals, value = flag.partition('=')
    flag = f'--config.{SHORT[name]}{equals}{value}' if name in SHORT else flag
    if not flag.startswith('--config.'):
      known = ['--config', '--workdir', '--job', '--only', *SHORT]
      hint = key_of(name.lstrip('-')) or nearest(flag, known)
      raise UserError(f"argument '{flag}' is not known{hint}")
    if '=' not in flag:
      flag = f'{flag}={next(rest, "")}'
    overrides.append(flag.removeprefix('--config.'))
  if flags.job not in JOBS:
    raise UserError(f"job '{flags.job}' is not known{nearest(flags.job, JOBS)}")
  if flags.only and flags.job != 'sweep':
    raise UserError('--only chooses points of a sweep: write --job=sweep')
  return flags, overrides


def key_of(name: str) -> str:
  """The end of an error message where a flag is a key of the config, or its last part; or ''."""
  keys = config_lib.leaves(config_lib.load(config_lib.CONFIGS / 'base.py'))
  found = [key for key in keys if key == name or key.endswith(f'.{name}')]
  found.sort(key=lambda key: not key.startswith('train.'))
  return f"; did you mean '--config.{found[0]}'?" if found else ''


def find_config(flags: argparse.Namespace, overrides: list[str]):
  """The config (of a sweep all of them), from its file or from the workdir, and the workdir."""
  if flags.job in OWN_CONFIG and not flags.config:
    config = config_lib.load(config_lib.CONFIGS / 'base.py', overrides)
    return config, Path(flags.workdir or f'runs/{flags.job}')
  if flags.config:
    workdir = Path(flags.workdir or f'runs/{Path(flags.config).stem}')
    if flags.job == 'sweep':
      return grid.load(flags.config, overrides, [w for w in flags.only.split(',') if w]), workdir
    return config_lib.load(flags.config, overrides), workdir
  if flags.job == 'sweep':
    raise UserError('a sweep is named by its config: write --config=FILE')
  if not flags.workdir:
    raise UserError('no config: write --config=configs/quickstart.py (--job=list shows them all)')
  return config_lib.stored(flags.workdir, overrides), Path(flags.workdir)


def main(argv: list[str] | None = None) -> int:
  if argv is None:  # a process of its own, before anything starts threads
    keep_freed()
  try:
    flags, overrides = parse(sys.argv[1:] if argv is None else argv)
    if flags.job in ALONE or (flags.job == 'doctor' and not (flags.config or flags.workdir)):
      config, workdir = None, None
    else:
      config, workdir = find_config(flags, overrides)
    module = f'sgnjax.jobs.{flags.job}'
    if flags.job in TOGETHER:
      with hosts.connected(config.hosts):
        return importlib.import_module(module).run(config, workdir)
    if flags.job == 'compare':
      return importlib.import_module(module).run(flags.runs, Path(flags.workdir or 'runs/compare'))
    if config is not None:
      hosts.check_alone(flags.job, config.base.hosts if flags.job == 'sweep' else config.hosts)
    return importlib.import_module(module).run(config, workdir)
  except UserError as error:
    print(f'error: {error}', file=sys.stderr)
    return hosts.leave(3 if isinstance(error, LeakError) else 2)
  except KeyboardInterrupt:  # training hears it itself, and saves
    print('interrupted', file=sys.stderr)
    return 130
  except BrokenPipeError:  # the reader of a pipe left
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1


if __name__ == '__main__':
  sys.exit(main())
