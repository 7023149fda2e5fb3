"""The formulas against XLA's own count, and what they say of themselves."""

import jax
import jax.numpy as jnp
import pytest

from configs import base
from sgnjax.analysis import flops
from sgnjax.errors import UserError
from sgnjax.mixers import MIXERS
from sgnjax.mixers.softmax import Softmax
from sgnjax.models import build


def config_of(mixer, **changes):
  c = base.tiny_shakespeare()
  c.model.mixer = mixer
  c.model.layers = 3
  if mixer.startswith('chiar'):
    c.model.block, c.model.positions, c.model.qkv_bias = 'chiar', 'rope', True
  for key, value in changes.items():
    group, _, leaf = key.rpartition('__')
    (c.model[group] if group else c.model)[leaf] = value
  return c


SHIPPED = {
  'softmax': config_of('softmax'),
  'sgn': config_of('sgn'),
  'fourier_qk': config_of('fourier_qk', tied=False, out_bias=False),
  'ega query': config_of('ega'),
  'ega prefix': config_of('ega', ega__znorm='prefix'),
  'chiar': config_of('chiar'),
}
OTHERS = {
  'softmax postnorm rope': config_of('softmax', block='postnorm', positions='rope'),
  'sgn published': config_of('sgn', form='published', block='sgn', sgn__gated=False),
  'sgn masked': config_of('sgn', sgn__operator='masked'),
  'sgn bidirectional': config_of('sgn', form='bidirectional'),
  'fourier_qk published': config_of('fourier_qk', form='published'),
  'fourier_qk hats': config_of('fourier_qk', fourier_qk__filter='mexican_hat'),
  'ega published': config_of('ega', form='published'),
  'ega four scales': config_of('ega', ega__scales=4),
  'ega released': config_of('ega', ega__released=True),
  'chiar published': config_of('chiar', form='published'),
  'chiar attention': config_of('chiar_attention'),
  'padded vocabulary': config_of('softmax', vocab_multiple=128),
}


@pytest.mark.parametrize('name', SHIPPED | OTHERS)
def test_formulas_agree_with_xla_within_two_per_cent(name):
  twin = flops.counting_twin((SHIPPED | OTHERS)[name])
  shape = {'batch': 2, 'length': twin.model.context}
  terms = flops.costs(build(twin), **shape)
  forward = sum(cost.forward for cost in terms.values())
  training = sum(cost.training for cost in terms.values())
  assert forward == pytest.approx(flops.xla_flops(twin, **shape), rel=0.02)
  assert training == pytest.approx(flops.xla_flops(twin, **shape, gradient=True), rel=0.02)


@pytest.mark.parametrize('name', ['sgn', 'fourier_qk', 'ega query', 'chiar'])
def test_the_mechanism_itself_is_counted_not_only_what_dominates(name):
  """The excess over softmax attention of the same size, where 2 % of a model would hide it."""

  def both(config):
    twin = flops.counting_twin(config)
    shape = {'batch': 2, 'length': twin.model.context}
    return sum(flops.flops(twin, **shape).values()), flops.xla_flops(twin, **shape)

  plain = config_of('chiar_attention') if name == 'chiar' else config_of('softmax')
  (ours, theirs), (ours_plain, theirs_plain) = both(SHIPPED[name]), both(plain)
  assert ours - ours_plain == pytest.approx(theirs - theirs_plain, rel=0.03)


def test_xla_counts_ffts_as_the_formula_says():
  x = jnp.zeros((3, 96), jnp.float32)
  z = jnp.zeros((3, 49), jnp.complex64)
  forward = jax.jit(jnp.fft.rfft).lower(x).cost_analysis()['flops']
  inverse = jax.jit(lambda z: jnp.fft.irfft(z, 96)).lower(z).cost_analysis()['flops']
  assert forward == flops.fft(96, 3) == 8 * 6 * 96 * 3
  assert inverse == flops.fft(96, 3, inverse=True) == 8 * 6 * 49 * 3


def test_a_scan_that_is_not_unrolled_would_be_counted_once():
  twin = flops.counting_twin(config_of('softmax')).unlock()
  shape = {'batch': 2, 'length': twin.model.context}
  unrolled = flops.xla_flops(twin, **shape)
  twin.model.scan_unroll = 1
  assert flops.xla_flops(twin, **shape) < 0.7 * unrolled


def test_products_of_one_layer_by_hand():
  config = config_of('softmax', layers=1, vocab=64)
  terms = flops.flops(config, batch=4, length=256)
  tokens, width = 4 * 256, 256
  assert terms['q, k, v projections'] == 2 * tokens * width * 3 * width
  assert terms['ffn products'] == 2 * tokens * width * 4 * width * 2
  assert terms['scores'] == terms['weighted values'] == 2 * tokens * 256 * width
  assert terms['head'] == 2 * tokens * width * 64
  training = flops.flops(config, batch=4, length=256, training=True)
  assert training['scores'] == 3 * terms['scores']


def test_dense_scores_hold_nearly_twice_the_causal_ones():
  model = build(config_of('softmax'))
  terms = flops.costs(model, batch=1, length=256)
  dense = sum(terms[k].forward for k in ('scores', 'softmax', 'weighted values'))
  assert flops.causal_saving(model, batch=1, length=256) == pytest.approx(dense * 255 / 512)
  assert flops.causal_saving(build(config_of('sgn')), batch=1, length=256) == 0


def test_attention_grows_with_the_square_of_the_length_and_sgn_does_not():
  for mixer, low, high in (('softmax', 2.2, 4), ('sgn', 1.9, 2.2)):
    config = config_of(mixer, context=8192)
    short, long = (sum(flops.flops(config, batch=1, length=n).values()) for n in (4096, 8192))
    assert low < long / short < high


def test_a_mixer_without_a_formula_is_refused_by_name(monkeypatch):
  class Other(Softmax):
    pass

  monkeypatch.setitem(MIXERS, 'softmax', Other)
  with pytest.raises(UserError, match='Other'):
    flops.flops(config_of('softmax'), batch=1, length=8)
