"""`python -m sgnjax.analysis.flops PAGE`: what the papers say they save, taken apart."""

import sys
from pathlib import Path

from sgnjax.analysis.flops.claims import page


def main(arguments: list[str]) -> None:
  if len(arguments) != 1:
    sys.exit('usage: python -m sgnjax.analysis.flops PAGE')
  Path(arguments[0]).write_text(page(), encoding='utf-8')


if __name__ == '__main__':
  main(sys.argv[1:])
