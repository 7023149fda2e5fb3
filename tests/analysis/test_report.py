"""The page of a small run, and pictures against the arrays they are of."""

import base64
import json
import re
import shutil
import warnings
from html import escape
from html.parser import HTMLParser

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs import base
from sgnjax.analysis import plots
from sgnjax.analysis.capture import _toeplitz_part, capture, pictures, windows
from sgnjax.analysis.report import report
from sgnjax.audit import Report, Row
from sgnjax.data import tokenizers
from sgnjax.machine import origin
from sgnjax.models import build
from sgnjax.models.variants import variant
from sgnjax.ops.dct import dct_matrix
from sgnjax.train.log import read_records, write_atomically
from sgnjax.train.loop import train

TEXT = '<script>alert("$x^2$ & more")</script> a line of text, and one more.\n' * 40


def small(**model):
  config = base.get_config().unlock()
  config.model.update(width=16, heads=2, layers=3, context=32, vocab_multiple=8)
  config.model.update(model)
  return config


@pytest.fixture(scope='module')
def run(tmp_path_factory):
  """A CHIAR run of four steps."""
  folder = tmp_path_factory.mktemp('report')
  (folder / 'text.txt').write_text(TEXT)
  config = small(mixer='chiar', block='chiar')
  config.data.update(name='text', path=str(folder / 'text.txt'))
  config.train.update(
    steps=4, batch=8, log_every=1, eval_every=2, checkpoint_every=2, progress=False,
    compile_cache=False,
  )  # fmt: skip
  config.optim.warmup = 1
  config.eval.batch = 8
  config.sample.update(prompt='<script>', tokens=40)
  train(config.lock(), folder / 'run')
  return folder / 'run'


@pytest.fixture(scope='module')
def page(run):
  """The text of its page."""
  path = report(run)
  assert path == run / 'report.html'
  return path.read_text()


class Balance(HTMLParser):
  """Fails where a tag is closed that is not the innermost open one."""

  def __init__(self):
    super().__init__()
    self.open, self.seen = [], []

  def handle_starttag(self, tag, attrs):
    self.seen.append((tag, dict(attrs)))
    if tag not in ('meta', 'img'):
      self.open.append(tag)

  def handle_endtag(self, tag):
    assert self.open.pop() == tag


def parsed(page: str) -> Balance:
  parser = Balance()
  parser.feed(page)
  assert parser.open == []
  return parser


@pytest.mark.slow
def test_the_page_is_whole_and_needs_nothing_else(run, page):
  tags = parsed(page).seen
  assert not [tag for tag, _ in tags if tag in ('script', 'link', 'iframe')]
  sources = [attrs['src'] for tag, attrs in tags if tag == 'img']
  assert all(attrs['alt'] for tag, attrs in tags if tag == 'img')
  assert not re.search(r'https?://|url\(|@import', page)
  files = {f.name: f.read_bytes() for f in (run / 'pictures').iterdir()}
  names = ('losses', 'routes_text', 'routes_tokens', 'routes_layers', 'meta_gate')
  names += ('history', 'scalograms', 'spectra')
  assert set(files) == {f'{name}.png' for name in names}
  embedded = {base64.b64decode(s.removeprefix('data:image/png;base64,')) for s in sources}
  assert embedded == set(files.values())
  assert all(png.startswith(b'\x89PNG') for png in embedded)


def test_the_page_says_what_came_out(run, page):
  evaluations = [r for r in read_records(run) if r['kind'] == 'evaluation']
  assert [r['step'] for r in evaluations] == [2, 4]
  best = min(evaluations, key=lambda r: r['loss'])
  assert f'<b>{best["loss"]:.3f}</b>' in page
  assert f'<b>{best["bits_per_byte"]:.3f}</b>' in page
  assert f'<b>{best["unigram"]:.3f}</b>' in page
  assert '&lt;script&gt;' in page
  assert 'model.chiar.tau' in page
  assert 'later tokens' in page
  assert 'LEAKY' not in page
  (begun,) = read_records(run, 'starts.jsonl')
  assert f'<td>{begun["time"]} UTC; {escape(origin(begun))}</td>' in page


@pytest.mark.slow
def test_a_leaky_run_says_so_everywhere_and_what_is_missing_is_said(run, tmp_path):
  copy = shutil.copytree(run, tmp_path / 'copy')
  text = run.parent / 'text.txt'
  found = Report((Row('later tokens', 3, 1.0, 0.5, 0.0, layer='layer 01 (x)'),), 'x', 32, 2, False)
  write_atomically(copy / 'audit.json', json.dumps(found.to_json()))
  text.rename(text.with_suffix('.away'))
  try:
    leaky = report(copy).read_text()
  finally:
    text.with_suffix('.away').rename(text)
  parsed(leaky)
  assert 'No pictures of the layers' in leaky
  assert 'LEAK layer 01 (x)' in leaky
  tiles = re.findall(r'class="tile"><b>(.*?)</b>', leaky)
  assert [tile.endswith(' LEAKY') for tile in tiles] == [True, True, True, False]
  assert len(re.findall(r'tokens/s LEAKY|ms LEAKY|<td>[\d,.]+ LEAKY', leaky)) >= 5
  assert re.search(r'alt="Validation loss .* LEAKY"', leaky)


@pytest.mark.slow
@pytest.mark.parametrize(
  ('model', 'group', 'expected'),
  [
    ({'mixer': 'sgn'}, {}, ['sgn_gates', 'sgn_kernels']),
    ({'mixer': 'sgn', 'form': 'published'}, {}, ['sgn_gates', 'sgn_kernels']),
    ({'mixer': 'fourier_qk'}, {'filter': 'mexican_hat'}, ['filters']),
    ({'mixer': 'ega'}, {}, ['ega_gates']),
    ({'mixer': 'softmax'}, {}, []),
  ],
)
def test_each_mechanism_has_its_pictures(model, group, expected):
  config = small(layers=2, **model)
  if group:
    config.model[model['mixer']].update(group)
  tokenizer = tokenizers.make('char', TEXT)
  tokens_BL = windows(tokenizer.encode(TEXT), 32, 2)
  params = build(config, vocab=tokenizer.vocab_size).init(jax.random.key(0), tokens_BL)['params']
  shown, debug = capture(config, params, tokens_BL, vocab=tokenizer.vocab_size)
  drawn = pictures(shown, debug, tokens_BL, tokenizer, leaky=model.get('form') == 'published')
  assert [picture.name for picture in drawn] == expected
  for picture in drawn:
    assert picture.caption
    said = picture.figure.get_suptitle()
    assert said.endswith('LEAKY') == (model.get('form') == 'published')


ROUTES = ['routes_text', 'routes_tokens', 'routes_layers']


@pytest.mark.slow
@pytest.mark.parametrize(
  ('name', 'expected', 'said'),
  [
    ('sgn-adaptive', ['sgn_gates', 'sgn_kernels'], 'Haar 33% LEAKY'),
    ('sgn-published-fft', ['sgn_gates'], 'on the Fourier coefficients'),
    ('sgn-published-2d', ['sgn_gates'], 'along a row of patches'),
    ('sgn-bidirectional-fft', ['sgn_gates', 'sgn_kernels'], 'mean of both sides'),
    ('sgn-random', ['sgn_gates', 'sgn_kernels'], 'random, fixed gate'),
    ('fourier_qk-taps-morlet', ['filters'], 'causal filter of 16 taps'),
    ('ega_fourier_qk', ['filters', 'periods', 'ega_gates'], 'each token as a key'),
    ('chiar-v1-soft', ROUTES, 'attention to a large part, dark ones DCT mixing or RBF mixing'),
    ('chiar-random', [*ROUTES, 'meta_gate'], 'knows nothing of the token'),
    ('chiar-capacity-routed', [*ROUTES, 'meta_gate'], 'as many attend as it has slots'),
    ('performer', [], ''),
  ],
)
def test_pictures_of_variants_say_what_they_are_of(name, expected, said, tmp_path):
  config = small(layers=3 if name.startswith('chiar') else 1)
  config = variant(config, name)
  tokenizer = tokenizers.make('char', TEXT)
  tokens_BL = windows(tokenizer.encode(TEXT), 32, 2)
  params = build(config, vocab=tokenizer.vocab_size).init(jax.random.key(0), tokens_BL)['params']
  shown, debug = capture(config, params, tokens_BL, vocab=tokenizer.vocab_size)
  drawn = pictures(shown, debug, tokens_BL, tokenizer, leaky=True)
  assert [picture.name for picture in drawn] == expected
  assert said in ' '.join(picture.caption for picture in drawn)
  if drawn:
    assert plots.save(drawn[-1].figure, tmp_path / 'a.png').stat().st_size > 1000


@pytest.mark.slow
def test_soft_routes_show_the_gate_and_no_threshold():
  config = variant(small(layers=3), 'chiar-soft')
  tokenizer = tokenizers.make('char', TEXT)
  tokens_BL = windows(tokenizer.encode(TEXT), 32, 2)
  params = build(config, vocab=tokenizer.vocab_size).init(jax.random.key(0), tokens_BL)['params']
  shown, debug = capture(config, params, tokens_BL, vocab=tokenizer.vocab_size)
  drawn = {p.name: p.figure for p in pictures(shown, debug, tokens_BL, tokenizer, leaky=False)}
  mean = float(debug['router_gates/01'][..., -1].mean())
  assert drawn['routes_layers'].get_suptitle() == (
    f'Routers send {mean:.0%} of the tokens to attention'
  )
  labels = drawn['routes_layers'].axes[1].get_legend_handles_labels()[1]
  assert labels == ['layer 2']


def test_windows_span_the_split():
  windows_BL = windows(np.arange(100), 10, 4)
  assert windows_BL[:, 0].tolist() == [0, 30, 60, 90]
  assert windows_BL[-1].tolist() == list(range(90, 100))


def test_the_published_kernel_is_the_toeplitz_part_of_the_operator():
  n = 12
  gate_N1 = np.random.default_rng(0).normal(size=(n, 1))
  c_NN = np.asarray(dct_matrix(n, jnp.float32))
  operator_TS = c_NN.T @ (gate_N1 * c_NN)
  half_T = _toeplitz_part(gate_N1)[:, 0]
  for t in range(n):
    for s in range(n - 1 - t):
      np.testing.assert_allclose(
        operator_TS[t, s], half_T[abs(t - s)] + half_T[t + s + 1], atol=1e-5
      )


def test_losses_name_the_best_evaluation():
  figure = plots.loss_curves(([1, 2, 3], [4.0, 3, 2]), ([2, 3], [2.5, 2.75]), unigram=3.3)
  assert figure.get_suptitle() == 'Validation loss reaches 2.500 at step 2'
  (axes,) = figure.axes
  np.testing.assert_array_equal(axes.lines[0].get_ydata(), [4, 3, 2])
  assert axes.get_ylabel() == 'loss (nats per token)'
  assert [t.get_text() for t in axes.get_legend().texts][-1].endswith('3.300')


def test_gates_are_sorted_by_frequency():
  bump_MD = np.exp(-np.square(np.arange(65)[:, None] - np.array([50, 10, 30])[None, :]) / 20)
  figure = plots.gate_responses({0: bump_MD})
  rows_DM = np.asarray(figure.axes[0].images[0].get_array())
  assert rows_DM.argmax(1).tolist() == [10, 30, 50]
  assert figure.axes[0].images[0].get_extent()[:2] == [0, 0.5]


def test_only_some_of_many_layers_are_shown_and_the_title_says_so():
  layers = {i: np.ones((2, 1, 17)) for i in range(26)}
  figure = plots.filter_responses(layers)
  assert figure.get_suptitle().endswith('(4 of 26 layers)')
  assert [ax.get_title() for ax in figure.axes] == ['layer 1', 'layer 9', 'layer 18', 'layer 26']


def test_any_text_can_be_drawn(tmp_path):
  pieces = ['$', r'\frac', '{', '\n', ' ', '\x00', '汉', '\ufffd', 'ing', '_', '^', '\ud800']
  value_L = np.linspace(0, 1, len(pieces))
  with warnings.catch_warnings():
    warnings.simplefilter('error')
    figures = (
      plots.text_heat(pieces, {'$a': value_L}, title='a', label='b', columns=4),
      plots.attention_by_piece(pieces, value_L[None] > 0.5),
    )
    for figure in figures:
      assert plots.save(figure, tmp_path / 'a.png').stat().st_size > 1000


def test_shares_and_gate_state_their_means():
  entropies = {1: np.linspace(0, 1, 100), 2: np.linspace(0, 1, 100)}
  figure = plots.attention_shares({1: 0.25, 2: 0.75}, entropies, tau=0.5)
  assert figure.get_suptitle() == 'Routers send 50% of the tokens to attention'
  assert 'threshold 0.5' in [t.get_text() for t in figure.axes[1].get_legend().texts]
  assert plots.meta_gate(np.full((2, 8), 0.25)).get_suptitle().startswith('MetaRouter: 0.25')
