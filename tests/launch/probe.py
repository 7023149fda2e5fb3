"""In place of Python in the cluster scripts: connects as `launch/main.py` does, says what it saw.

Writes `<rank>.json` into PROBE_FOLDER.
"""

import json
import os
import sys
from pathlib import Path

from configs import base
from sgnjax.parallel import hosts

folder = Path(os.environ['PROBE_FOLDER'])
rank = os.environ['SLURM_PROCID']
with hosts.connected(base.get_config().hosts):
  import jax

  seen = {
    'arguments': sys.argv[1:],
    'processes': jax.process_count(),
    'devices': len(jax.devices()),
    'process': jax.process_index(),
  }
(folder / f'{rank}.json').write_text(json.dumps(seen))
