"""Audits the small twin of the config, and the weights that the workdir holds."""

from pathlib import Path

from ml_collections import ConfigDict

from sgnjax import audit
from sgnjax.errors import UserError
from sgnjax.models import build
from sgnjax.train import checkpoint

CONTEXT = 1024  # longest input at which trained weights are audited


def run(config: ConfigDict, workdir: str | Path) -> int:
  """Prints tables and verdicts. 0: blind to the future; 3: not, with allow_leak too.

  Raises UserError where the model's own word, or its cache, contradicts what was found.
  """
  reports = [('the small twin of the config, all its parameters random', audit.twin_report(config))]
  if checkpoint.committed(workdir):
    stored, params, tokenizer, step = checkpoint.load_params(workdir)
    model = build(stored, vocab=tokenizer.vocab_size)
    length = min(stored.model.context, CONTEXT)
    report = audit.audit(model, params, vocab=model.vocab, length=length)
    reports.append((f'the weights of {workdir} at step {step}, in their own config', report))
  for title, report in reports:
    print(f'{title}\n{report.table()}\n{report.verdict()}\n')
  if any(report.leaky for _, report in reports):
    return 3
  for _, report in reports:
    if report.contradiction:
      raise UserError(f'internal check: {report.contradiction}')
  return 0
