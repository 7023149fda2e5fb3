"""The learning rate range test: a short run whose rate grows, and what the loss makes of it.

Source: Smith 2017, Cyclical Learning Rates, section 3.3; here the rate grows geometrically. The
workdir gets `lr_range.json` and `lr_range.png`; a run that it holds is left as it is.
"""

import json
import math
from pathlib import Path

import jax
import numpy as np
from ml_collections import ConfigDict

from sgnjax import audit
from sgnjax import config as config_lib
from sgnjax.analysis.plots.rates import lr_range
from sgnjax.analysis.plots.style import save
from sgnjax.errors import UserError
from sgnjax.parallel import feed
from sgnjax.parallel.mesh import make_mesh, row_shards
from sgnjax.train import state as state_lib
from sgnjax.train import tasks
from sgnjax.train.log import check_writable, mark, write_atomically
from sgnjax.train.model import model_of
from sgnjax.train.optim import make_optimiser
from sgnjax.train.step import check_batch, make_train_step

SMOOTHING = 0.9  # of the loss, with its start corrected
DIVERGED = 2.0  # times the lowest smoothed loss: there it ends


def run(config: ConfigDict, workdir: Path) -> int:
  """Trains, draws and says which rate looks good. Raises UserError."""
  r = config.lr_range
  low, high, steps = r.low, r.high, r.steps
  if not 0 < low < high:
    raise UserError(f'lr_range.low={low:g} and lr_range.high={high:g}: expected 0 < low < high')
  if steps < 10:
    raise UserError(f'lr_range.steps={steps}: expected at least 10')
  workdir = Path(workdir)
  check_writable(workdir)
  rates, losses, leaky = _train(config)
  smooth = smoothed(losses)
  good = suggestion(rates, smooth)
  found = {
    'rates': rates,
    'losses': losses,
    'smoothed': smooth,
    'suggestion': good,
    'batch': config.train.batch,
    'config_hash': config_lib.fingerprint(config),
  } | ({'leaky': True} if leaky else {})
  write_atomically(workdir / 'lr_range.json', json.dumps(found, indent=2) + '\n')
  picture = save(
    lr_range(rates, losses, smooth, good, config.optim.lr, leaky=leaky), workdir / 'lr_range.png'
  )
  ended = 'to its end' if len(rates) == steps else f'until the loss diverged at {rates[-1]:.1e}'
  print(f'{len(rates)} steps from {low:g}, {ended}: {picture}')
  said = mark(leaky)
  if good is None:
    print(f'no rate made the loss fall{said}: try a lower lr_range.low or more lr_range.steps')
  else:
    print(
      f'the loss falls fastest at {good:.1e}{said}, and is lowest at '
      f'{rates[int(np.argmin(smooth))]:.1e}{said}; optim.lr is {config.optim.lr:.1e}'
    )
  return 0


def _train(config: ConfigDict) -> tuple[list[float], list[float], bool]:
  """Rates and losses of the steps until the end or until it diverges, and whether it is leaky."""
  r = config.lr_range
  growth = (r.high / r.low) ** (1 / (r.steps - 1))
  mesh = make_mesh(config)
  check_batch(config, row_shards(mesh))
  optimiser = make_optimiser(config, lambda step: r.low * growth**step)
  sets = tasks.load(config)
  model = model_of(sets)
  leaky = audit.gate(config, vocab=model.vocab).leaky
  state = state_lib.create(config, model, optimiser, mesh)
  step = make_train_step(model, optimiser, config, mesh, sets)
  batches = tasks.batches(config, sets, feed.rows(mesh, config.train.batch))
  rates, losses = [], []
  for number in range(r.steps):
    state, metrics = step(state, tasks.place(next(batches), sets, mesh))
    loss = float(jax.device_get(metrics['loss']))
    if not math.isfinite(loss):
      break
    rates.append(r.low * growth**number)
    losses.append(loss)
    smooth = smoothed(losses)
    if smooth[-1] > DIVERGED * min(smooth):
      break
  if len(losses) < 3:
    raise UserError(f'the loss is not finite from the start (lr_range.low={r.low:g})')
  return rates, losses, leaky


def smoothed(losses: list[float]) -> list[float]:
  """Exponential moving average, unbiased at its start."""
  mean, found = 0.0, []
  for count, loss in enumerate(losses, 1):
    mean = SMOOTHING * mean + (1 - SMOOTHING) * loss
    found.append(mean / (1 - SMOOTHING**count))
  return found


def suggestion(rates: list[float], smooth: list[float]) -> float | None:
  """The rate at which the smoothed loss falls fastest over the logarithm; None: it never falls."""
  slopes = np.gradient(np.asarray(smooth), np.log(rates))
  steepest = int(np.argmin(slopes[: int(np.argmin(smooth)) + 1]))
  return rates[steepest] if slopes[steepest] < 0 else None
