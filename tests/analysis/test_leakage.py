"""The shuffled gap and the audit's sizes, on models whose leak is known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs import base
from sgnjax import audit
from sgnjax.analysis import leakage, leakage_page
from sgnjax.audit.sizes import sizes
from sgnjax.jobs import leakage as job
from sgnjax.models import build
from sgnjax.models.variants import variant
from sgnjax.train.loop import train

TEXT = 'the quick brown fox jumps over the lazy dog; pack my box with five dozen jugs. ' * 8


def changes_of(name: str) -> dict[str, np.ndarray]:
  config = base.get_config().unlock()
  config.model.update(width=16, heads=2, layers=2, context=16, vocab=11, vocab_multiple=8)
  model = build(variant(config, name))
  tokens_BL = np.random.default_rng(0).integers(0, 11, (2, 16)).astype(np.int32)
  params = audit.randomise(audit.initial(model, jnp.asarray(tokens_BL)))
  return sizes(model, params, tokens_BL, cut=8, vocab=11)


def test_a_published_dct_leaks_in_every_layer_at_every_place():
  found = changes_of('sgn-published')
  assert [name.partition(' (')[0] for name in found] == [
    'embedding', 'layer 00', 'layer 01', 'logits',
  ]  # fmt: skip
  assert all(change_L.shape == (8,) for change_L in found.values())
  assert found['embedding'].max() == 0
  for name in list(found)[1:]:
    assert found[name].min() > 1e-4


def test_a_causal_kernel_changes_by_rounding_alone():
  assert max(change_L.max() for change_L in changes_of('sgn').values()) < 1e-12


def test_a_permutation_keeps_every_token():
  tokens_N = np.arange(50) % 7
  mixed_N = leakage.shuffled(tokens_N)
  np.testing.assert_array_equal(np.sort(mixed_N), np.sort(tokens_N))
  assert (mixed_N != tokens_N).mean() > 0.5
  np.testing.assert_array_equal(mixed_N, leakage.shuffled(tokens_N))


def test_the_rule_of_the_paper():
  assert [leakage.reading(gap) for gap in (4.1, 3.0, 1.9)] == ['clean', 'between', 'leaky']


@pytest.fixture(scope='module')
def run(tmp_path_factory):
  """A run of published FourierQK, which leaks."""
  folder = tmp_path_factory.mktemp('leak')
  (folder / 'text.txt').write_text(TEXT)
  c = base.get_config().unlock()
  c.mesh.data = 1
  c.allow_leak = True
  c.model.update(layers=1, width=16, heads=2, context=16, vocab_multiple=8)
  c.model.update(mixer='fourier_qk', form='published')
  c.data.update(name='text', path=str(folder / 'text.txt'), threads=0)
  c.train.update(steps=2, batch=4, eval_every=2, checkpoint_every=2, progress=False)
  c.train.compile_cache = False
  c.optim.warmup = 1
  c.eval.batch = 4
  train(c.lock(), folder / 'run')
  return folder / 'run'


@pytest.mark.slow
def test_a_run_and_its_page(run, capsys):
  jax.clear_caches()
  assert job.run(None, run) == 0
  said = capsys.readouterr().out
  assert 'the audit: LEAKY' in said
  assert 'phases shift' in said
  assert next(line for line in said.splitlines() if 'coverage' in line).endswith('% LEAKY')
  page = run.parent / 'docs' / 'results' / 'leakage.md'
  page.parent.mkdir(parents=True)
  leakage_page.main([str(page), str(run)])
  text = page.read_text()
  assert '| LEAKY | ' in text
  for name in ('leakage_gap', 'leakage_layers'):
    assert (run.parent / 'docs' / 'pictures' / f'{name}.png').is_file()
    assert f'../pictures/{name}.png' in text


def test_causal_models_are_drawn_apart():
  found = [
    {'name': n, 'gap': g, 'size': s, 'leaky': s > 0, 'reading': leakage.reading(g)}
    for n, g, s in (('a', 4.5, 0.0), ('b', 4.6, 1e-3), ('c', 4.6, 2e-3))
  ]
  figure = leakage_page.gap_against_audit(found)
  assert figure.get_suptitle() == 'The gap passes models that the audit fails'
  names = [t.get_text() for t in figure.axes[0].texts]
  assert {'a', 'b LEAKY', 'c LEAKY'} <= set(names)
