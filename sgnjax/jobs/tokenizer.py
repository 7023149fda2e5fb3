"""Trains a BPE or unigram tokenizer on the train split; writes tokenizer.json into the workdir."""

import json
from pathlib import Path

from ml_collections import ConfigDict

from sgnjax.data import sources, subwords
from sgnjax.errors import UserError, check_choice
from sgnjax.train.checkpoint import committed
from sgnjax.train.log import check_writable, write_atomically


def run(config: ConfigDict, workdir: Path) -> int:
  """Raises UserError without data.vocab_size, and where a run lives in the workdir."""
  check_choice('data.tokenizer', config.data.tokenizer, ('bpe', 'unigram'))
  if config.data.vocab_size is None:
    raise UserError('--job=tokenizer needs data.vocab_size, the number of tokens: 8192, say')
  if committed(workdir):
    raise UserError(
      f"workdir '{workdir}' holds a run, whose tokenizer must stay; name another --workdir=DIR"
    )
  check_writable(workdir)
  splits, origin, _ = sources.load(config)
  made = subwords.train(config.data.tokenizer, splits['train'].texts(), config.data.vocab_size)
  path = Path(workdir) / 'tokenizer.json'
  write_atomically(path, json.dumps(made.to_json()) + '\n')
  tokens = size = 0
  for text in splits['validation'].texts():
    tokens, size = tokens + len(made.encode(text)), size + len(text.encode())
  print(
    f'{made.vocab_size:,} tokens ({made.kind}) trained on {origin}; '
    f'{size / max(tokens, 1):.2f} bytes a token of the validation split\n'
    f'--config.data.tokenizer={made.kind} --config.data.tokenizer_path={path}'
  )
  return 0
