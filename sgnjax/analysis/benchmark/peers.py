"""The same decoder as others would write it: PyTorch, eagerly, and Flax."""

import importlib.util
from collections.abc import Callable, Iterator
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from ml_collections import ConfigDict

from sgnjax.analysis.benchmark import scaffold, timing
from sgnjax.analysis.benchmark.page import Row
from sgnjax.analysis.benchmark.settings import Settings
from sgnjax.analysis.benchmark.step import Bare

AIMS = {256: 1.2, 2048: 4.0, 8192: 8.0}  # PyTorch / SGN by context
FLAX, TORCH = 'Flax, as usual', 'PyTorch, eager'
NO_TORCH = "PyTorch is not installed (pip install 'sgnjax[peers]')"


def steps(settings: Settings, *, longest: int = 8192, **sizes: Any) -> Iterator[Row | str]:
  """Against PyTorch and the usual Flax decoder

  Training steps (forward, backward, clipping, AdamW) of the same shape on the same random tokens:
  pre-norm, learned positions, tied head, 4,096 tokens or one row, float32. PyTorch: eager, with
  `scaled_dot_product_attention(is_causal=True)`. Flax: `nn.MultiHeadDotProductAttention` with a
  causal mask, layers unrolled, under `jit`. All four take turns."""
  torch_here = importlib.util.find_spec('torch') is not None
  for context in [n for n in settings.contexts if n <= longest]:
    ours = {
      'our softmax': Bare(scaffold.config('softmax', context=context, **sizes)).ready(),
      'our SGN': Bare(scaffold.config('sgn', context=context, **sizes)).ready(),
    }
    config = ours['our softmax'].config
    vocab = ours['our softmax'].model.padded_vocab
    flax, peak = flax_step(config, vocab)
    too_large = timing.too_large(peak)
    timed: dict[str, Callable] = dict(ours) if too_large else {**ours, FLAX: flax}
    if torch_here:
      timed[TORCH] = torch_step(config, vocab)
    took = timing.interleaved(timed, settings.repeats, settings.seconds)
    for name in timed:
      row: Row = {'context': context, 'step of': name, 'ms': 1e3 * took[name]}
      row['tokens/s'] = config.train.batch * context / took[name]
      row['Flax / this'] = took.ratio(FLAX, name) if FLAX in timed else None
      row['PyTorch / this'] = took.ratio(TORCH, name) if torch_here else None
      row['aim, PyTorch / this'] = AIMS.get(context) if name == 'our SGN' else None
      yield row
    if too_large:
      yield {'context': context, 'step of': FLAX, 'note': f'not run: {too_large}'}
    if not torch_here:
      yield {'context': context, 'step of': TORCH, 'note': NO_TORCH}
  for context in settings.contexts:
    if context > longest:
      yield f'Context {context:,} not run: an L x L mask and its scores do not fit the usual form.'
  yield f'{scaffold.shape(**sizes)}; {versions(torch_here)}.'


def versions(torch_here: bool) -> str:
  """Of the other packages."""
  import flax

  said = f'flax {flax.__version__}'
  if not torch_here:
    return f'{said}; {NO_TORCH}'
  import torch

  device = 'GPU' if torch.cuda.is_available() else f'{torch.get_num_threads()} threads'
  return f'{said}, torch {torch.__version__} ({device})'


def _tokens(config: ConfigDict) -> np.ndarray:
  shape = (config.train.batch, config.model.context + 1)
  return np.random.default_rng(0).integers(0, config.model.vocab, shape, np.int32)


class FlaxDecoder(nn.Module):
  """A decoder as tutorials have it."""

  vocab: int
  width: int
  heads: int
  layers: int
  context: int

  @nn.compact
  def __call__(self, tokens_BL):
    table = nn.Embed(self.vocab, self.width)
    position_LD = self.param(
      'position', nn.initializers.normal(0.02), (self.context, self.width), jnp.float32
    )
    x_BLD = table(tokens_BL) + position_LD[None, : tokens_BL.shape[1]]
    mask = nn.make_causal_mask(tokens_BL)
    for _ in range(self.layers):
      h_BLD = nn.LayerNorm()(x_BLD)
      x_BLD += nn.MultiHeadDotProductAttention(self.heads, qkv_features=self.width)(
        h_BLD, mask=mask
      )
      h_BLD = nn.Dense(4 * self.width)(nn.LayerNorm()(x_BLD))
      x_BLD += nn.Dense(self.width)(nn.gelu(h_BLD))
    return table.attend(nn.LayerNorm()(x_BLD))


def flax_step(config: ConfigDict, vocab: int) -> tuple[Callable, int]:
  """A compiled step of the usual Flax decoder with our optimiser's settings, and its peak in bytes.

  Its state is donated.
  """
  m = config.model
  model = FlaxDecoder(vocab, m.width, m.heads, m.layers, m.context)
  tokens_BT = jnp.asarray(_tokens(config))
  optimiser = optax.chain(
    optax.clip_by_global_norm(config.optim.clip or 1e9),
    optax.adamw(config.optim.lr, weight_decay=config.optim.weight_decay),
  )
  params = jax.jit(model.init)(jax.random.key(0), tokens_BT[:, :-1])
  state = params, optimiser.init(params)

  def step(state, tokens_BT):
    params, opt_state = state

    def loss(params):
      logits_BLV = model.apply(params, tokens_BT[:, :-1])
      return optax.softmax_cross_entropy_with_integer_labels(logits_BLV, tokens_BT[:, 1:]).mean()

    value, grads = jax.value_and_grad(loss)(params)
    updates, opt_state = optimiser.update(grads, opt_state, params)
    return (optax.apply_updates(params, updates), opt_state), value

  program = timing.program(jax.jit(step, donate_argnums=0), state, tokens_BT)

  def run():
    nonlocal state
    state, value = program.run(state, tokens_BT)
    return state, value

  return run, program.peak


def torch_step(config: ConfigDict, vocab: int) -> Callable:
  """A step of the same decoder in eager PyTorch, on its GPU where it has one."""
  import torch
  from torch import nn as tnn
  from torch.nn import functional

  m, device = config.model, 'cuda' if torch.cuda.is_available() else 'cpu'

  class Block(tnn.Module):
    def __init__(self):
      super().__init__()
      self.norm_1, self.norm_2 = tnn.LayerNorm(m.width), tnn.LayerNorm(m.width)
      self.qkv, self.out = tnn.Linear(m.width, 3 * m.width), tnn.Linear(m.width, m.width)
      self.up, self.down = tnn.Linear(m.width, 4 * m.width), tnn.Linear(4 * m.width, m.width)

    def forward(self, x_BLD):
      b, length, _ = x_BLD.shape
      qkv = self.qkv(self.norm_1(x_BLD)).view(b, length, 3, m.heads, -1)
      q, k, v = qkv.permute(2, 0, 3, 1, 4)
      y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
      x_BLD = x_BLD + self.out(y.transpose(1, 2).reshape(b, length, m.width))
      return x_BLD + self.down(functional.gelu(self.up(self.norm_2(x_BLD))))

  class TorchDecoder(tnn.Module):
    def __init__(self):
      super().__init__()
      self.table = tnn.Embedding(vocab, m.width)
      self.position = tnn.Parameter(0.02 * torch.randn(m.context, m.width))
      self.blocks = tnn.Sequential(*(Block() for _ in range(m.layers)))
      self.norm = tnn.LayerNorm(m.width)

    def forward(self, tokens_BL):
      x_BLD = self.table(tokens_BL) + self.position[: tokens_BL.shape[1]]
      return self.norm(self.blocks(x_BLD)) @ self.table.weight.T

  torch.manual_seed(0)
  model = TorchDecoder().to(device)
  o = config.optim
  optimiser = torch.optim.AdamW(model.parameters(), lr=o.lr, weight_decay=o.weight_decay)
  tokens_BT = torch.from_numpy(_tokens(config)).long().to(device)

  def run() -> None:
    optimiser.zero_grad(set_to_none=True)
    logits_BLV = model(tokens_BT[:, :-1])
    loss = functional.cross_entropy(logits_BLV.reshape(-1, vocab), tokens_BT[:, 1:].reshape(-1))
    loss.backward()
    tnn.utils.clip_grad_norm_(model.parameters(), o.clip or 1e9)
    optimiser.step()
    if device == 'cuda':
      torch.cuda.synchronize()

  return run


SECTIONS = {'steps': steps}
