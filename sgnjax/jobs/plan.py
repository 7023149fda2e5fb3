"""What a run will take: parameters, FLOPs and memory, without data and without training."""

import math
from collections import Counter
from pathlib import Path

import jax
from ml_collections import ConfigDict

from sgnjax.analysis import flops, layout, roofline, targets
from sgnjax.analysis import layout_text as text
from sgnjax.analysis.layout import activations
from sgnjax.analysis.targets import Target
from sgnjax.audit.report import aligned
from sgnjax.errors import check_choice
from sgnjax.mixers.baselines import FNet
from sgnjax.mixers.chiar import Routed
from sgnjax.mixers.chiar_operators import DCTOperator
from sgnjax.mixers.fourier_qk import FourierQK
from sgnjax.mixers.sgn import SGN
from sgnjax.models import Model, build, count, example, unpadded
from sgnjax.ops.backend import assumed
from sgnjax.ops.kernels import fast_length
from sgnjax.parallel.mesh import row_shards

# Vocabulary, before the text is read.
ASSUMED = {
  'byte': 256,
  'char': 128,
  'word': 10_000,
  'gpt2': 50_257,
  'bpe': 8192,
  'unigram': 8192,
}
GIB = 2**30


def component(path: str) -> str:
  """The part of the model that a parameter belongs to."""
  names = path.split('/')
  top = {'embedding': 'token embedding', 'head': 'output head', 'position': 'positions'}
  top |= {'cls': 'positions', 'patches': 'patch projection', 'classifier': 'output head'}
  if names[0] in top:
    return top[names[0]]
  if any(name.endswith('_norm') for name in names):
    return 'norms'
  if 'meta_router' in names:
    return 'MetaRouter'
  if 'ffn' in names:
    return 'ffn'
  if names[-2] in ('q', 'k', 'v', 'o'):
    return 'attention q, k, v, o'
  if names[-2] in ('in', 'out'):
    return 'mixer projections'
  return 'DCT weights' if names[-1] == 'w_spectral' else 'mechanism'


def components(model: Model, params) -> dict[str, int]:
  """Parameters by component, without the padding of the vocabulary."""
  found = Counter()
  for path, shape in unpadded(model, params).items():
    found[component(path)] += math.prod(shape)
  return dict(found)


def fft_lengths(model: Model, *, length: int) -> dict[int, str]:
  """`{points: what is transformed}` of the FFTs on `length` tokens that cannot be padded."""
  found = {}
  for _, block in model.layers():
    mixer = block.make(parent=None)
    if isinstance(mixer, SGN):
      found |= _sgn_lengths(mixer, length)
    elif isinstance(mixer, FourierQK):
      if mixer.circular or mixer.surrogate is not None:
        found[length] = 'the sequence'
      if not mixer.circular and mixer.kernel == 'response':
        found[2 * mixer.context] = 'the kernel of twice the context'
    elif isinstance(mixer, FNet):
      found |= {mixer.width: 'the width', length: 'the sequence'}
    elif isinstance(mixer, (DCTOperator, Routed)) and mixer.basis != 'orthogonal':
      found |= {n: 'the DCT over the width' for n in [mixer.width] if n > flops.matrix_up_to()}
  return found


def _sgn_lengths(m: SGN, length: int) -> dict[int, str]:
  short = flops.matrix_up_to()  # up to there a DCT is a product with a matrix
  if m.grid is not None:
    if m.form == 'published':
      return {side: 'a side of the grid' for side in m.grid if side > short}
    return {2 * side: 'the kernel of twice a side of the grid' for side in m.grid}
  if m.form == 'published':
    return {length: 'the sequence'} if m.basis != 'dct' or length > short else {}
  if m.masked:
    return {} if m.basis == 'dct' else {m.context: 'the dense operator'}
  return {2 * n: 'the kernel of twice the context' for n in m.contexts}


def run(config: ConfigDict, workdir: str | Path) -> int:
  """Prints the plan of the config; touches neither data nor workdir.

  With a target, or where there are several devices here, the step is compiled and its layout shown.
  """
  m, t = config.model, config.train
  target = targets.find(config.target) if config.target else None
  if target:
    targets.prepare(target)
    layout.whole_mesh(config, target)
  check_choice('data.tokenizer', config.data.tokenizer, ASSUMED)
  assumed = config.data.vocab_size or ASSUMED[config.data.tokenizer]
  vocab = m.vocab or (0 if m.image else assumed)
  if config.data.task == 'classify' and m.classes is None:
    config = config.copy_and_resolve_references().unlock()
    config.model.classes = 2
    print('2 classes assumed: the data set says how many there are\n')
  model = build(config, vocab=vocab)
  params = jax.eval_shape(model.init, jax.random.key(0), example(config))['params']
  if not m.vocab and vocab:
    print(f'vocabulary of {vocab} assumed: the tokenizer sets it when it has read the text\n')
  print('\n'.join(_parameters(model, params)))
  per_step = None
  if flops.known(model):
    per_step = flops.costs(model, batch=t.batch, length=m.context)
    print('\n'.join(['', *_flops(model, per_step, t.batch, m.context), '', *_check(config)]))
  else:
    print('\nno FLOPs are known of a registered mixer: --job=benchmark counts them as XLA does')
  per_example = activations(model, params, length=m.context)
  print('\n'.join(['', *_memory(config, params, per_example)]))
  print('\n'.join(['', *_run(config, count(model, params), per_step)]))
  for points, what in fft_lengths(model, length=m.context).items():
    if fast_length(points) != points:
      print(
        f'an FFT of {points} points ({what}) is of awkward length and may be several times slower '
        f'than one of {fast_length(points)}; the mathematics does not allow padding'
      )
  target = target or targets.here()
  mesh = layout.whole_mesh(config, target)
  if config.target or mesh.size > 1:
    _layout(config, target, model, per_example)
  else:
    print(
      '\nfor the layout on many devices, memory of each and collectives: --config.target=v5e-64 '
      '(or h100-8, v5p-128, cpu-8),\nwith a mesh such as --config.mesh.data=1 --config.mesh.fsdp=-1'
    )
  return 0


def _layout(config: ConfigDict, target: Target, model: Model, per_example: int) -> None:
  """Compiles the step for the target, and prints who holds and who sends what."""
  config = config.copy_and_resolve_references().unlock()
  config.model.vocab = model.vocab or None
  t, mesh = config.train, layout.whole_mesh(config, target)
  laid = layout.Layout(config, model, per_example)
  parameters, memory = laid.parameters(mesh), laid.memory(mesh)
  print(f'\n{text.title(target, mesh)}\n')
  print('\n'.join([*text.drawing(parameters, mesh, component), '', *text.parameters(parameters)]))
  print('\ncompiling the step ...', flush=True)
  program = layout.program(config, target)
  compiler = {'libtpu': 'by libtpu', 'here': 'for the devices here', 'cpu': 'for CPU devices'}
  print(f'compiled {compiler[target.compiler]} in {program.seconds:.1f} s')
  if target.compiler == 'cpu' and target.chip:
    print(text.STANDS_IN)
  rows = t.batch // t.accumulation // row_shards(mesh)
  print('\n'.join(['', *text.memory(memory, program, target, rows)]))
  if not program.refused:
    print('\n'.join(['', *text.collectives(program, target, mesh)]))
  if not flops.known(model):
    print('\nno FLOPs are known of a registered mixer: no step time')
    return
  if target.chip is None:
    print(f"\nno peak rates or memory are known of '{target.name}': no step time, no limit")
    return
  with assumed(target.chip.kind):
    terms = flops.costs(model, batch=t.batch, length=config.model.context)
  work, traffic = roofline.training(config, terms), memory.traffic(config, program)
  found = roofline.step(
    target,
    mesh,
    program.collectives,
    flops=work,
    memory=traffic,
    narrow=config.model.dtype == 'bfloat16',
  )
  if not program.refused:
    tokens = t.batch * config.model.context
    print('\n'.join(['', *text.step(found, tokens, work, target, traffic)]))
  limit = target.chip.memory
  print('\n'.join(['', *text.nearest(laid.nearest(target, limit), limit, target)]))


def _parameters(model: Model, params) -> list[str]:
  total = count(model, params)
  padded = sum(math.prod(a.shape) for a in jax.tree.leaves(params))
  rows = [('parameters', '', 'share')]
  for name, size in components(model, params).items():
    rows.append((name, f'{size:,}', f'{size / total:.1%}'))
  rows.append(('total', f'{total:,}', ''))
  if padded != total and model.vocab:
    rows.append(
      (f'stored, {model.vocab:,} tokens padded to {model.padded_vocab:,}', f'{padded:,}', '')
    )
  return aligned(rows, right=(1, 2))


def _flops(model: Model, per_step: dict, batch: int, length: int) -> list[str]:
  total = sum((cost for cost in per_step.values()), flops.Cost(0, 0))
  rows = [(f'FLOPs a step, {batch} x {length} tokens', 'forward', 'and backward', 'share')]
  for name, cost in sorted(per_step.items(), key=lambda item: -item[1].training):
    share = f'{cost.training / total.training:.2%}'
    rows.append((name, f'{cost.forward:.3e}', f'{cost.training:.3e}', share))
  rows.append(('total', f'{total.forward:.3e}', f'{total.training:.3e}', ''))
  lines = aligned(rows, right=(1, 2, 3))
  saving = flops.causal_saving(model, batch=batch, length=length)
  if saving:
    lines.append(
      f'scores are counted dense, as computed; {saving:.3e} ({saving / total.forward:.1%}) of the '
      'forward FLOPs are for keys that a query does not see'
    )
  return lines


def _check(config: ConfigDict) -> list[str]:
  """The formulas against XLA's count, on the unrolled small twin."""
  twin = flops.counting_twin(config)
  shape = {'batch': 2, 'length': twin.model.context}
  terms = flops.costs(build(twin), **shape)
  total = sum((cost for cost in terms.values()), flops.Cost(0, 0))
  size = f'{twin.model.layers} layers, width {twin.model.width}, 2 x {twin.model.context} tokens'
  rows = [(f'check on a twin ({size})', 'formulas', 'XLA', 'difference')]
  for name, ours, gradient in (
    ('forward', total.forward, False),
    ('forward and backward', total.training, True),
  ):
    theirs = flops.xla_flops(twin, **shape, gradient=gradient)
    rows.append((name, f'{ours:.4e}', f'{theirs:.4e}', f'{ours / theirs - 1:+.2%}'))
  return aligned(rows, right=(1, 2, 3))


def _memory(config: ConfigDict, params, per_example: int) -> list[str]:
  stored = sum(math.prod(a.shape) * a.dtype.itemsize for a in jax.tree.leaves(params))
  rows_at_once = -(-config.train.batch // config.train.accumulation)
  saved = rows_at_once * per_example
  average = stored if config.train.ema else 0
  rows = [
    ('memory', 'GiB'),
    ('parameters', f'{stored / GIB:.3f}'),
    ('gradients', f'{stored / GIB:.3f}'),
    ('Adam moments', f'{2 * stored / GIB:.3f}'),
    *([('average of the weights', f'{average / GIB:.3f}')] if average else []),
    (f'activations of {rows_at_once} examples, all that autodiff saves', f'{saved / GIB:.3f}'),
    ('total, over all devices together', f'{(4 * stored + average + saved) / GIB:.3f}'),
  ]
  return aligned(rows, right=(1,))


def _run(config: ConfigDict, parameters: int, per_step: dict | None) -> list[str]:
  t = config.train
  tokens = t.batch * config.model.context
  total = sum(cost.training for cost in (per_step or {}).values()) * t.steps
  rule = 6 * parameters * tokens * t.steps
  rows = [
    ('the run', ''),
    ('steps', f'{t.steps:,}'),
    ('tokens a step', f'{tokens:,}'),
    ('tokens in all', f'{tokens * t.steps:,}'),
    ('FLOPs in all, forward and backward', f'{total:.3e}' if per_step else 'not known'),
    ('6 x parameters x tokens, for comparison', f'{rule:.3e}'),
  ]
  return aligned(rows, right=(1,))
