"""Commands of a user one after the other in one process: `several.py FLAG... -- FLAG... -- ...`.

Two processes that both run this stay together when a command is refused, since all of them refuse
it; each is asked for its exit status, and the last one ends the process as it would a user's. A
training that finishes is no command but the last: the report is written by one process alone, and
Orbax's count of what they do together differs from then on.
"""

import itertools
import sys

from launch import main
from sgnjax.parallel import hosts


def run(arguments: list[str]) -> int:
  groups = itertools.groupby(arguments, lambda argument: argument != '--')
  *before, last = (list(flags) for is_command, flags in groups if is_command)
  leave, hosts.leave = hosts.leave, lambda status: status
  for flags in before:
    print(f'exit status {main.main(flags)}', file=sys.stderr, flush=True)
  hosts.leave = leave
  return main.main(last)


if __name__ == '__main__':
  sys.exit(run(sys.argv[1:]))
