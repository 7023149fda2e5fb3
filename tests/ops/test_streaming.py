"""Streams against explicit sums, in chunks of every kind; their memory, which nothing copies."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sgnjax.errors import UserError
from sgnjax.mixers import MIXERS
from sgnjax.ops import streaming

HEADS, E, FILTERS = 2, 3, 2
# Sizes of consecutive chunks; None: a ragged chunk of 6, of which examples keep 6, 1 and 0.
SPLITS = {
  'single': [1] * 9,
  'prompt': [13, 1, 1, 1, 1, 1, 1, 1],
  'chunks': [2, 5, 1, 1, 1, 4, 1, 1, 1, 1, 1, 7],
  'ragged': [None, 1, 1, 1, 1, 1, None, None, 1, 1, 2],
}


def normal(*shape, seed=0):
  return np.random.default_rng(seed).normal(size=shape)


def convolve(x, h):
  """(L, H, E) and (T, X, H, 1) to (L, X, H, E)."""
  y = np.zeros((len(x), h.shape[1], *x.shape[1:]))
  for lag in range(min(len(h), len(x))):
    y[lag:] += h[lag] * x[: len(x) - lag, None]
  return y


def begin(form, batch, lags, dtype=jnp.float64):
  return streaming.begin(form, batch, lags, FILTERS, (HEADS, E), jnp.dtype(dtype))


@pytest.mark.parametrize('lags', [1, 6, 17])
@pytest.mark.parametrize('form', ['ring', 'blocked'])
def test_every_split_equals_the_sums(form, lags):
  with jax.enable_x64(True):
    h = jnp.asarray(normal(lags + 1, FILTERS, HEADS, 1))
    run = jax.jit(lambda state, x, mask: streaming.stream(state, x, lambda: h, mask))
    for name, sizes in SPLITS.items():
      state, inputs, outputs = begin(form, 3, lags), [[], [], []], [[], [], []]
      for i, size in enumerate(sizes):
        counts = (6, 1, 0) if size is None else (size,) * 3
        x_BLHE = normal(3, max(counts), HEADS, E, seed=i)
        mask_BL = np.arange(max(counts))[None, :] < np.asarray(counts)[:, None]
        x_BLHE *= mask_BL[:, :, None, None]
        y_BLXHE, state = run(state, x_BLHE, mask_BL if size is None else None)
        for b, count in enumerate(counts):
          inputs[b] += list(x_BLHE[b, :count])
          outputs[b] += list(np.asarray(y_BLXHE[b, :count]))
      for got, given in zip(outputs, inputs, strict=True):
        wanted = convolve(np.stack(given), np.asarray(h))
        np.testing.assert_allclose(np.stack(got), wanted, atol=1e-12, err_msg=name)


@pytest.mark.parametrize('form', ['ring', 'blocked'])
def test_many_steps_in_one_scan_equal_the_sums_in_float32(form):
  lags, steps = 100, 700
  h = jnp.asarray(normal(lags + 1, FILTERS, HEADS, 1), jnp.float32)
  x_BLHE = jnp.asarray(normal(1, steps, HEADS, E), jnp.float32)
  _, state = streaming.stream(begin(form, 1, lags, jnp.float32), x_BLHE[:, :3], lambda: h)

  def step(state, x_BHE):
    y_B1XHE, state = streaming.stream(state, x_BHE[:, None], lambda: h)
    return state, y_B1XHE[0, 0]

  _, y_LXHE = jax.lax.scan(step, state, jnp.moveaxis(x_BLHE[:, 3:], 1, 0))
  wanted = convolve(np.asarray(x_BLHE[0], np.float64), np.asarray(h, np.float64))
  assert np.max(np.abs(y_LXHE - wanted[3:])) <= 1e-5 * np.max(np.abs(wanted))


def nbytes(tree) -> int:
  return sum(leaf.nbytes for leaf in jax.tree.leaves(tree))


@pytest.mark.parametrize('lags', [5, 63, 64, 100])
def test_memory_is_what_the_docstrings_say(lags):
  batch, slots, block = 3, lags + 1, 1 << (lags - 1).bit_length()
  h = jnp.ones((lags + 1, FILTERS, HEADS, 1), jnp.float32)
  x_BLHE = jnp.ones((batch, 2, HEADS, E), jnp.float32)
  for form in ('ring', 'blocked'):
    state = jax.eval_shape(
      lambda x, form=form: streaming.stream(begin(form, batch, lags, x.dtype), x, lambda: h)[1],
      x_BLHE,
    )
    found = sum(a.size * a.dtype.itemsize for a in jax.tree.leaves(state))
    if form == 'ring':
      numbers = slots * batch * HEADS * E + 2 * slots * FILTERS * HEADS
    else:
      sizes = [2**k for k in range(streaming.DIRECT, block.bit_length())]
      responses = sum(2 * (size + 1) for size in sizes)
      assert responses <= 4 * block + 2 * block.bit_length()
      kernel = max(lags + 1, 2**streaming.DIRECT)
      numbers = FILTERS * ((block + 1) * batch * HEADS * E + HEADS * (kernel + responses))
    assert found == 4 * (numbers + 1)


@pytest.mark.parametrize('form', ['ring', 'blocked'])
def test_a_donated_step_copies_no_state(form):
  """The state is updated in place: the compiled scan has no copy of its size inside the loop."""
  lags = 255
  h = jnp.ones((lags + 1, 1, 64), jnp.float32)
  state = streaming.begin(form, 1, lags, 1, (64,), jnp.dtype('float32'))
  x_B1D = jnp.ones((1, 1, 64), jnp.float32)
  _, state = streaming.stream(state, x_B1D, lambda: h)

  @functools.partial(jax.jit, donate_argnums=0)
  def steps(state, x_B1D):
    def body(carry, _):
      state, x_B1D = carry
      y_B11D, state = streaming.stream(state, x_B1D, None)
      return (state, y_B11D[:, :, 0]), None

    return jax.lax.scan(body, (state, x_B1D), None, length=8)[0]

  compiled = steps.lower(state, x_B1D).compile()
  assert compiled.memory_analysis().alias_size_in_bytes >= nbytes(state[0])
  shape = ','.join(map(str, state[0].shape))
  copies = [line for line in compiled.as_text().splitlines() if f'= f32[{shape}]' in line]
  copies = [line for line in copies if ' copy(' in line]
  assert not copies, copies


MIXER = {'width': 8, 'heads': 2, 'context': 24}
MEMORY = {
  'ring': ('sgn', {}, lambda b: 24 * b * 8 + 2 * 24 * 8 + 1),
  'blocked': (
    'sgn',
    {'streaming': 'blocked'},
    lambda b: 33 * b * 8 + 8 * (25 + 2 * (9 + 17 + 33)) + 1,
  ),
  'masked': ('sgn', {'operator': 'masked'}, lambda b: 24 * b * 8 + 24 * 24 * 8 + b),
}


@pytest.mark.parametrize('case', MEMORY)
def test_memory_of_the_mixers_caches(case):
  name, options, numbers = MEMORY[case]
  module, x_BLD = MIXERS[name](**MIXER, **options), jnp.ones((3, 2, 8), jnp.float32)

  def after(x_BLD):
    params = module.init(jax.random.key(0), x_BLD)
    cache = module.init_cache(3, 24, jnp.dtype('float32'))
    return module.apply(params, x_BLD, cache=cache).cache

  leaves = jax.tree.leaves(jax.eval_shape(after, x_BLD))
  assert sum(a.size * a.dtype.itemsize for a in leaves) == 4 * numbers(3)


@pytest.mark.parametrize('form', ['ring', 'blocked'])
def test_memory_of_fourier_qk_and_its_filters(form):
  filters, width = 4, 8
  module = MIXERS['fourier_qk'](
    **MIXER, scores='analytic', bins=(1.0, 4.0), streaming=form, positions='none'
  )
  x_BLD = jnp.ones((3, 2, width), jnp.float32)

  def after(x_BLD):
    params = module.init(jax.random.key(0), x_BLD)
    cache = module.init_cache(3, 30, jnp.dtype('float32'))
    return module.apply(params, x_BLD, cache=cache).cache

  leaves = jax.tree.leaves(jax.eval_shape(after, x_BLD))
  attention = 3 * (30 * (filters * width + width + 1) + 1)  # a segment a slot, a length
  if form == 'ring':
    filtering = 2 * 25 * 3 * width + 2 * 25 * filters * 2 + 1
  else:
    responses = 2 * (9 + 17 + 33)
    filtering = 2 * 33 * filters * 3 * width + (25 + responses) * filters * 2 + 1
  assert sum(a.size * a.dtype.itemsize for a in leaves) == 4 * (attention + filtering)


@pytest.mark.parametrize('name', ['sgn', 'fourier_qk'])
def test_the_blocked_form_of_the_mixers_equals_the_whole(name):
  """The theorems' small instances take the ring: this is the other form."""
  with jax.enable_x64(True):
    module = MIXERS[name](
      **MIXER, streaming='blocked', dtype=jnp.dtype('float64'), param_dtype=jnp.dtype('float64')
    )
    x_BLD = jnp.asarray(normal(2, 22, 8))
    params = jax.jit(module.init)(jax.random.key(0), x_BLD)
    params = jax.tree.map(lambda a: a + 0.3 * jnp.asarray(normal(*a.shape, seed=1)), params)
    run = jax.jit(lambda x, cache: module.apply(params, x, cache=cache))
    whole_BLD = run(x_BLD, None).y_BLD
    cache, pieces, start = module.init_cache(2, 24, jnp.dtype('float64')), [], 0
    for size in [5, *[1] * 9, 6, 1, 1]:
      y_BLD, _, cache = run(x_BLD[:, start : start + size], cache)
      pieces.append(np.asarray(y_BLD))
      start += size
    np.testing.assert_allclose(np.concatenate(pieces, axis=1), whole_BLD, atol=1e-9)


def test_what_cannot_be_is_refused():
  with pytest.raises(UserError, match="did you mean 'blocked'"):
    MIXERS['sgn'](**MIXER, streaming='block').check()
  with pytest.raises(UserError, match="did you mean 'ring'"):
    MIXERS['fourier_qk'](**MIXER, streaming='rings').check()
  with pytest.raises(UserError, match="'masked' has 24 positions"):
    MIXERS['sgn'](**MIXER, operator='masked').init_cache(1, 25, jnp.float32)
  with pytest.raises(UserError, match="mixer 'sgn' keeps no cache"):
    MIXERS['sgn'](**MIXER, form='bidirectional').init_cache(1, 24, jnp.float32)
