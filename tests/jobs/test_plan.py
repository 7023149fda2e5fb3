"""The plan: exact counts of the papers' models, and what the job prints."""

import jax
import jax.numpy as jnp
import pytest

from configs import base
from sgnjax import config as config_lib
from sgnjax.errors import UserError
from sgnjax.jobs import plan
from sgnjax.models import build, count
from sgnjax.models.variants import variant
from sgnjax.ops.backend import untiled

EGA = {
  'token embedding': 16_640,
  'positions': 65_536,
  'attention q, k, v, o': 1_574_400,
  'ffn': 3_153_408,
  'norms': 6_656,
}
FOURIER = EGA | {'output head': 16_640, 'attention q, k, v, o': 1_572_864}
CHIAR_400M = {
  'token embedding': 51_463_168,
  'attention q, k, v, o': 113_356_800,
  'ffn': 235_024_384,
  'norms': 169_984,
  'DCT weights': 27_648,
  'MetaRouter': 1_025,
}
BASELINE_400M = {
  'token embedding': 51_463_168,
  'attention q, k, v, o': 117_555_200,
  'ffn': 235_024_384,
  'norms': 116_736,
}
CHIAR_16M = {
  'token embedding': 12_865_792,
  'attention q, k, v, o': 789_504,
  'ffn': 2_102_272,
  'norms': 5_632,
  'DCT weights': 768,
  'MetaRouter': 257,
}
BASELINE_16M = {
  'token embedding': 12_865_792,
  'attention q, k, v, o': 1_052_672,
  'ffn': 2_102_272,
  'norms': 4_608,
}
# config, changes of it, total, components
PUBLISHED = {
  'EGA scaffold': ('shakespeare_softmax', (), 4_816_640, EGA),
  'EGA-1': ('shakespeare_ega', (), 4_829_120, EGA | {'mechanism': 12_480}),
  'EGA-2': ('shakespeare_ega', ('ega.scales=2',), 4_841_600, EGA | {'mechanism': 24_960}),
  'EGA-4': ('shakespeare_ega', ('ega.scales=4',), 4_866_560, EGA | {'mechanism': 49_920}),
  'FourierQK scaffold': ('shakespeare_fourier_qk', ('mixer=softmax',), 4_831_744, FOURIER),
  'FourierQK Gaussian': (
    'shakespeare_fourier_qk',
    (),
    4_831_792,
    FOURIER | {'mechanism': 48},
  ),
  'FourierQK DC': ('shakespeare_fourier_qk', ('fourier_qk.filter=dc',), 4_831_744, FOURIER),
  'FourierQK hats': (
    'shakespeare_fourier_qk',
    ('fourier_qk.filter=mexican_hat',),
    4_831_936,
    FOURIER | {'mechanism': 192},
  ),
  'CHIAR 400M': ('chiar_400m', (), 400_043_009, CHIAR_400M),
  'CHIAR 400M without MetaRouter': (
    'chiar_400m',
    ('chiar.meta=False',),
    400_041_984,
    {k: v for k, v in CHIAR_400M.items() if k != 'MetaRouter'},
  ),
  'baseline 400M': ('chiar_400m_baseline', (), 404_159_488, BASELINE_400M),
  'CHIAR 16M': ('chiar_16m', (), 15_764_225, CHIAR_16M),
  'baseline 16M': ('chiar_16m', ('mixer=chiar_attention',), 16_025_344, BASELINE_16M),
}


def shapes(config):
  model = build(config)
  tokens_BL = jax.ShapeDtypeStruct((1, 4), jnp.int32)
  return model, jax.eval_shape(model.init, jax.random.key(0), tokens_BL)['params']


@pytest.mark.parametrize('name', PUBLISHED)
def test_counts_of_the_published_models(name):
  file, changes, total, components = PUBLISHED[name]
  config = config_lib.load(f'configs/{file}.py', [f'model.{change}' for change in changes])
  model, params = shapes(config)
  assert count(model, params) == total
  assert plan.components(model, params) == components
  assert sum(components.values()) == total


def test_every_parameter_of_every_config_has_a_component():
  for file in ('quickstart', 'shakespeare_sgn', 'shakespeare_chiar'):
    config = config_lib.load(f'configs/{file}.py', ['model.vocab=65'])
    model, params = shapes(config)
    assert sum(plan.components(model, params).values()) == count(model, params)


def test_activations_grow_with_the_length_and_as_the_scores_do_where_they_are_whole():
  config = base.get_config().unlock()
  config.model.vocab, config.model.context, config.model.layers = 65, 512, 2
  model, params = shapes(config)

  def both():
    return (plan.activations(model, params, length=n) for n in (256, 512))

  short, long = both()
  assert long == 2 * short
  scores = 512 * 512 * config.model.heads * config.model.layers * 4
  with untiled():
    short, whole = both()
  assert 2 * short < whole < 4 * short
  assert whole - long > scores


def test_the_job_prints_what_a_person_needs(capsys, tmp_path):
  assert plan.run(config_lib.load('configs/chiar_16m.py', ['mesh.fsdp=1']), tmp_path) == 0
  text = capsys.readouterr().out
  for wanted in ('15,764,225', 'ffn products', 'MetaRouter gate', 'Adam moments', '32,768', 'XLA'):
    assert wanted in text
  check = [line for line in text.splitlines() if line.startswith('forward')]
  assert len(check) == 2
  assert all(abs(float(line.split()[-1].rstrip('%'))) < 2 for line in check)
  assert '--config.target=v5e-64' in text
  assert 'compiling' not in text
  assert not list(tmp_path.iterdir())
  assert all(len(line) < 120 and line == line.rstrip() for line in text.splitlines())


def test_a_target_has_its_layout_printed(capsys, tmp_path):
  tiny = ['model.layers=1', 'model.width=32', 'model.context=16', 'train.batch=8']
  mesh = ['mesh.data=2', 'mesh.fsdp=2', 'mesh.tensor=2']
  config = config_lib.load('configs/quickstart.py', [*tiny, *mesh, 'target=h100-8'])
  assert plan.run(config, tmp_path) == 0
  text = capsys.readouterr().out
  for wanted in (
    'layout on h100-8: 8 devices of 74.51 GiB, mesh of data 2 x fsdp 2 x tensor 2 x sequence 1',
    'stack/group_0/0_sgn/ffn/up/kernel',
    '-, fsdp, tensor',
    "a CPU's program stands in",
    'fits in 74.51 GiB',
    'all-gather',
    '(NVLink)',
    'bound by',
    'nearest smaller that fits: h100-4, mesh of data 2 x fsdp 1 x tensor 2 x sequence 1',
    'nearest larger that fits: h100-16, mesh of data 2 x fsdp 4 x tensor 2 x sequence 1',
  ):
    assert wanted in text, wanted
  assert not list(tmp_path.iterdir())
  assert all(len(line) < 120 and line == line.rstrip() for line in text.splitlines())


def test_the_devices_here_are_planned_for_too(capsys, tmp_path):
  tiny = ['model.layers=1', 'model.width=32', 'model.context=16', 'train.batch=8']
  assert plan.run(config_lib.load('configs/quickstart.py', tiny), tmp_path) == 0
  text = capsys.readouterr().out
  assert 'layout on the devices here: 8 devices, mesh of data 8 x' in text
  assert 'all-reduce' in text
  assert "no peak rates or memory are known of 'here'" in text


@pytest.mark.parametrize(
  ('target', 'mesh', 'said'),
  [
    ('v5e-63', [], "did you mean 'v5e-64'"),
    ('h100-8', ['mesh.data=2'], 'leaves 6 of the 8 devices'),
    ('h100-8', ['mesh.data=16'], 'does not fit 8 devices'),
  ],
)
def test_targets_that_cannot_be_planned(target, mesh, said, tmp_path):
  config = config_lib.load('configs/quickstart.py', [f'target={target}', *mesh])
  with pytest.raises(UserError, match=said):
    plan.run(config, tmp_path)


def test_an_unknown_vocabulary_is_assumed_and_said_to_be(capsys, tmp_path):
  config = config_lib.load('configs/quickstart.py', ['mesh.data=1'])
  plan.run(config, tmp_path)
  assert 'vocabulary of 128 assumed' in capsys.readouterr().out
  with config.unlocked():
    config.data.tokenizer = 'chars'
  with pytest.raises(UserError, match="did you mean 'char'"):
    plan.run(config, tmp_path)
  with config.unlocked():
    config.data.tokenizer, config.data.vocab_size = 'bpe', 300
  plan.run(config, tmp_path)
  assert 'vocabulary of 300 assumed' in capsys.readouterr().out


def test_an_awkward_fft_length_is_said(capsys, tmp_path):
  change = ['model.context=509', 'model.form=published', 'model.layers=1', 'mesh.data=1']
  plan.run(config_lib.load('configs/quickstart.py', change), tmp_path)
  text = capsys.readouterr().out
  assert 'FFT of 509 points (the sequence) is of awkward length' in text
  plan.run(config_lib.load('configs/quickstart.py', ['model.layers=1', 'mesh.data=1']), tmp_path)
  assert 'awkward' not in capsys.readouterr().out


@pytest.mark.parametrize(
  ('name', 'lengths'),
  [
    ('sgn', [512]),
    ('sgn-resolutions', [512, 256, 128]),
    ('sgn-masked', []),
    ('sgn-adaptive-masked', [256]),
    ('sgn-published', [200]),
    ('sgn-published-2d', []),  # a DCT of 16 points is a product with a matrix
    ('sgn-bidirectional-2d', [32]),
    ('fourier_qk', [512]),
    ('fourier_qk-taps-gaussian', []),
    ('fourier_qk-surrogate', [200]),
    ('fourier_qk-surrogate-shift', [200]),
    ('ega_fourier_qk', [512]),
    ('chiar-capacity-all', []),  # over the width of 128
    ('chiar-orthogonal', []),
    ('fnet', [128, 200]),
    ('performer', []),
  ],
)
def test_fft_lengths_of_variants(name, lengths):
  config = base.get_config().unlock()
  config.model.vocab, config.model.context = 65, 256
  model = build(variant(config, name))
  assert list(plan.fft_lengths(model, length=200)) == lengths
