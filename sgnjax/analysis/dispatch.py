"""What CHIAR's dispatch saves: FLOPs by the formula and by XLA, and seconds of a training step.

A step is the loss of a batch of random tokens and its gradient, without the optimiser. All kinds
share one set of parameters and take turns in one run; a saving is 1 minus the median, over rounds,
of the ratio of a kind's seconds to those that the dense kind took in the same round. Seconds are
those of the clock and those of all processors, which other programs of a busy machine change less.
"""

import time
from statistics import median

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from sgnjax.analysis.flops import flops
from sgnjax.errors import UserError
from sgnjax.machine import in_words, machine
from sgnjax.models import build
from sgnjax.ops.backend import untiled
from sgnjax.train.objectives import cross_entropy

DENSE = 'dense'


def kinds(config: ConfigDict, capacities: tuple[float, ...]) -> dict[str, ConfigDict]:
  """The config dense, and with each kv and capacity: only what is computed differs, no parameter.

  Raises UserError for another mixer than chiar.
  """
  if config.model.mixer != 'chiar':
    raise UserError(f"dispatch is an option of model.mixer='chiar', got '{config.model.mixer}'")

  def kind(**options):
    twin = config.copy_and_resolve_references().unlock()
    twin.model.chiar.update(dispatch=DENSE, kv='all', capacity=None)
    twin.model.chiar.update(options)
    return twin.lock()

  found = {DENSE: kind()}
  for kv in ('all', 'routed'):
    for share in capacities:
      found[f'{kv} {share:.0%}'] = kind(dispatch='capacity', kv=kv, capacity=share)
  return found


def measure(
  config: ConfigDict,
  *,
  capacities: tuple[float, ...] = (0.5, 0.25),
  batch: int = 1,
  length: int | None = None,
  vocab: int | None = None,
  repeats: int = 9,
) -> dict:
  """Times steps of `batch` rows of `length` tokens (None: the context), and counts their FLOPs.

  Returns `rows`, one a kind: flops of a step by `sgnjax.analysis.flops`, what XLA counts of the
  same program with its layers unrolled, median seconds; but of the dense one, the saving of FLOPs
  (`analytic`), of time and of processor time, and what the second is of the first (`ratio`); and
  what it was measured on. Raises UserError as `build` does.
  """
  length = length or config.model.context
  configs = kinds(config, capacities)
  vocab = config.model.vocab or vocab
  rng = np.random.default_rng(0)
  model = build(configs[DENSE], vocab=vocab)
  tokens_BT = jnp.asarray(rng.integers(0, model.vocab, (batch, length + 1)), jnp.int32)
  params = jax.jit(model.init)(jax.random.key(0), tokens_BT[:, :-1])['params']
  steps, rows = {}, {}
  for name, twin in configs.items():
    steps[name] = _step(twin, vocab).lower(params, tokens_BT).compile()
    unrolled = twin.copy_and_resolve_references().unlock()
    unrolled.model.scan_unroll = twin.model.layers
    rows[name] = {
      'flops': sum(flops(twin, batch=batch, length=length, vocab=vocab, training=True).values()),
    }
    with untiled():
      counted = _step(unrolled, vocab).lower(params, tokens_BT)
    rows[name]['xla_flops'] = counted.cost_analysis()['flops']
  clocks = {'seconds': time.perf_counter, 'processor_seconds': time.process_time}
  took: dict = {name: {clock: [] for clock in clocks} for name in steps}
  for repeat in range(-1, repeats):
    for name, step in steps.items():
      start = {clock: now() for clock, now in clocks.items()}
      jax.block_until_ready(step(params, tokens_BT))
      for clock, now in clocks.items():
        if repeat >= 0:
          took[name][clock].append(now() - start[clock])
  for name, row in rows.items():
    row |= {clock: median(took[name][clock]) for clock in clocks}
    if name == DENSE:
      continue
    row['analytic'] = 1 - row['flops'] / rows[DENSE]['flops']
    for clock, saved in (('seconds', 'measured'), ('processor_seconds', 'measured_processor')):
      pairs = zip(took[name][clock], took[DENSE][clock], strict=True)
      row[saved] = 1 - median(one / dense for one, dense in pairs)
    row['ratio'] = row['measured'] / row['analytic']
  m = config.model
  return {
    'rows': rows,
    'model': f'{m.layers} layers, width {m.width}, {m.heads} heads, {m.dtype}',
    'batch': batch,
    'length': length,
    'repeats': repeats,
    **machine(),
  }


def _step(config: ConfigDict, vocab: int | None):
  """Loss and gradient of a batch, to be compiled."""
  model = build(config, vocab=vocab)

  def loss(params, tokens_BT):
    logits_BLV = model.apply({'params': params}, tokens_BT[:, :-1]).y_BLD
    nats, scored = cross_entropy(logits_BLV, tokens_BT[:, 1:])
    return nats / scored

  return jax.jit(jax.value_and_grad(loss))


def table(found: dict) -> str:
  """The rows as a Markdown table, and what they were measured on."""
  lines = [
    '| kv, capacity | GFLOP a step | by XLA | ms a step | processor ms | FLOPs saved | time saved '
    '| processor time saved | time by FLOPs |',
    '|---' * 9 + '|',
  ]
  for name, row in found['rows'].items():
    cells = [f'{row[k] / 1e9:,.1f}' for k in ('flops', 'xla_flops')]
    cells += [f'{1000 * row[k]:,.0f}' for k in ('seconds', 'processor_seconds')]
    saved = [f'{row[k]:.1%}' for k in ('analytic', 'measured', 'measured_processor') if k in row]
    cells += [*saved, f'{row["ratio"]:.2f}'] if saved else [''] * 4
    lines.append(f'| {name} | {" | ".join(cells)} |')
  return '\n'.join(
    [
      *lines,
      '',
      f'{found["model"]}; batch {found["batch"]} x {found["length"]} tokens, median of '
      f'{found["repeats"]} rounds; {in_words(found)}',
    ]
  )
