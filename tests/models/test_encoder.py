"""Encoders: what they read, what they give, and what must not move it."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs import base
from sgnjax.audit import randomise
from sgnjax.data.rows import Packed
from sgnjax.errors import UserError
from sgnjax.models import build, count, example, unpadded
from sgnjax.models.shrink import shrink
from sgnjax.models.variants import variant
from tests.theorems.instances import CORE

VOCAB, N = 13, 24
# Of CORE: those that one document a row is for.
REFUSE = {
  *('sgn', 'sgn-masked', 'sgn-published', 'sgn-bidirectional', 'fnet'),
  *('fourier_qk', 'fourier_qk-published', 'ega_fourier_qk', 'ega-published', 'chiar-published'),
}
TEXT = {'model.form': 'bidirectional', 'data.task': 'classify', 'model.classes': 3}
IMAGE = TEXT | {'model.image': (8, 12, 2), 'model.patch': 2, 'model.context': 24}


def config_of(changes, name=None):
  c = base.get_config().unlock()
  m = c.model
  m.layers, m.width, m.heads, m.context, m.vocab, m.vocab_multiple = 1, 16, 2, N, VOCAB, 8
  m.dtype, m.ega.lengths, m.ega.levels = 'float64', (3, 5), 2
  if name is not None:
    c = variant(c, name).unlock()
    if m.mixer == 'chiar' or c.model.mixer == 'chiar':
      c.model.layers = 3
  c.update_from_flattened_dict(changes)
  return c.lock()


@functools.lru_cache(maxsize=4)
def made(changes: tuple, name=None):
  """A model, random parameters in float64, and the jitted model; called inside `enable_x64`."""
  config = config_of(dict(changes), name)
  model = build(config, capture=True)
  inputs = example(config)
  shapes = jax.eval_shape(model.init, jax.random.key(0), jnp.zeros(inputs.shape, inputs.dtype))
  zeros = jax.tree.map(lambda a: np.zeros(a.shape, a.dtype), shapes['params'])
  params = randomise(zeros)
  return model, params, jax.jit(lambda x, **call: model.apply({'params': params}, x, **call)[0])


def ragged(batch=3, seed=0):
  rng = np.random.default_rng(seed)
  tokens = rng.integers(0, VOCAB, (batch, N)).astype(np.int32)
  return tokens, np.arange(N)[None, :] < np.array([N, 5, 11])[:batch, None]


@pytest.mark.parametrize(
  ('name', 'pooling'),
  [
    ('softmax-bidirectional', 'mean'),
    ('softmax-bidirectional', 'cls'),
    ('sgn-bidirectional', 'mean'),
    ('fourier_qk-bidirectional', 'cls'),
    ('chiar-bidirectional', 'mean'),
  ],
)
def test_padding_moves_nothing(name, pooling):
  """Neither what lies under it, nor how much there is, nor the other examples."""
  tokens, mask = ragged()
  mask[0, -1] = pooling == 'mean'  # a vector before a full row would push its last token out
  other = np.where(mask, tokens, (tokens + 1) % VOCAB)
  with jax.enable_x64(True):
    _, _, run = made((*TEXT.items(), ('model.pooling', pooling)), name)
    whole = run(tokens, mask_BL=mask)
    assert whole.shape == (3, 3)
    np.testing.assert_array_equal(whole, run(other, mask_BL=mask))
    np.testing.assert_allclose(whole[1], run(tokens[1:2, :5])[0], rtol=1e-9)
    assert np.max(np.abs(whole[1] - run(tokens[1:2])[0])) > 1e-3


def test_the_mean_of_a_row_of_padding_alone_is_finite():
  with jax.enable_x64(True):
    _, _, run = made(tuple(TEXT.items()), 'softmax-bidirectional')
    assert np.all(np.isfinite(run(ragged(1)[0], mask_BL=np.zeros((1, N), bool))))


def test_patches_are_squares_row_by_row():
  with jax.enable_x64(True):
    model, params, run = made(tuple(IMAGE.items()), 'identity')
    image = np.random.default_rng(0).random((1, 8, 12, 2)).astype(np.float32)
    square = image[0, 2:4, 4:6].reshape(-1).astype(np.float64)  # row 1, column 2 of 4 x 6
    expected = square @ params['patches']['kernel'] + params['patches']['bias']
    embedded = model.apply({'params': params}, image).aux.debug['embedding']
    place = 1 * 6 + 2
    np.testing.assert_allclose(embedded[0, place], expected + params['position'][place], rtol=1e-12)
    assert run(image).shape == (1, 3)
    with pytest.raises(UserError, match=r'images of \(12, 8, 2\)'):
      model.apply({'params': params}, image.swapaxes(1, 2))


def test_a_grid_of_patches_takes_a_transform_of_both_sides():
  changes = IMAGE | {'model.form': 'published', 'model.sgn.grid': (4, 6)}
  with jax.enable_x64(True):
    _, params, run = made(tuple(changes.items()), 'sgn-published')
    assert run(np.ones((2, 8, 12, 2), np.float32)).shape == (2, 3)
    assert params['stack']['group_0']['0_sgn']['mixer']['gate'].shape == (1, 24, 16)


@pytest.mark.parametrize('tied', [True, False])
def test_masked_tokens_have_a_row_and_no_logit(tied):
  changes = {'data.task': 'mlm', 'model.tied': tied, 'model.form': 'bidirectional'}
  with jax.enable_x64(True):
    model, params, run = made(tuple(changes.items()))
    tokens = np.full((1, N), VOCAB, np.int32)  # all masked
    logits = run(tokens)
    assert logits.shape == (1, N, model.padded_vocab) == (1, N, 16)
    assert np.all(logits[..., VOCAB:] == np.finfo(np.float64).min)
    assert np.max(np.abs(logits - run(tokens - 1))[..., :VOCAB]) > 1e-3
  assert unpadded(model, params)['embedding'] == (VOCAB + 2, 16)
  assert ('head' in unpadded(model, params)) == (not tied)
  assert count(model, params) < sum(a.size for a in jax.tree.leaves(params))


@pytest.mark.parametrize(
  ('changes', 'said'),
  [
    ({'data.task': 'classify'}, 'model.classes is not set'),
    (TEXT | {'model.classes': 0}, 'model.classes=0'),
    (TEXT | {'model.pooling': 'max'}, "model.pooling 'max' is not known"),
    (TEXT | {'model.pooling': 'cls', 'model.form': 'causal'}, "model.form='bidirectional'"),
    (IMAGE | {'data.task': 'lm'}, 'data.task=lm is about text'),
    (IMAGE | {'data.task': 'mlm'}, 'data.task=mlm is about text'),
    (IMAGE | {'data.task': 'images'}, "data.task 'images' is not known"),
    (IMAGE | {'model.image': (8, 12)}, 'expected .rows, columns, channels'),
    (IMAGE | {'model.patch': 3}, 'model.patch=3 does not divide images of 8 x 12'),
    (IMAGE | {'model.context': 32}, 'context=32, and 4 x 6 patches are 24 tokens'),
    (IMAGE | {'model.pooling': 'cls'}, 'context=24, and 4 x 6 patches and the .* are 25 tokens'),
    (IMAGE | {'model.sgn.grid': (6, 4)}, r'images have \(4, 6\) patches'),
  ],
)
def test_what_does_not_fit_together_is_said(changes, said):
  with pytest.raises(UserError, match=said):
    build(config_of(changes))


def test_segments_have_no_single_label():
  model = build(config_of(TEXT))
  segments = np.ones((1, N), np.int32)
  with pytest.raises(UserError, match=r'data\.packing=False'):
    jax.eval_shape(
      lambda: model.init(jax.random.key(0), jnp.zeros((1, N), jnp.int32), segments_BL=segments)
    )


def test_the_twin_of_an_image_model_keeps_its_patches():
  config = config_of(IMAGE | {'model.mixer': 'sgn', 'model.sgn.grid': (4, 6)})
  twin = shrink(config, context=12)
  assert (twin.model.image, twin.model.context, twin.model.sgn.grid) == ((8, 6, 2), 12, (4, 3))
  assert build(twin).outputs == 3
  assert shrink(config).model.image == (8, 12, 2)


@pytest.mark.parametrize('name', [pytest.param(n, marks=pytest.mark.xdist_group(n)) for n in CORE])
def test_a_packed_document_has_the_logits_of_the_document_alone(name):
  """Or segments, or its padding, are refused by name."""
  tokens = np.random.default_rng(4).integers(0, VOCAB, 40).astype(np.int32)
  ends = np.array([11, 19, 40])
  batch = Packed(tokens, ends, N).take(np.arange(2))
  call = {f'{k}_BL': batch[k] for k in ('segments', 'positions', 'mask')}
  with jax.enable_x64(True):
    _, _, run = made((), name)
    if name in REFUSE:
      with pytest.raises(UserError, match='does not honour'):
        run(batch['tokens'], **call)
      return
    packed = run(batch['tokens'], **call)
    seen = 0
    for row in range(2):
      for segment in range(1, batch['segments'][row].max() + 1):
        here = batch['segments'][row] == segment
        length = here.sum()
        alone = np.zeros((2, N), np.int32)
        alone[:, :length] = batch['tokens'][row, here]
        mask = np.broadcast_to(np.arange(N) < length, (2, N))
        segments = mask.astype(np.int32)
        positions = np.broadcast_to(np.arange(N, dtype=np.int32), (2, N))
        logits = run(alone, mask_BL=mask, segments_BL=segments, positions_BL=positions)
        np.testing.assert_allclose(packed[row, here], logits[0, :length], rtol=1e-9, atol=1e-9)
        seen += length
    assert seen == 40 - len(ends)
