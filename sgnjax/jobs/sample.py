"""Writes text with the best checkpoint of the workdir, after the audit.

The context slides: each token is written in view of the last `model.context` ones at most.
"""

from pathlib import Path

from ml_collections import ConfigDict

from sgnjax import audit
from sgnjax import config as config_lib
from sgnjax.decode.generate import write
from sgnjax.errors import UserError
from sgnjax.models import build
from sgnjax.train.checkpoint import load_params
from sgnjax.train.log import mark


def run(config: ConfigDict, workdir: Path) -> int:
  s = config.sample
  if s.count < 1:
    raise UserError(f'sample.count={s.count}: expected at least 1')
  trained, params, tokenizer, step = load_params(workdir)
  if trained.data.task != 'lm':
    raise UserError(
      f"workdir '{workdir}' holds an encoder (data.task={trained.data.task}), which writes no text"
    )
  changed = config_lib.differences({'model': trained.model.to_dict()},
                                   {'model': config.model.to_dict()})  # fmt: skip
  if changed:
    raise UserError(
      f"workdir '{workdir}' was trained with another model ({', '.join(changed[:5])}); leave out "
      '--config to sample from the one that it holds'
    )
  leaky = mark(audit.gate(config, vocab=tokenizer.vocab_size).leaky)
  model = build(config, vocab=tokenizer.vocab_size)
  written = write(
    model,
    params,
    tokenizer,
    [s.prompt] * s.count,
    s.tokens,
    temperature=s.temperature,
    top_k=s.top_k,
    seed=config.seed,
  )
  for number, text in enumerate(written.texts, 1):
    print(f'--- {number} of {s.count}, step {step}, after the prompt {s.prompt!a}{leaky}')
    print(s.prompt + text)
  rate = s.count * s.tokens / written.seconds
  print(f'--- {rate:,.0f} tokens/s{leaky}, compilation apart')
  return 0
