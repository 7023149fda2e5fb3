"""`sgnjax` and `python -m sgnjax`: launch/main.py, beside the package or, installed, inside it."""

import runpy
import sys

from sgnjax.config import CONFIGS


def main() -> int:
  return runpy.run_path(str(CONFIGS.parent / 'launch' / 'main.py'))['main']()


if __name__ == '__main__':
  sys.exit(main())
