"""The config of a tiny run for tests in processes of its own, and what shall happen to one of them.

Environment: TWO_FOLDER, where the text is; TWO_EVENT=PROCESS:STEP:SIGNAL, the number of a signal
that this process sends itself once the metrics of that step are read; 0: it raises an error.
TWO_AUDITED: the model's audit was seen in other processes, and is left out.
"""

import os
from pathlib import Path

from sgnjax.train import log
from tests.train.tiny import leave_out_audit, tiny


def get_config():
  if 'TWO_AUDITED' in os.environ:
    leave_out_audit()
  if 'TWO_EVENT' in os.environ:
    process, at, number = map(int, os.environ['TWO_EVENT'].split(':'))
    writer = log.Silent if process else log.Progress
    update = writer.update

    def hook(self, step, *args):
      update(self, step, *args)
      if step == at and os.environ['JAX_PROCESS_ID'] == str(process):
        if not number:
          raise RuntimeError('as asked for')
        os.kill(os.getpid(), number)

    writer.update = hook
  return tiny(Path(os.environ['TWO_FOLDER']))
