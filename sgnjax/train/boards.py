"""Where numbers are shown beside metrics.jsonl: TensorBoard, and Weights & Biases where asked for.

A run is never worse for a board: what goes wrong with Weights & Biases is said once, and training
goes on without it.
"""

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from sgnjax import config as config_lib
from sgnjax.train.log import TensorBoard, mark

PATIENCE = 30.0  # seconds to begin and to end


class Boards:
  """All that there are of a run, as one."""

  def __init__(self, config: ConfigDict, workdir: Path, step: int, *, leaky: bool = False):
    self._boards: list[Any] = [TensorBoard(workdir, step, leaky=leaky)]
    if config.train.wandb is not None:
      self._boards.append(WeightsAndBiases(config, workdir, leaky=leaky))

  def write(self, step: int, group: str, values: dict[str, float]) -> None:
    """Adds each value under `group/key` at `step`."""
    for board in self._boards:
      board.write(step, group, values)

  def close(self) -> None:
    for board in self._boards:
      board.close()


class WeightsAndBiases:
  """A run of Weights & Biases, whose id follows from config and workdir, so that it is resumed.

  Without a key (WANDB_API_KEY, or a login) it is kept offline under `workdir/wandb`, for
  `wandb sync`; WANDB_MODE says otherwise.
  """

  def __init__(self, config: ConfigDict, workdir: Path, *, leaky: bool):
    self._suffix, self._run = mark(leaky), None
    self._try('begin', lambda: self._begin(config, workdir, leaky))

  def _begin(self, config: ConfigDict, workdir: Path, leaky: bool) -> None:
    import wandb

    name = workdir.resolve().name
    self._run = wandb.init(
      project=config.train.wandb,
      dir=str(workdir),
      name=f'{name}{self._suffix}',
      id=f'{name}-{config_lib.fingerprint(config)}',
      resume='allow',
      config=config_lib.flat(config),
      tags=['LEAKY'] if leaky else None,
      mode=os.environ.get('WANDB_MODE') or ('online' if _has_key() else 'offline'),
      settings=wandb.Settings(init_timeout=PATIENCE, silent=True),
    )

  def write(self, step: int, group: str, values: dict[str, float]) -> None:
    if self._run is not None:
      told = {f'{group}/{key}{self._suffix}': value for key, value in values.items()}
      self._try('be told', lambda: self._run.log(told, step=step))

  def close(self) -> None:
    """Waits for what is still to be sent, and no longer than PATIENCE."""
    run, self._run = self._run, None
    if run is not None:
      ending = threading.Thread(target=lambda: self._try('end', run.finish), daemon=True)
      ending.start()
      ending.join(PATIENCE)

  def _try(self, what: str, call: Callable[[], Any]) -> None:
    try:
      call()
    except Exception as error:  # any library's, of any kind: the run is worth more
      self._run = None
      reason = (str(error) or type(error).__name__).splitlines()[0]
      print(f'Weights & Biases could not {what}, and is left out: {reason}', flush=True)


def _has_key() -> bool:
  if os.environ.get('WANDB_API_KEY'):
    return True
  netrc = Path(os.environ.get('NETRC') or Path.home() / '.netrc')
  try:
    return any(host in netrc.read_text() for host in ('wandb.ai', 'coreweave.com'))
  except OSError:
    return False
