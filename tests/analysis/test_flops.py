"""The formulas against XLA's own count, and what they say of themselves."""

import jax
import jax.numpy as jnp
import pytest

from configs import base
from sgnjax.analysis import flops
from sgnjax.analysis.flops.tally import Tally
from sgnjax.errors import UserError
from sgnjax.mixers import MIXERS
from sgnjax.mixers.softmax import Softmax
from sgnjax.models import build, maker
from sgnjax.models.variants import variant
from sgnjax.ops import linear_attention


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


# Of the named variants, each term that no config above has.
CORE = (
  *('sgn-fft', 'sgn-adaptive', 'sgn-resolutions', 'sgn-random', 'sgn-published-adaptive'),
  *('sgn-published-2d', 'fourier_qk-analytic', 'fourier_qk-taps-morlet', 'fourier_qk-surrogate'),
  *('fourier_qk-bidirectional-analytic', 'chiar-v1-soft', 'chiar-orthogonal'),
  *('chiar-capacity-routed', 'ega-conv', 'ega-morlet', 'ega-packet', 'ega_fourier_qk'),
  *('softmax-alibi', 'linear', 'performer-bidirectional', 'haar', 'uniform'),
)
WHOLE = ('sgn-adaptive-masked', 'sgn-bidirectional-2d', 'ega-db4', 'performer', 'fnet')


def totals(twin):
  """Forward, and forward and backward, by the formulas and by XLA."""
  shape = {'batch': 2, 'length': twin.model.context}
  terms = flops.costs(build(twin), **shape)
  forward = sum(cost.forward for cost in terms.values())
  training = sum(cost.training for cost in terms.values())
  theirs = (flops.xla_flops(twin, **shape, gradient=gradient) for gradient in (False, True))
  return (forward, training), tuple(theirs)


ENCODERS = {
  'classes of text': {'data.task': 'classify'},
  'a vector before': {'data.task': 'classify', 'model.pooling': 'cls'},
  'masked tokens': {'data.task': 'mlm'},
  'images': {'data.task': 'classify', 'model.image': (32, 32, 3), 'model.context': 64},
}


@pytest.mark.parametrize('changes', ENCODERS.values(), ids=ENCODERS)
def test_encoders_agree_with_xla_within_two_per_cent(changes):
  config = config_of('softmax', form='bidirectional', classes=7, layers=1)
  config.update_from_flattened_dict(changes)
  ours, theirs = totals(flops.counting_twin(config))
  assert ours == pytest.approx(theirs, rel=0.02)


@pytest.mark.parametrize('name', SHIPPED | OTHERS)
def test_formulas_agree_with_xla_within_two_per_cent(name):
  ours, theirs = totals(flops.counting_twin((SHIPPED | OTHERS)[name]))
  assert ours == pytest.approx(theirs, rel=0.02)


@pytest.mark.slow
@pytest.mark.parametrize('name', WHOLE)
def test_variants_agree_with_xla_within_two_per_cent(name):
  # One layer: a scan over several computes once what no parameter and no token enters.
  config = variant(config_of('softmax', layers=1), name)
  twin = flops.counting_twin(config)
  ours, theirs = totals(twin)
  batch, width = 2, twin.model.width
  more = 0
  if name == 'sgn-bidirectional-2d':  # of 32 x 32 points, 5 x 5 for 5 + 5
    whole, half = 32 * 32, 32 * 17
    more = 8 * (batch + 1) * width * (25 * whole - 5 * (whole + half))
    more += 8 * batch * width * (25 - 10) * half
  assert ours[0] + more == pytest.approx(theirs[0], rel=0.02)
  if name == 'sgn-bidirectional-2d':
    more *= 0.93  # the transposes' operands are of other sizes
  assert ours[1] + 2 * more == pytest.approx(theirs[1], rel=0.02)


@pytest.mark.slow
@pytest.mark.parametrize('name', CORE)
def test_a_mixer_alone_agrees_too(name):
  """Without the products of FFN and head, in another shape that no power of two divides."""
  batch, length = 3, 60  # one block of linear attention
  config = base.get_config().unlock()
  config.model.update(width=96, heads=4, context=length)
  config = variant(config, name)
  mixer = maker(config, config.model.mixer)()
  tally = Tally()
  flops.FORMULAS[type(mixer)](tally, mixer, batch, length)
  x_BLD = jax.ShapeDtypeStruct((batch, length, 96), jnp.float32)
  params = jax.eval_shape(mixer.init, jax.random.key(0), x_BLD).get('params', {})

  def count(train):
    def loss(params, x_BLD):
      return jnp.sum(mixer.apply({'params': params}, x_BLD, train=train).y_BLD)

    function = jax.value_and_grad(loss, (0, 1)) if train else loss
    return jax.jit(function).lower(params, x_BLD).cost_analysis()['flops'] - x_BLD.size

  rel = 0.1 if name == 'haar' else 0.02  # no products at all
  assert sum(cost.forward for cost in tally.values()) == pytest.approx(count(False), rel=rel)
  assert sum(cost.training for cost in tally.values()) == pytest.approx(count(True), rel=rel)


def test_blocks_of_linear_attention_add_up(monkeypatch):
  """XLA counts the one turn of a scan; as many tokens in more blocks have more turns of less."""
  config = variant(config_of('softmax', layers=1), 'linear')
  shape = {'batch': 2, 'length': 256}
  one, four = (dict(flops.costs(build(config), **(shape | {'length': n}))) for n in (64, 256))
  for term in ('block scores', 'block values', 'sums of keys'):
    assert four[term].forward == 4 * one[term].forward
  xla = flops.xla_flops(config, **shape)
  missing = sum(four[t].forward for t in four if t.startswith(('block', 'sums'))) * 3 / 4
  assert sum(c.forward for c in four.values()) - missing == pytest.approx(xla, rel=0.02)
  assert linear_attention.BLOCK == 64


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


def test_what_training_lacks_is_not_counted_there():
  config = variant(config_of('softmax', layers=1), 'fourier_qk-surrogate')
  plain = variant(config_of('softmax', layers=1), 'fourier_qk-published')
  shape = {'batch': 1, 'length': 256}
  both = [flops.costs(build(c), **shape) for c in (config, plain)]
  forward = [sum(cost.forward for cost in terms.values()) for terms in both]
  training = [sum(cost.training for cost in terms.values()) for terms in both]
  assert forward[0] > 1.01 * forward[1]
  assert training[0] == training[1]


def test_fixed_gates_and_filters_cost_no_gradient():
  for name, fixed in (('sgn', 'sgn-random'), ('fourier_qk', 'fourier_qk-fixed')):
    costs = [
      flops.costs(build(variant(config_of('softmax', layers=1), n)), batch=1, length=256)
      for n in (name, fixed)
    ]
    kernels = next(term for term in costs[0] if term.endswith('kernels'))
    assert costs[0][kernels].backward > 0
    assert costs[1][kernels] == flops.Cost(costs[0][kernels].forward, 0)


def test_nothing_is_hidden_where_all_tokens_see_each_other():
  model = build(variant(config_of('softmax'), 'softmax-bidirectional'))
  assert flops.causal_saving(model, batch=1, length=256) == 0


def test_a_mixer_without_a_formula_is_refused_by_name(monkeypatch):
  class Other(Softmax):
    pass

  monkeypatch.setitem(MIXERS, 'softmax', Other)
  with pytest.raises(UserError, match='Other'):
    flops.flops(config_of('softmax'), batch=1, length=8)


@pytest.mark.parametrize(
  ('mixer', 'option'),
  [
    ('sgn', 'basis'),
    ('sgn', 'gate'),
    ('fourier_qk', 'kernel'),
    ('fourier_qk', 'scores'),
    ('fourier_qk', 'surrogate'),
    ('ega', 'energy'),
    ('ega', 'znorm'),
    ('ega_fourier_qk', 'energy'),
    ('chiar', 'router'),
    ('chiar', 'dispatch'),
    ('chiar', 'kv'),
    ('chiar', 'basis'),
  ],
)
def test_a_choice_without_a_formula_is_refused_by_name(mixer, option):
  config = config_of(mixer)
  module = maker(config, mixer)(parent=None).clone(**{option: 'another'})
  with pytest.raises(UserError, match=f"'{mixer}' with .*='another'"):
    flops.FORMULAS[type(module)](Tally(), module, 1, 64)


def test_every_mixer_has_a_formula():
  assert set(MIXERS.values()) == set(flops.FORMULAS)
