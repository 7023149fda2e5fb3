"""A trained model from wherever it was left."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
from ml_collections import ConfigDict

from sgnjax.decode.text import write
from sgnjax.errors import UserError, nearest_path
from sgnjax.export import weights
from sgnjax.models import DECODERS, Model, build, example
from sgnjax.train import checkpoint


class _Triple(NamedTuple):
  model: Model
  params: Any
  tokenizer: Any


class Loaded(_Triple):
  """`(model, params, tokenizer)`, with the config and the step that they are of.

  Logits are `model.apply({'params': params}, tokens_BL).y_BLD[..., : tokenizer.vocab_size]`.
  """

  config: ConfigDict
  step: int

  def write(self, prompt: str | Sequence[str], tokens: int = 200, **options) -> str | list[str]:
    """Continues a prompt, or each of several: the new text, without the prompt.

    options: as in `sgnjax.decode.text.write`. Left to itself it is greedy and soon repeats itself;
    `temperature=0.8` draws, as --job=sample does.

    Raises UserError as there, and of an encoder, which writes no text.
    """
    if self.config.data.task not in DECODERS:
      raise UserError(f'an encoder (data.task={self.config.data.task}) writes no text')
    alone = isinstance(prompt, str)
    prompts = [prompt] if alone else prompt
    texts = write(self.model, self.params, self.tokenizer, prompts, tokens, **options).texts
    return texts[0] if alone else texts


def load(path: str | Path, which: str | int = 'best') -> Loaded:
  """What a workdir, an export or a safetensors folder (or the file in it) holds.

  which: of a workdir, 'best' (by validation loss), 'latest' or a step; without checkpoints, the
  export in it is taken. Raises UserError where there is nothing to load, and where weights do not
  fit their config.
  """
  path = Path(path)
  folder = path.parent if path.suffix == '.safetensors' else path
  if not folder.exists():
    raise UserError(f"'{path}' does not exist{nearest_path(path)}")
  exported = next((f for f in (folder, folder / 'export') if (f / weights.WEIGHTS).is_file()), None)
  if exported == folder or (exported and not checkpoint.committed(folder)):
    config, params, tokenizer, step = weights.read(exported)
  elif checkpoint.committed(folder):
    config, params, tokenizer, step = checkpoint.load_params(folder, which)
  else:
    raise UserError(
      f"'{path}' holds neither checkpoints of a run nor {weights.WEIGHTS} of an export"
    )
  model = build(config, vocab=tokenizer.vocab_size)
  _check_fits(model, params, config, path)
  loaded = Loaded(model, params, tokenizer)
  loaded.config, loaded.step = config, step
  return loaded


def _check_fits(model: Model, params: Any, config: ConfigDict, path: Path) -> None:
  wanted = jax.eval_shape(model.init, jax.random.key(0), example(config))['params']
  given = weights.flat(params)
  for name, leaf in weights.flat(wanted).items():
    if name not in given:
      raise UserError(f"'{path}' has no parameter '{name}', which its config asks for")
    if tuple(given[name].shape) != leaf.shape:
      raise UserError(
        f"'{path}': parameter '{name}' is {tuple(given[name].shape)}, its config asks for "
        f'{leaf.shape}'
      )
