"""The table of every theorem over every variant, from the reports of their tests."""

from collections import defaultdict
from pathlib import Path

from sgnjax.models.variants import VARIANTS

HERE = Path(__file__).parent
# Variant that a golden file, by the start of its name, belongs to.
GOLDEN = {
  'ega_base': 'softmax',
  'fqk5b_dot': 'softmax',
  'ega1': 'ega-published',
  'model_ega1': 'ega-published',
  'ega2': 'ega-published-2',
  'ega4': 'ega-published-4',
  'egaC': 'ega-published-conv',
  'egaM': 'ega-published-morlet',
  'wavelet_db2': 'ega-db2',
  'wavelet_db4': 'ega-db4',
  'fqk5b_dc': 'fourier_qk-published-dc',
  'fqk5b_nyquist': 'fourier_qk-published-nyquist',
  'fqk5b_gauss': 'fourier_qk-published',
  'fqk5b_mexhat4': 'fourier_qk-published-mexican_hat',
  'fqk5a_learned': 'fourier_qk-published',
  'fqk5a_fixed': 'fourier_qk-published-fixed',
  'fqk5a_learned_two_branch': 'fourier_qk-published-analytic',
  'fqk5a_fixed_bin4_two_branch': 'fourier_qk-published-analytic',
  'fqk5a_morlet': 'fourier_qk-taps-morlet',
  'fqk5a_causal_spectral': 'fourier_qk-taps-spectral',
  'fqk5a_surrogate': 'fourier_qk-surrogate',
  'model_fqk': 'fourier_qk-published',
  'chiar': 'chiar-published',
  'chiar_rbf': 'chiar-published-v1',
  'model_chiar': 'chiar-published',
}
TITLE = """# Variants and theorems

Each cell is the outcome of a test, written by `python -m tests.theorems FILE` and not by hand.
Instances of width 16, 2 heads, context 24, all parameters random.

causality: in float64, later tokens replaced; bit for bit: without an FFT, in float32 too. A number
is the change that a form which sees the future lets through, of its output's scale. chunks: any
split gives the whole. dtypes: bfloat16 and float32 against float64. golden: the files of the
papers' own code that it agrees with. gradients: against central differences in float64. padding: on
the right; all-padding examples too. parameters: their number here, by the docstring's formula.
"""


class Table:
  """Collects what the tests found, by variant and theorem; prints it at the end."""

  def __init__(self):
    self.cells = defaultdict(lambda: defaultdict(list))

  def pytest_runtest_logreport(self, report):
    if 'theorem' not in report.keywords or (report.passed and report.when != 'call'):
      return
    found, failed = dict(report.user_properties), None if report.passed else report.outcome.upper()
    path, _, test = report.nodeid.partition('::')
    if 'golden' in found:
      file = found['golden']
      start = max((start for start in GOLDEN if file.startswith(start)), key=len)
      self.cells[GOLDEN[start]]['golden'].append(f'{file} {failed}' if failed else file)
    else:
      inside = test.partition('[')[2].rstrip(']')
      name = max((name for name in VARIANTS if inside.endswith(name)), key=len)
      theorem = Path(path).stem.removeprefix('test_')
      self.cells[name][theorem].append(failed or found.get('cell'))

  def pytest_terminal_summary(self, terminalreporter):
    terminalreporter.section('every theorem over every variant')
    terminalreporter.write_line(self.text())

  def text(self) -> str:
    theorems = sorted({'golden', *(p.stem.removeprefix('test_') for p in HERE.glob('test_*.py'))})
    lines = ['| variant | ' + ' | '.join(theorems) + ' |', '|---' * (len(theorems) + 1) + '|']
    for name in VARIANTS:
      row = []
      for theorem in theorems:
        found = self.cells[name][theorem]
        said = list(dict.fromkeys(cell for cell in found if cell))
        row.append(', '.join(said) if said else 'holds' if found else '-')
      lines.append(f'| {name} | ' + ' | '.join(row) + ' |')
    return '\n'.join(lines)
