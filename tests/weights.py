"""The papers' weights as our parameter trees, and the configs that their golden files belong to."""

import jax
import jax.numpy as jnp
import numpy as np

from configs import base


def tree(nested: dict, dtype) -> dict:
  """Arrays of a nested dict in one dtype."""
  return jax.tree.map(lambda a: jnp.asarray(np.asarray(a), dtype), nested)


def attention(g: dict, p: str = '') -> dict:
  """q, k, v and o, with the biases that there are."""
  out = {}
  for name in 'qkvo':
    out[name] = {'kernel': g[f'{p}w_{name}']}
    if f'{p}b_{name}' in g:
      out[name]['bias'] = g[f'{p}b_{name}']
  return out


def ega(g: dict, p: str = '') -> dict:
  names = ('w_gate', 'b_gate', 'tau', 'alpha', 'scale_logits', 'log_omega0', 'log_sigma')
  out = attention(g, p) | {name: g[p + name] for name in names if p + name in g}
  lengths = sorted(int(name.split('_L')[1]) for name in g if name.startswith(f'{p}conv_w_L'))
  if lengths:  # one array, the scales' taps one behind the other
    out['conv_taps'] = np.concatenate([g[f'{p}conv_w_L{n}'] for n in lengths], axis=1)
    out['conv_bias'] = np.stack([g[f'{p}conv_b_L{n}'] for n in lengths], axis=1)
  return out


def fourier_qk(g: dict, context: int, p: str = '') -> dict:
  out = attention(g, p)
  if f'{p}log_freq' in g:  # the files count bins, we count cycles per token
    out['log_centre'] = g[f'{p}log_freq'].astype(np.float64)[:, None] - np.log(context)
  if f'{p}log_scales' in g:
    out['log_centre'] = g[f'{p}log_scales']
  if f'{p}log_scale' in g:
    out['log_centre'] = g[f'{p}log_scale'][:, None]
  return out


def norm(g: dict, p: str) -> dict:
  return {'scale': g[f'{p}scale'], 'bias': g[f'{p}bias']}


def ffn(g: dict, p: str) -> dict:
  return {
    'up': {'kernel': g[f'{p}w1'], 'bias': g[f'{p}b1']},
    'down': {'kernel': g[f'{p}w2'], 'bias': g[f'{p}b2']},
  }


def chiar_block(g: dict, p: str = '') -> dict:
  mixer = {}
  if f'{p}w_spec' in g:
    mixer |= {'w_spectral': g[f'{p}w_spec'], 'dct_norm': norm(g, f'{p}dct_ln_')}
  if f'{p}w_q' in g:
    mixer |= {'attention': attention(g, p), 'attention_norm': norm(g, f'{p}attn_ln_')}
  return {'mixer': mixer, 'ffn': ffn(g, f'{p}ffn_'), 'ffn_norm': norm(g, f'{p}ffn_ln_')}


def chiar_rbf(g: dict) -> dict:
  """The RBF operator alone."""
  inner = {'frozen_omega': g['omega'], 'out': {'kernel': g['w_out'], 'bias': g['b_out']}}
  return {'rbf': inner | {'ffn': ffn(g, 'ffn_')}, 'rbf_norm': norm(g, 'ln_')}


def meta_router(g: dict, p: str = '') -> dict:
  return {'gate': {'kernel': g[f'{p}w_meta'][:, None], 'bias': g[f'{p}b_meta']}}


def prenorm_block(g: dict, p: str, mixer: dict) -> dict:
  return {
    'mixer': mixer,
    'mixer_norm': norm(g, f'{p}ln1/'),
    'ffn_norm': norm(g, f'{p}ln2/'),
    'ffn': ffn(g, f'{p}ffn/'),
  }


def stacked(blocks: list[dict]) -> dict:
  """Layers of one group, repeats on axis 0."""
  return jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *blocks)


def small_config(g: dict, mixer: str, heads: int = 4):
  """The config of a golden model: its sizes, no padding of the vocabulary."""
  c = base.get_config()
  vocab, width = g['tok_emb'].shape
  c.model.mixer = mixer
  c.model.vocab, c.model.width, c.model.heads = vocab, width, heads
  c.model.vocab_multiple = 1
  c.model.context = g['ids'].shape[1]
  c.model.form = 'published'
  return c


def model_ega1(g: dict):
  c = small_config(g, 'ega')
  c.model.layers = 2
  blocks = [prenorm_block(g, f'blocks/{i}/', ega(g, f'blocks/{i}/attn/')) for i in range(2)]
  return c, {
    'embedding': g['tok_emb'],
    'position': g['pos_emb'],
    'final_norm': norm(g, 'ln_f/'),
    'stack': {'group_0': {'0_ega': stacked(blocks)}},
  }


def model_fqk_gauss2(g: dict):
  c = small_config(g, 'fourier_qk')
  c.model.layers = 2
  c.model.tied = c.model.out_bias = False
  n = c.model.context
  blocks = [
    prenorm_block(g, f'blocks/{i}/', fourier_qk(g, n, f'blocks/{i}/attn/')) for i in range(2)
  ]
  return c, {
    'embedding': g['tok_emb'],
    'position': g['pos_emb'],
    'head': g['lm_head'],
    'final_norm': norm(g, 'ln_f/'),
    'stack': {'group_0': {'0_fourier_qk': stacked(blocks)}},
  }


def model_chiar(g: dict, tau: float):
  c = small_config(g, 'chiar')
  c.model.block, c.model.positions, c.model.qkv_bias = 'chiar', 'rope', True
  c.model.chiar.released = True
  c.model.chiar.tau = tau
  first = chiar_block(g, 'layers/0/') | {'meta_router': meta_router(g, 'meta/')}
  middle = [chiar_block(g, f'layers/{i}/') for i in (1, 2)]
  return c, {
    'embedding': g['tok_emb'],
    'final_norm': norm(g, 'ln_f/'),
    'stack': {
      'group_0': {'0_chiar_dct': stacked([first])},
      'group_1': {'0_chiar': stacked(middle)},
      'group_2': {'0_chiar_attention': stacked([chiar_block(g, 'layers/3/')])},
    },
  }
