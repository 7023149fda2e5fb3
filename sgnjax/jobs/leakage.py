"""The shuffled gap of the workdir's best checkpoint beside the audit of its weights.

Writes leakage.json. `python -m sgnjax.analysis.leakage_page PAGE RUN ...` tells several runs.
"""

from pathlib import Path

from ml_collections import ConfigDict

from sgnjax.analysis import leakage


def run(config: ConfigDict, workdir: Path) -> int:
  print(leakage.describe(leakage.measure(Path(workdir))))
  return 0
