"""`import sgnjax`: fast, in any order; audits of models that are not ours."""

import itertools
import re
import subprocess
import sys
from pathlib import Path

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sgnjax
from configs import base
from sgnjax.errors import UserError

ROOT = Path(__file__).parent.parent
USES = (
  'import sgnjax; assert callable(sgnjax.train) and callable(sgnjax.audit)',
  'from sgnjax.audit import Report, gate; from sgnjax import audit; assert audit.gate is gate',
  'from sgnjax.train import loop; import sgnjax.train.log; assert sgnjax.train.loop is loop',
)
# A call that ends in a sentence, before anything is computed.
CALLS = """
import sgnjax
from sgnjax.errors import UserError
for call, said in ((lambda: sgnjax.train(3), 'ConfigDict'), (lambda: sgnjax.audit(abs), 'vocab=')):
  try:
    call()
  except UserError as error:
    assert said in str(error), error
  else:
    raise AssertionError('nothing was said')
"""


def fresh(code: str) -> str:
  done = subprocess.run(
    [sys.executable, '-c', code], cwd=ROOT, capture_output=True, text=True, check=False
  )
  assert done.returncode == 0, done.stderr
  return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize('order', list(itertools.permutations(USES)), ids=range(6))
def test_names_that_are_packages_can_be_called_in_any_order_of_imports(order):
  fresh('\n'.join([*order, CALLS]))


def test_a_call_first_and_an_import_after_it():
  fresh('\n'.join([CALLS, *USES, CALLS]))


def test_import_is_fast_and_loads_nothing():
  code = (
    'import sys, time; start = time.perf_counter(); import sgnjax;'
    'print(time.perf_counter() - start); dir(sgnjax); sgnjax.errors; sgnjax.train;'
    "print({'jax', 'flax', 'numpy', 'orbax', 'matplotlib'} & set(sys.modules))"
  )
  seconds, loaded = fresh(code).split('\n', 1)
  assert float(seconds) < 0.5
  assert loaded.strip() == 'set()'


def test_every_public_name_is_there():
  for name in sgnjax.__all__:
    assert getattr(sgnjax, name) is not None
    assert name in dir(sgnjax)
  with pytest.raises(AttributeError, match='no attribute'):
    sgnjax.nothing  # noqa: B018


class Attention(nn.Module):
  masked: bool

  @nn.compact
  def __call__(self, x_BLD):
    mask = nn.make_causal_mask(jnp.ones(x_BLD.shape[:2])) if self.masked else None
    return x_BLD + nn.MultiHeadDotProductAttention(2, name='heads')(x_BLD, mask=mask)


class Theirs(nn.Module):
  """A small transformer that knows nothing of sgnjax; layer `leak` has no mask."""

  leak: int = -1
  dtype: type | None = None

  @nn.compact
  def __call__(self, tokens_BL, train=True):
    x_BLD = nn.Embed(13, 8, dtype=self.dtype)(tokens_BL)
    for i in range(2):
      x_BLD = Attention(i != self.leak, name=f'layer_{i}')(x_BLD)
    x_BLD = nn.Dropout(0.5, deterministic=not train)(x_BLD)
    return nn.Dense(13, dtype=self.dtype)(x_BLD), 'something else'


def test_a_flax_module_of_somebody_else():
  report = sgnjax.audit(Theirs(), vocab=13, length=12, train=False)
  assert not report.leaky
  assert report.how == 'float64 on a CPU'
  assert report.verdict().startswith('CAUSAL: Theirs is blind to: later tokens, other examples')
  leaky = sgnjax.audit(Theirs(leak=1), vocab=13, length=12, train=False)
  assert leaky.leaky
  assert re.match(r'submodule \d+ \(layer_1/heads/', leaky.layer)


class Deep(nn.Module):
  """More than a hundred submodules, of which the sixtieth sees the row."""

  @nn.compact
  def __call__(self, tokens_BL):
    x_BLD = nn.Embed(5, 4, name='embedding')(tokens_BL)
    for i in range(2, 103):
      if i == 60:
        x_BLD = x_BLD + x_BLD.mean(axis=1, keepdims=True)
      x_BLD = x_BLD + nn.Dense(4, name=f'dense_{i}')(x_BLD) / 100
    return nn.Dense(5, name='head')(x_BLD)


@pytest.mark.slow
def test_the_first_of_a_hundred_submodules_is_named():
  assert sgnjax.audit(Deep(), vocab=5, length=4).layer == 'submodule 060 (dense_60)'


def test_a_flax_module_with_its_own_weights_and_type():
  module = Theirs(leak=0, dtype=jnp.bfloat16)
  variables = module.init(jax.random.key(0), np.zeros((1, 2), np.int32), train=False)
  for given in (variables, variables['params']):
    report = sgnjax.audit(module, given, vocab=13, length=12, train=False)
    assert report.how == 'bfloat16 on a CPU'
    assert report.leaky == (report.size > 0.01)


def history(tokens_BL):
  """Counts of the tokens so far: a function of NumPy."""
  return np.cumsum(np.eye(7)[np.asarray(tokens_BL)], axis=1)


@pytest.mark.parametrize(
  ('function', 'leaky'),
  [
    (history, False),
    (lambda t: history(t)[:, ::-1], True),
    (lambda t: jax.nn.one_hot(jnp.roll(t, 1, axis=1), 7), True),  # the first sees the last
    (lambda t: history(t) + history(t[::-1]), True),  # another example
    (lambda t: history(t) + 1e-12 * history(t)[:, -1:], False),  # below what rounding may be
  ],
)
def test_a_plain_function(function, leaky):
  report = sgnjax.audit(function, vocab=7, length=10)
  assert report.leaky == leaky
  assert report.declared is None
  assert report.contradiction == ''
  assert ('LEAKY' in report.verdict()) == leaky


def test_a_tighter_limit_is_ones_own_to_set():
  def function(tokens_BL):
    return history(tokens_BL) + 1e-10 * history(tokens_BL)[:, -1:]

  assert sgnjax.audit(function, vocab=7, length=10, limit=0.0).leaky


@pytest.mark.parametrize(
  ('model', 'options', 'said'),
  [
    (3, {'vocab': 5}, 'int is no model'),
    (history, {}, 'give vocab='),
    (history, {'vocab': 7, 'params': {}}, 'audited without params='),
    (history, {'vocab': 1}, 'vocab=1'),
    (lambda t: t, {'vocab': 7}, 'expected logits'),
    (lambda t: np.zeros((*t.shape, 7)), {'vocab': 7}, 'do not depend on the tokens'),
    (lambda t: history(t) * np.nan, {'vocab': 7}, 'not finite'),
    (lambda t: history(t) + np.random.random(), {'vocab': 7}, 'turn dropout off'),
    (Theirs, {'vocab': 13}, 'make an instance'),
    ('nowhere', {}, 'does not exist'),
    (base.get_config(), {'limit': 0.1}, 'audited without limit='),
  ],
)
def test_what_cannot_be_audited_is_told(model, options, said):
  with pytest.raises(UserError, match=said):
    sgnjax.audit(model, **options)


def test_models_of_ours_need_nothing_more():
  config = base.get_config().unlock()
  config.model.update(width=16, heads=2, layers=1, context=12, vocab=11, form='bidirectional')
  report = sgnjax.audit(sgnjax.models.build(config))
  assert report.leaky
  assert report.length == 12
