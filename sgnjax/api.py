"""What `import sgnjax` offers in Python: `train`, `load`, `audit`, and the runs they are about."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ml_collections import ConfigDict

from sgnjax import config as config_lib
from sgnjax.errors import UserError

if TYPE_CHECKING:
  from sgnjax.audit import Report
  from sgnjax.export.load import Loaded


@dataclasses.dataclass(frozen=True)
class Run:
  """A training run and where it lives.

  status: 'finished', 'wall time', or the signal that ended it ('SIGINT'); `sgnjax.train` with the
  same config goes on. final: the evaluation that counts, None before the first. leaky: it sees the
  future, and was allowed to.
  """

  config: ConfigDict
  workdir: Path
  status: str
  step: int
  leaky: bool
  final: dict[str, Any] | None

  def load(self) -> 'Loaded':
    """`(model, params, tokenizer)` of the best checkpoint (see `sgnjax.load`)."""
    return load(self.workdir)

  def records(self) -> list[dict[str, Any]]:
    """What it logged: the lines of metrics.jsonl."""
    from sgnjax.train.log import read_records

    return read_records(self.workdir)

  def write(self, prompt: str, tokens: int = 200, **options: Any) -> str:
    """A continuation of a prompt, greedy without `temperature=`; see `sgnjax.decode.text.write`."""
    return self.load().write(prompt, tokens, **options)

  def report(self) -> Path:
    """Writes report.html into the workdir; its path."""
    from sgnjax.analysis.report import report

    return report(self.workdir)


def train(config: ConfigDict | str | Path, workdir: str | Path | None = None) -> Run:
  """Trains a config, or goes on with what the workdir holds of it.

  config: a ConfigDict, or the path of a config file. workdir: None is `runs/<name of the file>`, or
  `runs/<mixer>-<fingerprint>` of a ConfigDict, so that the same config goes on.

  Raises UserError and LeakError as `sgnjax.train.loop.train`.
  """
  from sgnjax.train.loop import train

  if isinstance(config, str | Path):
    workdir = workdir or Path('runs') / Path(config).stem
    config = config_lib.load(config)
  if not isinstance(config, ConfigDict):
    raise UserError(
      f'a config is a ConfigDict or the path of a config file, not {type(config).__name__}; '
      "configs.base.get_config() is one, and sgnjax.config.load('configs/quickstart.py', "
      "['train.steps=100'])"
    )
  if workdir is None:
    workdir = Path('runs') / f'{config.model.mixer}-{config_lib.fingerprint(config)}'
  found = train(config, workdir)
  facts = {key: found[key] for key in ('status', 'step', 'leaky', 'final')}
  return Run(config, Path(workdir), **facts)


def load(path: str | Path, which: str | int = 'best') -> 'Loaded':
  """`(model, params, tokenizer)` of a run's workdir, an export or a safetensors folder.

      model, params, tokenizer = sgnjax.load('runs/quickstart')
      tokens_BL = tokenizer.encode('It is said.')[None]
      logits_BLV = model.apply({'params': params}, tokens_BL).y_BLD[..., : tokenizer.vocab_size]

  Columns beyond the vocabulary fill it up to a multiple of `model.vocab_multiple`.

  What is returned also has `config`, `step` and `write(prompt)`. which: of a workdir, 'best' (by
  validation loss), 'latest' or a step. Raises UserError where there is nothing to load.
  """
  from sgnjax.export.load import load

  return load(path, which)


def audit(
  model: Any,
  params: Any = None,
  *,
  vocab: int | None = None,
  length: int | None = None,
  batch: int = 2,
  seed: int = 0,
  limit: float | None = None,
  **call: Any,
) -> 'Report':
  """Is a sequence model blind to the future, and to other examples? Returns a `Report`.

      report = sgnjax.audit(my_function, vocab=100, length=64)
      print(report.table(), report.verdict())
      assert not report.leaky

  model: any function of tokens (B, L), int32, to logits (B, L, V); a Flax (Linen) module, with its
  parameters or, without, all of them random; a model of ours; what `sgnjax.load` gave, a run, or a
  path of one; or a config, whose small twin is audited.

  vocab: how many tokens there are (of ours: known). length: of the rows that are tried; None: 64,
  or of a trained model its context, at most 1024. limit: the change, over the largest logit, from
  which on something is a leak; None: 1e-9 in float64, 1e-5 in float32. call: further arguments of
  a module's call, as `train=False`.

  Later tokens are replaced by others, then other examples, and the logits before are compared:
  nothing is differentiated, so a hard route hides nothing. Raises UserError where nothing can be
  compared, LeakError never.
  """
  from sgnjax import audit as audits
  from sgnjax.audit import own
  from sgnjax.models.trunk import Trunk

  if isinstance(model, ConfigDict):
    _alone('a config', call, params=params, length=length, limit=limit)
    return audits.twin_report(model, vocab=vocab, seed=seed)
  if isinstance(model, str | Path):
    model = load(model)
  if isinstance(model, Run):
    model = model.load()
  if isinstance(model, tuple) and len(model) == 3:  # of sgnjax.load
    model, params, _ = model
  if isinstance(model, Trunk):
    _alone('a model of sgnjax', call, limit=limit)
    length = length or min(model.context, 1024)
    if params is None:
      params = _random_params(model, seed)
    vocab = vocab or model.vocab
    return audits.audit(model, params, vocab=vocab, length=length, batch=batch, seed=seed)
  if vocab is None:
    raise UserError('give vocab=, the number of tokens that the model knows')
  options = {'vocab': vocab, 'length': length or 64, 'batch': batch, 'seed': seed, 'limit': limit}
  if own.is_module(model):
    return own.audit_module(model, params, **options, **call)
  if not callable(model):
    raise UserError(
      f'{type(model).__name__} is no model: expected a function of tokens to logits, a Flax '
      'module, a model or config of sgnjax, or the path of a run'
    )
  _alone('a function', call, params=params)
  return own.audit_function(model, **options)


def _alone(what: str, call: dict, **given) -> None:
  """Raises UserError for arguments that would mean nothing."""
  names = [*call, *(name for name, value in given.items() if value is not None)]
  if names:
    raise UserError(f'{what} is audited without {", ".join(f"{name}=" for name in names)}')


def _random_params(model, seed: int):
  import jax.numpy as jnp

  from sgnjax.audit import initial, randomise

  if getattr(model, 'image', None) is not None:
    inputs = jnp.zeros((1, *model.image), jnp.float32)
  else:
    inputs = jnp.zeros((1, 2), jnp.int32)
  return randomise(initial(model, inputs), seed)
