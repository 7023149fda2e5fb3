"""C4, gated causal SGN: 12 layers, width 768, context 512, GPT-2 tokens.

Command: python launch/main.py --config=configs/sgn_c4.py --job=plan
Cost: 100,000 steps of 256 x 512 tokens, 13 billion in all. Hardware: 8 GPUs or a TPU slice (the
mesh splits parameters over as many devices as there are). Result: not run yet (the paper: 50
epochs, perplexity 15.5, of a form that sees the future).
"""

from configs import base


def get_config():
  c = base.sgn()
  c.data.name = 'c4'
  c.train.steps = 100_000
  c.train.batch = 256
  return c
