"""The audit of whole models: it and each mixer's own word must agree, both ways."""

import functools
import json

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs import base
from sgnjax import audit
from sgnjax.errors import LeakError, UserError
from sgnjax.mixers import MIXERS
from sgnjax.mixers.base import Aux, Mixed
from sgnjax.mixers.softmax import Softmax
from sgnjax.models import build


def config_of(mixer='softmax', form='causal', **changes):
  """A small config of that mixer (`chiar`: DCT, routed and attention layer)."""
  c = base.get_config().unlock()
  c.model.mixer, c.model.form = mixer, form
  c.model.layers, c.model.context, c.model.width, c.model.heads = 2, 32, 16, 2
  if MIXERS[mixer].owns_residual:
    c.model.block, c.model.qkv_bias = 'chiar', True
    c.model.layers = 3 if mixer == 'chiar' else 1
  for key, value in changes.items():
    group, _, leaf = key.rpartition('__')
    (c.model[group] if group else c.model)[leaf] = value
  return c.lock()


@functools.cache
def twin_report(mixer, form='causal'):
  return audit.twin_report(config_of(mixer, form))


def initial(model):
  return jax.jit(model.init)(jax.random.key(0), jnp.zeros((1, 4), jnp.int32))['params']


def pairs():
  """Every mixer in every form; those of the papers' mechanisms that differ most are not slow."""
  for mixer in MIXERS:
    for form in MIXERS[mixer].forms:
      quick = mixer in ('sgn', 'fourier_qk', 'chiar', 'ega') and form in ('causal', 'published')
      yield pytest.param(mixer, form, marks=() if quick else pytest.mark.slow)


@pytest.mark.parametrize(('mixer', 'form'), list(pairs()))
def test_the_audit_and_the_model_agree_both_ways(mixer, form):
  report = twin_report(mixer, form)
  assert report.leaky == (not report.declared), report.table()
  assert report.contradiction == ''
  assert report.layer.startswith('layer 00') if report.leaky else report.layer == ''
  compared = [row for row in report.rows if not np.isnan(row.relative)]
  assert all(row.limit == 0 for row in compared if row.check.endswith('(float32)'))
  if report.leaky:
    assert report.size > 1e-5  # far from rounding: the twin's parameters show what there is


VARIANTS = {
  'sgn masked': config_of('sgn', sgn__operator='masked'),
  'sgn bare': config_of('sgn', 'published', sgn__gated=False, block='sgn'),
  'fourier_qk dc': config_of('fourier_qk', 'published', fourier_qk__filter='dc'),
  'fourier_qk hats': config_of('fourier_qk', 'published', fourier_qk__filter='mexican_hat'),
  'fourier_qk wide': config_of('fourier_qk', 'published', fourier_qk__sigma=16.0),
  'ega prefix': config_of('ega', ega__znorm='prefix', positions='rope'),
  'ega released': config_of('ega', 'published', ega__released=True, ega__scales=2),
  'chiar rope, no router': config_of('chiar', 'published', chiar__meta=False, positions='rope'),
}


@pytest.mark.slow
@pytest.mark.parametrize('name', VARIANTS)
def test_variants_agree_too(name):
  report = audit.twin_report(VARIANTS[name])
  assert report.leaky == (not report.declared), report.table()


def test_without_an_fft_the_differences_are_exactly_zero_in_both_precisions():
  report = twin_report('softmax')
  checks = [row.check for row in report.rows]
  assert checks.count('later tokens') == checks.count('later tokens (float32)') == 5
  assert checks.count('other examples') == 2
  assert all(row.difference == 0 for row in report.rows if row.check != 'decoding')
  (decoding,) = (row for row in report.rows if row.check == 'decoding')
  assert decoding.relative < 1e-12
  assert report.verdict().startswith('CAUSAL')
  assert 'exactly 0' in report.verdict()


def test_the_gate_names_the_layer_the_size_and_the_way_out():
  config = config_of('ega', 'published')
  with pytest.raises(LeakError) as caught:
    audit.gate(config, vocab=65)
  text = str(caught.value)
  assert 'sees later tokens' in text
  assert 'layer 00 (ega)' in text
  assert 'of the largest logit' in text
  assert '--config.model.form=causal' in text
  with config.unlocked():
    config.allow_leak = True
  report = audit.gate(config)
  assert report.leaky
  assert 'LEAK layer 00 (ega)' in report.table()


def test_a_leak_behind_a_causal_layer_is_named_where_it_is():
  config = config_of(stack=((('ega', 'softmax'), 1),), form='bidirectional')
  assert audit.twin_report(config).layer == 'layer 00 (ega)'
  config = config_of('sgn', 'published', stack=((('softmax', 'sgn'), 1),))
  assert audit.twin_report(config).layer == 'layer 01 (sgn)'


class Forward(Softmax):
  """Declares itself causal, and lets each token see the next."""

  @nn.compact
  def __call__(self, x_BLD, **call) -> Mixed:
    call.pop('train')
    mixed = super().__call__(x_BLD, **call)
    ahead_BLD = jnp.concatenate([x_BLD[:, 1:], jnp.zeros_like(x_BLD[:, :1])], 1)
    return mixed._replace(y_BLD=mixed.y_BLD + ahead_BLD)


class Shy(Softmax):
  """Declares a leak that is not there."""

  causal = False

  @nn.compact
  def __call__(self, x_BLD, **call) -> Mixed:
    return Mixed(x_BLD, Aux({}, {}, {}), None)


class Forgetful(Softmax):
  """Its cache loses the last token."""

  @nn.compact
  def __call__(self, x_BLD, *, cache=None, **call) -> Mixed:
    mixed = super().__call__(x_BLD, cache=cache, **call)
    if cache is None:
      return mixed
    return mixed._replace(cache=mixed.cache._replace(v_BHSE=mixed.cache.v_BHSE * 0.5))


@pytest.mark.parametrize('kind', [Forward, Shy, Forgetful])
def test_a_mixer_that_lies_is_caught(monkeypatch, kind):
  monkeypatch.setitem(MIXERS, 'softmax', kind)
  error = LeakError if kind is Forward else UserError
  with pytest.raises(error) as caught:
    audit.gate(config_of())
  said = {Forward: 'declares itself causal', Shy: 'declares that it leaks', Forgetful: 'cache'}
  assert said[kind] in str(caught.value)


def test_randomise_moves_every_parameter():
  config = config_of('chiar', vocab=61)
  params = initial(build(config))
  moved = audit.randomise(params)
  for (path, before), after in zip(
    jax.tree_util.tree_leaves_with_path(params), jax.tree.leaves(moved), strict=True
  ):
    assert np.all(np.asarray(before) != after), path
    assert np.std(after) > 1e-3 or after.size == 1, path


def test_trained_parameters_of_any_dtype_are_audited_in_float64():
  config = config_of('fourier_qk', vocab=50, dtype='bfloat16', vocab_multiple=64)
  model = build(config)
  params = initial(model)
  report = audit.audit(model, params, vocab=50, length=24)
  assert not report.leaky
  assert max(row.relative for row in report.rows if row.check == 'later tokens') < 1e-12


def test_the_report_as_text_and_as_json():
  report = twin_report('sgn', 'published')
  lines = report.table().splitlines()
  assert len(lines) == 2 + len(report.rows)
  assert lines[1].split()[:3] == ['check', 'from', 'difference']
  at = lines[1].index('first layer')
  assert all(line[at - 1] == ' ' for line in lines[2:] if len(line) > at)
  tree = json.loads(json.dumps(report.to_json()))
  assert tree['leaky'] is True
  assert tree['layer'] == 'layer 00 (sgn)'
  assert tree['rows'][0]['fails'] is True
  refused = [row for row in tree['rows'] if row['check'] == 'padding']
  assert refused[0]['relative'] is None
  assert refused[0]['note'].startswith("refused: mixer 'sgn'")
