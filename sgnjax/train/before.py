"""What must hold before a run begins or goes on."""

import os
from pathlib import Path

import jax
from ml_collections import ConfigDict

from sgnjax import config as config_lib
from sgnjax.errors import UserError
from sgnjax.train.checkpoint import committed
from sgnjax.train.evaluation import check_eval


def check_settings(config: ConfigDict) -> None:
  """Raises UserError for settings of the loop that cannot be."""
  for key in ('log_every', 'eval_every', 'checkpoint_every'):
    if config.train[key] < 1:
      raise UserError(f'train.{key}={config.train[key]}: expected at least 1')
  if config.train.wall_minutes is not None and config.train.wall_minutes <= 0:
    raise UserError(
      f'train.wall_minutes={config.train.wall_minutes}: expected more than 0, or none'
    )
  if not 0 <= config.train.ema < 1:
    raise UserError(f'train.ema={config.train.ema}: expected 0 (none) or more and less than 1')
  check_eval(config)


def use_compile_cache() -> None:
  """Keeps compiled programs in the user's cache folder, unless JAX was given another.

  Those that take a tenth of a second too, not only those of a second and more: a start has dozens.
  """
  if jax.config.jax_compilation_cache_dir is None:
    root = Path(os.environ.get('XDG_CACHE_HOME') or Path.home() / '.cache')
    jax.config.update('jax_compilation_cache_dir', str(root / 'sgnjax' / 'compiled'))
  if 'JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS' not in os.environ:
    jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.1)


def check_same_run(config: ConfigDict, workdir: Path) -> None:
  """Raises UserError where the workdir holds another run."""
  path = workdir / 'config.json'
  if not path.exists():
    if committed(workdir):
      raise UserError(
        f"workdir '{workdir}' has checkpoints but no config.json; use another --workdir"
      )
    return
  changed = config_lib.differences(config_lib.stored(workdir), config, config_lib.RESUME_FREE)
  if changed and committed(workdir):  # a run that left no checkpoint may be begun anew
    shown = ', '.join(changed[:5]) + (f' and {len(changed) - 5} more' if len(changed) > 5 else '')
    raise UserError(
      f"workdir '{workdir}' holds a run of another config ({shown})\n"
      'use another --workdir=DIR for this one, or give the old values to resume'
    )
