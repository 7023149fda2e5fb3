"""The tables about strategies: bytes that are sent, what fits, and which is the shortest step."""

import pytest

from configs import base
from sgnjax.analysis import scaling_out


@pytest.fixture(scope='module')
def cases():
  config = base.get_config().unlock()
  config.model.mixer, config.model.layers, config.model.width = 'sgn', 1, 32
  config.model.context, config.model.vocab = 16, 61
  config.train.batch = 8
  return [scaling_out.measure(config, mesh) for mesh in ((8, 1, 1, 1), (1, 1, 1, 8))]


def test_copies_of_a_model_send_its_gradient_and_shares_of_a_length_send_tokens(cases):
  data, sequence = cases
  gradient = data.memory.gradients
  sums = sum(c.times * c.operand for c in data.program.collectives if c.kind == 'all-reduce')
  table = 64 * 32 * 4  # tied: summed as the embedding's gradient, and as the head's
  assert gradient + table <= sums < gradient + table + 64
  assert not any(c.kind == 'all-to-all' for c in data.program.collectives)
  traded = [c for c in sequence.program.collectives if c.kind == 'all-to-all']
  assert {c.axes for c in traded} == {('sequence',)}


def test_the_shortest_step_of_a_machine_is_bold(cases):
  lines = scaling_out.table([('8 devices', m) for m in cases], 'machine')
  assert lines[0].startswith('| machine | mesh | all-gather |')
  assert [line.split(' | ')[1] for line in lines[2:]] == ['data 8', 'sequence 8']
  times = {chip: [m.on(chip).most for m in cases] for chip in scaling_out.CHIPS}
  for line, m in zip(lines[2:], cases, strict=True):
    for chip, cell in zip(scaling_out.CHIPS, line.strip('| ').split(' | ')[-4:], strict=True):
      assert ('**' in cell) == (m.on(chip).most == min(times[chip]))


def test_the_winner_is_named_with_its_lead(cases):
  (*_, row) = scaling_out.winners([('8 devices', m) for m in cases], 'machine')
  cells = row.strip('| ').split(' | ')
  assert cells[0] == '8 devices'
  for chip, cell in zip(scaling_out.CHIPS, cells[1:], strict=True):
    times = {scaling_out.name(m.mesh): m.on(chip).most for m in cases}
    best, other = sorted(times, key=times.get)
    assert cell == f'{best} (next: +{times[other] / times[best] - 1:.0%})'


def test_every_strategy_takes_all_devices():
  for devices, meshes in scaling_out.STRATEGIES.items():
    for mesh in meshes:
      data, fsdp, tensor, sequence = mesh
      assert data * fsdp * tensor * sequence == devices
