"""`python -m sgnjax.analysis.scaling CONFIG WORKDIR PAGE`: the page of what a workdir holds.

Pictures go into the folder `pictures` beside the page's own folder.
"""

import sys
from pathlib import Path

from sgnjax import config as config_lib
from sgnjax.analysis.scaling import measure
from sgnjax.analysis.scaling.page import write
from sgnjax.errors import UserError


def main(arguments: list[str]) -> None:
  if len(arguments) != 3:
    sys.exit('usage: python -m sgnjax.analysis.scaling CONFIG WORKDIR PAGE')
  try:
    config, page = config_lib.load(arguments[0]), Path(arguments[2])
  except UserError as error:
    sys.exit(f'error: {error}')
  records = measure.read(Path(arguments[1]), config)
  if not records:
    sys.exit(f'{arguments[1]} holds no measurement of {arguments[0]} ({measure.FILE})')
  print(write(config, records, page, page.parent.parent / 'pictures'))


if __name__ == '__main__':
  main(sys.argv[1:])
