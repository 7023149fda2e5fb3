"""The model card: what a model is, from what it was made, and how to run it."""

import json
from pathlib import Path
from typing import Any

import jax
from ml_collections import ConfigDict

from sgnjax import config as config_lib
from sgnjax.audit.report import Report
from sgnjax.models import DECODERS, Model, count
from sgnjax.train.evaluation import describe
from sgnjax.train.log import STARTS, mark, read_records, write_atomically

READ = """import json

import jax
import jax.numpy as jnp
from jax import export

with open('weights.safetensors', 'rb') as file:
  raw = file.read()
behind = 8 + int.from_bytes(raw[:8], 'little')  # the length of the table, and the table
table = json.loads(raw[8:behind])
table.pop('__metadata__')
weights = {}
for name, entry in table.items():
  begin, end = (behind + at for at in entry['data_offsets'])
  flat = jnp.frombuffer(raw[begin:end], jnp.dtype({types}[entry['dtype']]))
  weights[name] = flat.reshape(entry['shape'])
with open('forward.jaxexport', 'rb') as file:
  forward = export.deserialize(bytearray(file.read()))
inputs = jnp.zeros({shape}, '{dtype}')  # {what}
logits = forward.call(weights, inputs)
print(logits.shape)
"""
TYPES = {'F32': 'float32', 'F64': 'float64', 'BF16': 'bfloat16', 'I32': 'int32', 'U32': 'uint32'}


def write(
  folder: Path,
  workdir: str | Path,
  config: ConfigDict,
  model: Model,
  params: Any,
  tokenizer: Any,
  step: int,
  report: Report,
  programs: dict,
) -> Path:
  """Writes README.md into the folder; its path. programs: what `programs.save` said."""
  leaky = report.leaky
  parts = [
    _title(config, leaky),
    _banner(leaky),
    _facts(workdir, config, model, params, tokenizer, step, leaky),
    '## Results\n\n' + _results(workdir, config, step, leaky),
    f'## Does it see the future?\n\n{report.verdict()}.\n\n```\n{report.table()}\n```\n\n'
    'The audit is of a small twin of the model, all its parameters random: tokens that a '
    'prediction may not depend on are replaced by others, and the logits compared.',
    '## Use\n\n' + _use(folder, config, programs),
    '## Config\n\n```json\n' + json.dumps(config_lib.to_dict(config), indent=2) + '\n```',
  ]
  path = folder / 'README.md'
  write_atomically(path, '\n\n'.join(filter(None, parts)) + '\n')
  return path


def _title(config: ConfigDict, leaky: bool) -> str:
  m = config.model
  return f'# {m.mixer}, {m.form} form, {m.layers} layers of width {m.width}{mark(leaky)}'


def _banner(leaky: bool) -> str:
  if not leaky:
    return ''
  return (
    '**LEAKY: this model sees tokens that it is asked to predict, or other examples. Its numbers '
    'cannot be compared with those of a language model, and the text that it writes is no '
    'measure of them.**'
  )


def _facts(workdir, config, model, params, tokenizer, step, leaky) -> str:
  m, data, train = config.model, config.data, config.train
  kind = 'a language model' if data.task in DECODERS else f'an encoder (data.task={data.task})'
  where = '' if data.path is None else f' from `{Path(data.path).name}`'
  mixture = ''.join(f', and {entry[0]}' for entry in data.mixture)
  rows = [
    ('what', f'{kind} of `sgnjax`, {count(model, params):,} parameters'),
    ('context', f'{m.context} tokens, positions {m.positions}, computed in {m.dtype}'),
    ('vocabulary', f'{tokenizer.vocab_size:,} tokens of kind {tokenizer.kind}'),
    ('data', f'`{data.name}`{where}{mixture}'),
    ('training', f'{step:,} of {train.steps:,} steps of {train.batch} rows, seed {config.seed}'),
    ('optimiser', f'AdamW, rate {config.optim.lr:g}, weight decay {config.optim.weight_decay:g}'),
    ('audit', 'LEAKY' if leaky else 'blind to what it may not see'),
    ('config', config_lib.fingerprint(config)),
    *_code(workdir),
    ('exported with', f'jax {jax.__version__}'),
  ]
  return '| | |\n|---|---|\n' + '\n'.join(f'| {name} | {value} |' for name, value in rows)


def _code(workdir: str | Path) -> list[tuple[str, str]]:
  """The commits that the run was trained with, where it knows them."""
  known = [r['commit'] for r in read_records(workdir, STARTS) if r['commit']]
  return [('code', f'commit {", then ".join(dict.fromkeys(known))}')] if known else []


def _results(workdir: str | Path, config: ConfigDict, step: int, leaky: bool) -> str:
  """The evaluation of these weights, as the run logged it."""
  found = [r for r in read_records(workdir) if r['kind'] == 'evaluation' and r['step'] == step]
  if not found:
    return f'The run has logged no evaluation of step {step}.'
  return f'```\n{describe(found[-1], leaky)}\n```\n\nProtocol: {found[-1]["protocol"]}.'


def _use(folder: Path, config: ConfigDict, programs: dict) -> str:
  lines = [
    'In Python, with `sgnjax` installed:',
    f"```python\nimport sgnjax\n\nmodel, params, tokenizer = sgnjax.load('{folder.name}')\n```",
    "Its logits are `model.apply({'params': params}, inputs).y_BLD[..., : tokenizer.vocab_size]`."
    if config.data.task in DECODERS
    else '`help(sgnjax.load)` says more.',
  ]
  if not programs:
    return '\n\n'.join(lines)
  rows = config.export.batch or 2
  image, context = config.model.image, config.model.context
  told = {
    'types': TYPES,
    'shape': (rows, *image) if image is not None else (rows, context),
    'dtype': 'int32' if image is None else 'float32',
    'what': 'tokens, filled up on the right' if image is None else 'pixels from 0 to 1',
  }
  text = READ
  for key, value in told.items():
    text = text.replace(f'{{{key}}}', str(value))
  lines += [
    'With jax and flatbuffers alone, from inside this folder '
    f'(on {", ".join(programs["forward"]["platforms"])}; '
    f'{programs["forward"]["rows"]} rows):',
    f'```python\n{text}```',
  ]
  if config.data.tokenizer == 'char' and image is None:
    lines.append("A token is its character's place in `characters` of tokenizer.json.")
  if 'step' in programs:
    lines.append(
      'One token at a time: `logits, cache = start.call(weights, tokens)` with the first token of '
      'each row, int32 of shape (rows,), then `logits, cache = step.call(weights, tokens, cache)` '
      'with the next ones; logits are (rows, vocabulary), and the cache has room for '
      f'{programs["step"]["room"]:,} tokens. Both are read from their files as `forward` is.'
    )
  return '\n\n'.join(lines)
