"""The trained model of a workdir, for the jobs that use it as it is."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from sgnjax import config as config_lib
from sgnjax.errors import UserError
from sgnjax.models import build
from sgnjax.models.decoder import Decoder
from sgnjax.train.checkpoint import load_params


def language_model(config: ConfigDict, workdir: Path, verb: str) -> tuple[Decoder, Any, Any, int]:
  """`(model, params, tokenizer, step)` of the best checkpoint.

  Raises UserError where it is an encoder, or another model than the config's.
  """
  trained, params, tokenizer, step = load_params(workdir)
  if trained.data.task != 'lm':
    raise UserError(
      f"workdir '{workdir}' writes no text and gives none a probability: it is of "
      f'data.task={trained.data.task}'
    )
  check_same_model(workdir, trained, config, verb)
  return build(config, vocab=tokenizer.vocab_size), params, tokenizer, step


def check_same_model(
  workdir: Path,
  trained: ConfigDict,
  config: ConfigDict,
  verb: str,
  free: Sequence[str] = ('model.classes',),  # which the data say
) -> None:
  """Raises UserError where the config names another model than the workdir holds."""
  old, new = ({'model': c.model.to_dict()} for c in (trained, config))
  changed = config_lib.differences(old, new, free)
  if changed:
    raise UserError(
      f"workdir '{workdir}' was trained with another model ({', '.join(changed[:5])}); leave out "
      f'--config to {verb} the one that it holds'
    )
