"""What devices say to each other: each strategy's collectives, counted in the compiled program."""

import re

import pytest

from sgnjax.analysis.collectives import collectives
from sgnjax.parallel.mesh import make_mesh
from tests.parallel.runs import compiled, small

LAYERS = 2


BATCH, LENGTH = 40, 56  # multiples of 5 and 7, as no size of a parameter is


def talk(name, mesh, **changes):
  config = small(name, mesh, changes, dtype='float32', batch=BATCH, context=LENGTH)
  devices = make_mesh(config)
  found = collectives(compiled(config, devices).as_text(), devices)
  return [c for c in found if c.group > 1]


def count(found, kind, axis):
  return sum(c.times for c in found if c.kind == kind and axis in c.axes)


def is_activation(c):
  """Whether a collective moves an array with axes of rows and of tokens."""
  for shape in c.shapes:
    sizes = [int(n) for n in re.findall(r'\d+', shape.partition('[')[2])]
    if len(sizes) > 2 and any(n % 5 == 0 for n in sizes) and any(n % 7 == 0 for n in sizes):
      return True
  return False


def test_copies_add_up_gradients_and_nothing_else():
  found = talk('softmax', (8, 1, 1, 1))
  assert {c.kind for c in found} == {'all-reduce'}
  # Gradients of layers, of the rest, and the sums of the loss.
  assert count(found, 'all-reduce', 'data') <= LAYERS + 4


@pytest.mark.parametrize('changes', [{}, {'model.width': 128}])
def test_fsdp_gathers_parameters_and_no_activations(changes):
  """Even where rows are few beside the parameters, and moving rows would be the shorter way."""
  found = talk('softmax', (1, 8, 1, 1), **changes)
  assert {c.kind for c in found} <= {'all-gather', 'all-reduce', 'reduce-scatter'}
  gathered = [c for c in found if c.kind == 'all-gather']
  # Matrices of a layer (q, k, v, o, up, down), ahead and back; embedding and positions, kept.
  assert sum(c.times for c in gathered) == 2 * 6 * LAYERS + 2
  assert not any(is_activation(c) for c in found)


def test_tensor_parallelism_adds_up_twice_a_layer_and_pass():
  found = talk('softmax', (1, 1, 4, 1))
  assert count(found, 'all-gather', 'tensor') == 0
  activations = [
    c for c in found if c.kind == 'all-reduce' and c.operand >= BATCH * LENGTH * 32 * 4
  ]
  # Each of attention and FFN once ahead and once back; embedding, and what flows back to it.
  assert sum(c.times for c in activations) <= 4 * LAYERS + 2


@pytest.mark.slow
@pytest.mark.parametrize('name', ['sgn', 'sgn-published', 'sgn-bidirectional'])
def test_spectral_mixing_trades_length_for_channels(name):
  found = talk(name, (1, 1, 1, 8))
  assert {c.kind for c in found} == {'all-reduce', 'all-to-all'}
  assert count(found, 'all-to-all', 'sequence') == 4 * LAYERS  # there and back, ahead and back


@pytest.mark.slow
@pytest.mark.parametrize(
  ('name', 'mesh'),
  [
    *((name, (2, 1, 2, 2)) for name in ('sgn', 'sgn-plain', 'fnet', 'chiar', 'fourier_qk')),
    *((name, (4, 2, 1, 1)) for name in ('sgn', 'fnet')),
  ],
)
def test_no_activation_is_gathered_around_a_transform(name, mesh):
  gathered = [c for c in talk(name, mesh) if c.kind == 'all-gather' and is_activation(c)]
  # Keys and values of attention over a sharded length are: in heads, behind the filters.
  attending = {'chiar': 2, 'fourier_qk': LAYERS}.get(name, 0)
  assert sum(c.times for c in gathered) == 2 * attending, gathered
  assert all(c.shapes == ('f32[20,28,2,8]',) for c in gathered), gathered


def test_filtered_keys_alone_are_gathered():
  found = talk('fourier_qk', (1, 1, 1, 8))
  features = BATCH * LENGTH * 32 * 4
  gathered = [c for c in found if c.kind == 'all-gather']
  assert sum(c.times for c in gathered) == 2 * LAYERS  # keys and values
  assert {c.result for c in gathered} == {features}
  assert count(found, 'all-to-all', 'sequence') == 4 * LAYERS


def test_statistics_of_gates_take_one_number_a_token_and_head():
  found = talk('ega', (1, 1, 1, 8))
  features = BATCH * LENGTH * 32 * 4
  small_ones = [c for c in found if c.kind == 'all-gather' and c.result < features]
  assert {c.result for c in small_ones} == {BATCH * LENGTH * 4 * 4}
  assert not count(found, 'collective-permute', 'sequence')


def test_a_vocabulary_in_parts_is_not_gathered():
  found = talk('softmax', (1, 1, 4, 1), **{'model.layers': 1})
  logits = BATCH * LENGTH * 64 * 4
  assert all(c.result < logits for c in found if c.kind != 'all-reduce'), found
