"""Generation against the model itself: teacher forcing, single prompts, the window by hand."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs import base
from sgnjax.decode.generate import Generation, generate
from sgnjax.errors import UserError
from sgnjax.mixers import MIXERS
from sgnjax.models import build

CONTEXT, VOCAB, SEED = 16, 11, 2
KINDS = {
  'softmax': {'mixer': 'softmax'},
  'rope': {'mixer': 'softmax', 'positions': 'rope'},
  'routed': {'mixer': 'chiar', 'block': 'chiar', 'meta': False},
  'meta': {'mixer': 'chiar', 'block': 'chiar'},
  'sgn': {'mixer': 'sgn'},
  'sgn_no_positions': {'mixer': 'sgn', 'positions': 'none'},
  'fourier_qk': {'mixer': 'fourier_qk'},
  'ega': {'mixer': 'ega'},
  'haar': {'mixer': 'haar'},
}
MORE = {name: {'mixer': name} for name in ('ega_fourier_qk', 'linear', 'performer', 'uniform')}
MORE['identity'] = {'mixer': 'identity'}
ROUTED = ('routed', 'meta')  # DCT first, attention last, and a routed layer between
PROMPTS = [[3, 1, 4, 1, 5], [9], [2, 6, 5, 3, 5, 8, 9, 7]]


@functools.cache
def make(kind: str, context: int = CONTEXT):
  """A small model with random weights large enough that it has opinions."""
  config = base.get_config().unlock()
  options = dict((KINDS | MORE)[kind])
  config.model.chiar.meta = options.pop('meta', True)
  config.model.update(options)
  config.model.update(
    width=16, heads=2, layers=2 + (kind in ROUTED), context=context, vocab=VOCAB, vocab_multiple=8
  )
  model = build(config)
  tokens_BL = jnp.zeros((1, 4), jnp.int32)
  params = jax.jit(model.init)(jax.random.key(0), tokens_BL)['params']
  rng = np.random.default_rng(SEED)

  def draw(path, leaf):
    # Biases and gains stay: a random final bias would have one favourite token.
    noise = 0.0 if path[-1].key in ('bias', 'scale') else 0.5
    return leaf + jnp.asarray(noise * rng.standard_normal(leaf.shape), leaf.dtype)

  return model, jax.tree_util.tree_map_with_path(draw, params)


@functools.cache
def teacher(kind: str):
  """`teach(rows)`: the likeliest token after each prefix of each row, by one forward pass."""
  model, params = make(kind)
  return jax.jit(lambda rows: jnp.argmax(model.apply({'params': params}, rows).y_BLD, axis=-1))


def argmax_after(kind: str, rows: list[list[int]], width: int = CONTEXT) -> np.ndarray:
  """What the model says after each token of each row; rows are padded to one width."""
  padded_BL = np.zeros((len(rows), width), np.int32)
  for padded_L, row in zip(padded_BL, rows, strict=True):
    padded_L[: len(row)] = row
  return np.asarray(teacher(kind)(padded_BL))


@pytest.mark.parametrize('kind', KINDS)
def test_greedy_is_argmax_of_teacher_forcing_and_batch_is_one_at_a_time(kind):
  model, params = make(kind)
  written_BT = generate(model, params, PROMPTS, 8)
  assert written_BT.shape == (3, 8)
  assert len(np.unique(written_BT)) > 2
  rows = [p + row for p, row in zip(PROMPTS, written_BT.tolist(), strict=True)]
  for prompt, row, taught_L in zip(PROMPTS, rows, argmax_after(kind, rows), strict=True):
    assert row[len(prompt) :] == taught_L[len(prompt) - 1 : len(row) - 1].tolist()
  assert written_BT[1].tolist() == generate(model, params, PROMPTS[1:2], 8)[0].tolist()


def test_every_causal_mixer_is_tried():
  tried = {options['mixer'] for options in (KINDS | MORE).values()}
  assert tried == {n for n in MIXERS if not n.startswith('chiar_') and n != 'fnet'}


@pytest.mark.slow
@pytest.mark.parametrize('kind', KINDS | MORE)
def test_256_greedy_tokens_of_ragged_prompts_are_those_of_teacher_forcing(kind):
  """Prompts of 1, 7 and 100 tokens in one batch; each row is read alone, behind nothing."""
  lengths, width = (1, 7, 100), 356
  model, params = make(kind, width)
  prompts = [np.random.default_rng(n).integers(0, VOCAB, n).tolist() for n in lengths]
  written_BT = generate(model, params, prompts, 256)
  assert len(np.unique(written_BT)) > 2
  rows = [p + row for p, row in zip(prompts, written_BT.tolist(), strict=True)]
  forward = jax.jit(lambda tokens_BL: model.apply({'params': params}, tokens_BL).y_BLD)
  for n, row in zip(lengths, rows, strict=True):
    padded_BL = np.asarray([row + [0] * (width - len(row))], np.int32)
    logits_LV = np.asarray(forward(padded_BL))[0, :, :VOCAB]
    for at in range(n - 1, len(row) - 1):
      likeliest, chosen = np.max(logits_LV[at]), logits_LV[at, row[at + 1]]
      assert chosen >= likeliest - 1e-4 * np.ptp(logits_LV[at]), f'token {at} of {n}'


@pytest.mark.parametrize(('mixer', 'keeps'), [('sgn', False), ('ega', False), ('softmax', True)])
def test_a_form_that_sees_the_future_keeps_no_cache(mixer, keeps):
  config = base.get_config().unlock()
  config.model.update(mixer=mixer, form='published', width=16, heads=2, context=CONTEXT, vocab=11)
  model = build(config)
  if keeps:
    model.init_cache(1, 4)
  else:
    with pytest.raises(UserError, match='cache'):
      model.init_cache(1, 4)


@pytest.mark.parametrize('kind', ['softmax', 'rope', 'sgn_no_positions'])
def test_sliding_sees_the_last_tokens_of_the_context(kind):
  model, params = make(kind)
  written_BT = generate(model, params, PROMPTS, 40, slide=True)
  windows, expected = [], []
  for prompt, row in zip(PROMPTS, written_BT.tolist(), strict=True):
    whole = prompt + row
    for end in range(len(prompt), len(whole)):
      windows.append(whole[:end][-CONTEXT:])
      expected.append(whole[end])
  taught_BL = argmax_after(kind, windows)
  assert expected == [taught_BL[i, len(w) - 1] for i, w in enumerate(windows)]


@pytest.mark.parametrize('kind', ['rope', 'sgn_no_positions'])
def test_without_learned_positions_a_generation_runs_past_the_context(kind):
  model, params = make(kind)
  prompt, total = PROMPTS[0], 2 * CONTEXT + len(PROMPTS[0])
  row = generate(model, params, [prompt], 2 * CONTEXT)[0].tolist()
  taught_L = argmax_after(kind, [prompt + row], total)[0]
  assert row == taught_L[len(prompt) - 1 : -1].tolist()


@pytest.mark.parametrize('kind', ['softmax', 'sgn'])
def test_draws_follow_seed_and_row_alone(kind):
  model, params = make(kind)
  options = {'temperature': 1.0, 'seed': 5}
  all_BT = generate(model, params, PROMPTS, 8, **options)
  assert all_BT[:2].tolist() == generate(model, params, PROMPTS[:2], 8, **options).tolist()
  assert all_BT.max() < VOCAB
  same_BT = generate(model, params, [PROMPTS[0]] * 2, 8, **options)
  assert same_BT[0].tolist() == all_BT[0].tolist() != same_BT[1].tolist()
  assert generate(model, params, PROMPTS, 8, temperature=1.0, seed=6).tolist() != all_BT.tolist()


def test_top_k_above_the_vocabulary_is_no_limit():
  model, params = make('softmax')
  row = generate(model, params, PROMPTS[:2], 8, temperature=50.0, top_k=10 * VOCAB, seed=5)
  assert len(np.unique(row)) > VOCAB // 2


@pytest.mark.parametrize(
  ('prompts', 'options', 'said'),
  [
    ([], {}, 'no prompt'),
    ([[1], []], {}, 'prompt is empty'),
    ([[1] * 17], {}, 'prompt of 17 tokens is longer than the context of 16'),
    ([[1] * 17], {'slide': True}, 'prompt of 17 tokens is longer than the context of 16'),
    ([[1] * 12], {}, '12 tokens of prompt and 5 new ones are 17'),
    ([[VOCAB]], {}, 'token 11 is outside the vocabulary of 11'),
    ([[-1]], {}, 'token -1 is outside'),
    ([[1]], {'tokens': 0}, '0 tokens to generate'),
    ([[1]], {'temperature': -1.0}, 'temperature -1.0'),
    ([[1]], {'temperature': float('nan')}, 'temperature nan'),
    ([[1]], {'top_k': 0}, 'top_k 0'),
    ([[1]], {'top_p': 0.0}, 'top_p 0.0: expected more than 0'),
    ([[1]], {'top_p': 1.5}, 'top_p 1.5'),
    ([[1]], {'repetition_penalty': 0.0}, 'repetition_penalty 0.0'),
  ],
)
def test_what_is_refused(prompts, options, said):
  model, params = make('softmax')
  with pytest.raises(UserError, match=said):
    generate(model, params, prompts, **{'tokens': 5, **options})


@pytest.mark.parametrize('kind', ['softmax', 'sgn'])
def test_pieces_side_by_side_are_the_whole(kind):
  model, params = make(kind)
  options = {'temperature': 1.0, 'top_p': 0.9, 'repetition_penalty': 1.3, 'seed': 4}
  pieces = list(Generation(model, params, PROMPTS, 8, chunk=3, **options))
  assert [piece.shape for piece in pieces] == [(3, 3), (3, 3), (3, 2)]
  whole_BT = generate(model, params, PROMPTS, 8, **options)
  np.testing.assert_array_equal(np.concatenate(pieces, axis=1), whole_BT)


def test_the_penalty_is_of_the_tokens_of_prompt_and_text():
  model, params = make('softmax')
  prompts, penalty = [[3, 1, 4, 1], [9, 2]], 1.7
  written_BT = generate(model, params, prompts, 8, repetition_penalty=penalty)
  assert written_BT.tolist() != generate(model, params, prompts, 8).tolist()
  rows_BL = np.zeros((2, 12), np.int32)
  for row_L, prompt, text in zip(rows_BL, prompts, written_BT.tolist(), strict=True):
    row_L[: len(prompt) + 8] = prompt + text
  logits_BLV = np.asarray(model.apply({'params': params}, rows_BL).y_BLD)[..., :VOCAB]
  for row_L, logits_LV, prompt in zip(rows_BL, logits_BLV, prompts, strict=True):
    for t in range(len(prompt), len(prompt) + 8):
      logits_V, had = logits_LV[t - 1].copy(), sorted(set(row_L[:t].tolist()))
      logits_V[had] = np.where(logits_V[had] > 0, logits_V[had] / penalty, logits_V[had] * penalty)
      assert np.argmax(logits_V) == row_L[t]
