"""Log-probabilities of given text under the best checkpoint of the workdir, after the audit.

`score.json` of the workdir has, for each text, its tokens as text, their log-probabilities (nats;
null for the first, which follows nothing), the sum, and bits a byte.
"""

import json
import math
from pathlib import Path

from ml_collections import ConfigDict

from sgnjax import audit
from sgnjax.audit.report import aligned
from sgnjax.decode.score import log_probabilities
from sgnjax.errors import UserError
from sgnjax.jobs.language import language_model
from sgnjax.train.evaluation import perplexity
from sgnjax.train.log import check_writable, mark, write_atomically

SHOWN = 40  # tokens of a text at most, on the screen


def run(config: ConfigDict, workdir: Path) -> int:
  """Prints tokens and totals and writes score.json. Raises UserError."""
  texts, stride = _texts(config.score), config.score.stride
  model, params, tokenizer, step = language_model(config, workdir, 'score with')
  check_writable(Path(workdir))
  leaky = audit.gate(config, vocab=tokenizer.vocab_size).leaky
  ids = [tokenizer.encode(text) for text in texts]
  scores = log_probabilities(model, params, ids, stride=stride)
  found = [_record(tokenizer, *pair) for pair in zip(ids, scores, strict=True)]
  record = {'step': step, 'texts': found} | ({'leaky': True} if leaky else {})
  path = Path(workdir) / 'score.json'
  write_atomically(path, json.dumps(record, indent=2, allow_nan=False) + '\n')
  for text, one in zip(texts, found, strict=True):
    print('\n'.join(_told(text, one, mark(leaky), alone=len(texts) == 1)))
  print(f'--- step {step}, {len(texts)} text{"s" * (len(texts) > 1)}: {path}')
  return 0


def _texts(s: ConfigDict) -> list[str]:
  """What is to be scored. Raises UserError."""
  if (s.text is None) == (s.path is None):
    raise UserError(
      'what is to be scored? give --config.score.text=TEXT or --config.score.path=FILE, one of them'
    )
  if s.text is not None:
    return [s.text]
  try:
    text = Path(s.path).expanduser().read_text(encoding='utf-8')
  except (OSError, UnicodeDecodeError) as error:
    why = getattr(error, 'strerror', None) or 'it is not UTF-8 text'
    raise UserError(f"score.path '{s.path}': {why}") from None
  texts = [line for line in text.splitlines() if line] if s.lines else [text]
  if not texts:
    raise UserError(f"score.path '{s.path}' holds no line of text")
  return texts


def _record(tokenizer, ids, logp_L) -> dict:
  """What score.json has of a text; rates are over the tokens that have a probability."""
  tokens = [tokenizer.decode([token]) for token in ids]
  total = math.fsum(float(x) for x in logp_L)
  size = len(tokenizer.decode(ids[1:]).encode('utf-8', errors='surrogatepass'))
  return {
    'tokens': tokens,
    'log_probabilities': [None, *(round(float(x), 6) for x in logp_L)],
    'log_probability': total,
    'nats_per_token': -total / len(logp_L),
    'perplexity': perplexity(-total / len(logp_L)),
    'bits_per_byte': -total / math.log(2) / max(size, 1),
  }


def _told(text: str, one: dict, said: str, *, alone: bool):
  """Lines of a text: its tokens, where it is the only one, and its totals."""
  if alone:
    rows = [('token', 'log p', 'p')]
    pairs = list(zip(one['tokens'], one['log_probabilities'], strict=True))
    for token, logp in pairs[:SHOWN]:
      known = logp is not None
      numbers = (f'{logp:.4f}{said}', f'{math.exp(logp):.2%}{said}') if known else ('', '')
      rows.append((ascii(token), *numbers))
    yield from aligned(rows, right=(1, 2))
    if len(pairs) > SHOWN:
      yield f'and {len(pairs) - SHOWN:,} more tokens'
  start = text if len(text) <= 40 else text[:37] + '...'
  worth = one['perplexity']
  yield (
    f'{start!a}: log p {one["log_probability"]:.4f}{said}, {one["nats_per_token"]:.4f} nats/token'
    f'{said}, perplexity {"beyond e^700" if worth is None else f"{worth:.3f}"}{said}, '
    f'{one["bits_per_byte"]:.4f} bits/byte{said}'
  )
