"""ListOps of the Long Range Arena: nested lists of digits under MIN, MAX, MED and SM.

Source: Nangia and Bowman, "ListOps: A Diagnostic Dataset for Latent Tree Learning" (2018), with the
sizes of Tay et al., "Long Range Arena" (2021).
"""

import random
from collections.abc import Iterator

OPERATORS = ('[MIN', '[MAX', '[MED', '[SM')
CLOSE = ']'
SIZES = {'train': 96_000, 'validation': 2_000, 'test': 2_000}
DEPTH, ARGUMENTS, DIGIT = 10, 10, 0.75
SHORTEST, LONGEST = 500, 2_000  # of a kept tree, both excluded: digits, and 2 for each operator


def evaluate(operator: str, arguments: list[int]) -> int:
  """The value of an operator: MED cuts the median to an integer, SM is the sum modulo 10."""
  match operator:
    case '[MIN':
      return min(arguments)
    case '[MAX':
      return max(arguments)
    case '[MED':
      middle = sorted(arguments)
      half = len(middle) // 2
      return middle[half] if len(middle) % 2 else (middle[half - 1] + middle[half]) // 2
    case _:
      return sum(arguments) % 10


def _tree(generator: random.Random, depth: int, out: list[str]) -> int:
  """Appends a random tree's symbols to `out`, gives its value; stops early when it is too long."""
  uniform = generator.random
  if depth >= DEPTH or uniform() < DIGIT:
    digit = int(10 * uniform())
    out.append(str(digit))
    return digit
  operator = OPERATORS[int(4 * uniform())]
  out.append(operator)
  arguments = []
  for _ in range(2 + int((ARGUMENTS - 2) * uniform())):
    if len(out) >= LONGEST:
      return 0
    arguments.append(_tree(generator, depth + 1, out))
  out.append(CLOSE)
  return evaluate(operator, arguments)


def generate(seed: int = 0) -> Iterator[tuple[str, int]]:
  """Endless distinct examples (symbols with spaces between, value), the same for the same seed.

  The root is at depth 1, a tree at most 10 deep; above that a node is a digit with probability
  0.75, else an operator with 2 to 9 arguments.
  """
  generator = random.Random(seed)
  seen = set()
  while True:
    out: list[str] = []
    value = _tree(generator, 1, out)
    # An operator is two symbols: itself and its end.
    if SHORTEST < len(out) < LONGEST:
      text = ' '.join(out)
      if text not in seen:
        seen.add(text)
        yield text, value


def symbols(source: str) -> str:
  """The symbols of a released example: parentheses left out, which only say what is nested."""
  return ' '.join(symbol for symbol in source.split() if symbol not in '()')
