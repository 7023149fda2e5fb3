"""Each part at a toy size: what its rows hold. How long anything takes is not judged."""

import importlib.util

import pytest

from configs import base
from sgnjax import config as config_lib
from sgnjax.analysis.benchmark import compile as compiling
from sgnjax.analysis.benchmark import (
  data,
  decode,
  gpu,
  mixers,
  ops,
  page,
  peers,
  scaffold,
  scaling,
  settings,
  step,
  timing,
  tpu,
  train,
)
from sgnjax.jobs import benchmark as job
from sgnjax.models.variants import VARIANTS
from sgnjax.ops.dct import MATRIX_UP_TO

TINY = {'layers': 1, 'width': 16, 'heads': 2}


@pytest.fixture(scope='module')
def asked():
  config = base.get_config().unlock()
  config.benchmark.update(repeats=1, contexts=(16,), lengths=(16, 32))
  return settings.of(config.lock())


@pytest.fixture(scope='module')
def compiled():
  """Steps by their config: each is compiled once."""
  return {}


@pytest.fixture(autouse=True)
def small_machine(monkeypatch, compiled):
  """Ceilings are measured in an instant, and a step of 16 tokens is one row in every part."""

  def bare(config):
    key = config_lib.fingerprint(config)
    if key not in compiled:
      compiled[key] = step.Bare(config)
    return compiled[key]

  for part in (train, scaling, peers):
    monkeypatch.setattr(part, 'Bare', bare)
  monkeypatch.setattr(scaffold, 'TOKENS', 16)
  monkeypatch.setattr(timing, 'matrix_size', lambda: 64)
  monkeypatch.setattr(timing, 'copy_size', lambda: 1024)


def measured(section):
  """Rows and notes."""
  found = list(section)
  rows = [item for item in found if isinstance(item, dict)]
  assert rows
  page.table(rows)
  return rows, [item for item in found if isinstance(item, str)]


def test_a_step_has_as_many_tokens_at_every_context(monkeypatch):
  monkeypatch.setattr(scaffold, 'TOKENS', 64)
  batches = [scaffold.config('sgn', context=n, **TINY).train.batch for n in (16, 64, 128)]
  assert batches == [4, 1, 1]
  assert scaffold.config('sgn', context=16, batch=3, **TINY).train.batch == 3


def test_ops(asked):
  rows, _ = measured(ops.gated_dct(asked, shapes=((2, 32, 4),)))
  assert [row['pass'] for row in rows] == ['forward', 'forward and gradient']
  assert all(row['ours / FFT pair'] > 0 for row in rows)
  rows, _ = measured(ops.convolution(asked, shapes=((2, 32, 4),)))
  assert all(row['ours / FFTs'] > 0 for row in rows)
  rows, notes = measured(ops.crossover(asked, points=(8,), numbers=256))
  assert rows[0]['rows'] == 32
  assert f'up to {MATRIX_UP_TO["cpu"]} on cpu' in notes[0]


def test_mixers_mark_what_sees_the_future(asked):
  names = ('softmax', 'sgn-published')
  rows, _ = measured(mixers.steps(asked, width=16, length=16, batch=1, names=names))
  assert [row[page.FLAG] for row in rows] == [False, True]
  assert rows[0]['float32 / softmax'] == rows[0]['bfloat16 / softmax'] == 1
  assert all(row['bfloat16 / float32'] > 0 for row in rows)
  lines = page.table(rows)
  assert lines[3].count('LEAKY') == len(rows[1]) - 2
  assert 'LEAKY' not in lines[2]


def test_train_against_the_machine(asked):
  rows, notes = measured(train.softmax(asked, context=16, **TINY))
  assert [row['layers'] for row in rows] == ['scan over layers', 'unrolled']
  assert all(row['share of the matrix rate'] > 0 for row in rows)
  assert any('forward and backward' in note for note in notes)


def test_train_over_contexts_says_what_does_not_fit(asked, monkeypatch):
  rows, _ = measured(train.contexts(asked, **TINY))
  assert [(row['context'], row['batch']) for row in rows] == [(16, 1)]
  assert rows[0]['softmax / SGN'] > 0
  monkeypatch.setattr(train.timing, 'room', lambda: 1000)
  rows, notes = measured(train.contexts(asked, **TINY))
  assert 'with 1 layers softmax needs' in notes[0]
  assert rows[0]['softmax / SGN'] is None
  assert 'GiB' in rows[0]['note']
  assert rows[0]['SGN, ms'] > 0


def test_train_what_gates_cost(asked, monkeypatch):
  assert set(train.COSTS) <= set(VARIANTS)
  monkeypatch.setattr(train, 'COSTS', {'softmax': None, 'sgn': 1.05})  # compiled for other parts
  rows, _ = measured(train.attention(asked, lengths=(16,), **TINY))
  assert [row['mixer'] for row in rows] == ['softmax', 'sgn']
  assert rows[0]['/ softmax'] == 1


def test_scaling_fits_exponents(asked):
  rows, notes = measured(scaling.lengths(asked, **TINY))
  assert [row['length'] for row in rows] == [16, 32]
  assert [note.split(':')[0] for note in notes] == [
    'Exponent of time',
    'Exponent of peak memory',
    'Exponent of temporaries',
  ]


@pytest.mark.slow
def test_scaling_the_loop_and_its_step(asked):
  rows, _ = measured(scaling.loop(asked, steps=12, context=16, runs=1, **TINY))
  assert all(row['in the loop, ms'] > 0 and row['bare step, ms'] > 0 for row in rows)


def test_decode(asked, monkeypatch):
  from sgnjax.analysis import decoding

  monkeypatch.setattr(decoding, 'KINDS', {'softmax': decoding.KINDS['softmax']})
  rows, _ = measured(decode.tokens(asked, lengths=(8,), steps=4, repeats=1, layers=1, width=8))
  assert rows[0]['tokens/s'] == pytest.approx(1e6 / rows[0]['us a token'])


@pytest.mark.parametrize(
  'kind',
  [
    'packed documents',
    *(pytest.param(k, marks=pytest.mark.slow) for k in ('mixture', 'labelled text')),
    *(pytest.param(k, marks=pytest.mark.slow) for k in ('text, windows', 'images, changed')),
  ],
)
def test_data(asked, kind):
  rows, _ = measured(data.loader(asked, kinds=(kind,), workers=(0,), seconds=0.01, **TINY))
  assert rows[0]['batches of'] == kind
  assert rows[0]['0 workers, /s'] > 0
  assert rows[0]['0 workers / step'] > 0


def test_compile_time_of_more_layers(asked):
  small = ['model.width=16', 'model.heads=2', 'model.context=16', 'model.vocab=64']
  rows, _ = measured(compiling.layers(asked, counts=(2,), overrides=small))
  assert rows[0]['both, s'] > rows[0]['traced, s'] > 0


@pytest.mark.slow
def test_compile_cold_and_warm(asked):
  rows, _ = measured(compiling.starts(asked, names=('softmax',), warm=1, context=16, **TINY))
  assert rows[0]['warm, s'] > 0
  assert rows[0]['cold, s'] > 0


@pytest.mark.slow
def test_peers(asked):
  there = importlib.util.find_spec('torch') is not None
  rows, notes = measured(peers.steps(asked, **TINY))
  named = [row['step of'] for row in rows]
  assert named == ['our softmax', 'our SGN', 'Flax, as usual', 'PyTorch, eager']
  said = f'{rows[-1]} {notes}'
  assert (rows[0]['PyTorch / this'] is not None) == there
  assert (peers.NO_TORCH in said) == (not there)


def test_a_peer_that_does_not_fit_is_left_out(asked, monkeypatch):
  monkeypatch.setattr(peers.timing, 'room', lambda: 2**10)
  rows, _ = measured(peers.steps(asked, **TINY))
  told = {row['step of']: row.get('note') for row in rows}
  assert told['Flax, as usual'].startswith('not run: needs 0.0 GiB of 0.0 that are free')
  assert told['our SGN'] is None
  assert all(row.get('Flax / this') is None for row in rows)


def test_peers_of_one_shape_have_as_many_parameters():
  torch = pytest.importorskip('torch', reason="PyTorch is not installed: the extra 'peers'")
  import jax

  config = scaffold.config('softmax', context=16, qkv_bias=True, **TINY)
  model = step.build(config)
  vocab = model.padded_vocab
  flax = peers.FlaxDecoder(vocab, 16, 2, 1, 16)
  tokens_BL = jax.ShapeDtypeStruct((1, 16), 'int32')
  ours, usual = (
    sum(a.size for a in jax.tree.leaves(jax.eval_shape(m.init, jax.random.key(0), tokens_BL)))
    for m in (model, flax)
  )
  assert usual == ours
  modules = []
  original = torch.optim.AdamW

  class Spy(original):
    def __init__(self, parameters, **options):
      parameters = list(parameters)
      modules.extend(parameters)
      super().__init__(parameters, **options)

  torch.optim.AdamW = Spy
  try:
    peers.torch_step(config, vocab)()
  finally:
    torch.optim.AdamW = original
  assert sum(p.numel() for p in modules) == ours


def test_tpu_without_its_compiler_says_so(asked, monkeypatch):
  monkeypatch.setattr(tpu.importlib.util, 'find_spec', lambda name: None)
  for section in tpu.SECTIONS.values():
    assert list(section(asked)) == [tpu.NOT_HERE]


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec('libtpu') is None, reason='libtpu is not installed')
def test_tpu(asked):
  small = ('model.width=32', 'model.layers=3', 'train.batch=2')
  rows, _ = measured(tpu.sgn(asked, lengths=(64,), overrides=small))
  assert rows[0]['TFLOP a chip'] > 0
  assert rows[0]['least, ms'] >= rows[0]['arithmetic, ms'] > 0
  rows, _ = measured(tpu.transforms(asked, points=(1024,), numbers=2**22))
  assert rows[0]['matrix, GFLOP'] >= 2 * 1024 * 2**22 / 1e9
  assert rows[0]['matrix, least, ms'] >= 6 * rows[0]['matrix, GFLOP'] / 197


def gpu_config(*changes):
  small = ['layers=2', 'width=32', 'heads=2', 'vocab=64', 'chiar.route_window=16']
  flags = [f'model.{change}' for change in small]
  flags += ['train.batch=2', 'model.context=32', 'benchmark.repeats=1', *changes]
  return config_lib.load('configs/bench_gpu.py', flags)


def test_the_gpu_script_says_that_nothing_was_run(tmp_path, capsys):
  assert job.run(gpu_config(), tmp_path / 'run') == 0
  text = (tmp_path / 'run' / 'benchmark.md').read_text()
  assert text.count(gpu.NOT_HERE) == len(gpu.SECTIONS)


@pytest.mark.slow
def test_the_gpu_script_at_a_small_size(tmp_path, monkeypatch, capsys):
  monkeypatch.setattr(gpu, 'present', lambda: True)
  monkeypatch.setattr(gpu, 'kernel', lambda: 'xla')
  monkeypatch.setattr(gpu, 'POINTS', (8, 16))
  config = gpu_config('benchmark.contexts=(32,)', 'benchmark.lengths=(16,32)')
  assert job.run(config, tmp_path / 'run') == 0
  text = (tmp_path / 'run' / 'benchmark.md').read_text()
  assert '| 32 | capacity |' in text
  assert "implementation='xla'" in text
  assert 'Convention' in text
  assert 'not run' not in text
