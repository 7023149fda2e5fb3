"""`python -m sgnjax.analysis.gallery FOLDER`: draws the mechanisms' pictures into the folder."""

import sys
from collections.abc import Sequence

from sgnjax.analysis.gallery import mechanism_pictures


def main(arguments: Sequence[str]) -> None:
  """Draws, and prints the path of each picture."""
  if len(arguments) != 1:
    sys.exit('usage: python -m sgnjax.analysis.gallery FOLDER')
  for path in mechanism_pictures(arguments[0]):
    print(path)


if __name__ == '__main__':
  main(sys.argv[1:])
