"""Writes text with the best checkpoint of the workdir, after the audit.

The context slides, unless sample.slide is false: each token is then written in view of the last
`model.context` ones at most.
"""

from pathlib import Path

from ml_collections import ConfigDict

from sgnjax import audit
from sgnjax.decode.text import write
from sgnjax.errors import UserError
from sgnjax.jobs.language import language_model
from sgnjax.train.log import mark


def run(config: ConfigDict, workdir: Path) -> int:
  s = config.sample
  if s.count < 1:
    raise UserError(f'sample.count={s.count}: expected at least 1')
  model, params, tokenizer, step = language_model(config, workdir, 'sample from')
  prompts = [prompt for prompt in _prompts(s) for _ in range(s.count)]
  leaky = mark(audit.gate(config, vocab=tokenizer.vocab_size).leaky)
  alone = s.stream and len(prompts) == 1

  def head(number: int) -> str:
    after = f'after the prompt {prompts[number]!r}'
    return f'--- {number + 1} of {len(prompts)}, step {step}, {after}{leaky}\n{prompts[number]}'

  heads = iter([head(0)])  # shown once, with the first piece: a prompt may still be refused

  def show(_, piece: str) -> None:
    print(next(heads, ''), piece, sep='', end='', flush=True)

  written = write(
    model,
    params,
    tokenizer,
    prompts,
    s.tokens,
    temperature=s.temperature,
    top_k=s.top_k,
    top_p=s.top_p,
    repetition_penalty=s.repetition_penalty,
    seed=config.seed,
    stop=s.stop,
    slide=s.slide,
    show=show if alone else None,
  )
  for number, text in enumerate(written.texts):
    print(next(heads, '') if alone else head(number) + text)
  print(f'--- {written.rate:,.0f} tokens/s{leaky}, compilation and the reading of prompts apart')
  return 0


def _prompts(s: ConfigDict) -> list[str]:
  """The prompt, or the lines of the file of prompts. Raises UserError."""
  if s.prompts is None:
    return [s.prompt]
  try:
    lines = Path(s.prompts).expanduser().read_text(encoding='utf-8').splitlines()
  except (OSError, UnicodeDecodeError) as error:
    why = getattr(error, 'strerror', None) or 'it is not UTF-8 text'
    raise UserError(f"sample.prompts '{s.prompts}': {why}") from None
  found = [line for line in lines if line]
  if not found:
    raise UserError(f"sample.prompts '{s.prompts}' holds no line with a prompt")
  return found
