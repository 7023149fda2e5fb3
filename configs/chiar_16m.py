"""CHIAR-Former 16M on WikiText-103: 4 layers, width 256, GPT-2 tokens, 15,764,225 parameters.

Command: python launch/main.py --config=configs/chiar_16m.py --job=plan
Cost: see the plan. Hardware: one GPU. Result: not run yet
(the paper: a gap of 3 to 4 points of perplexity to its baseline).
Its baseline: --config.model.mixer=chiar_attention (16,025,344 parameters).
tau: 0.8682, by --job=calibrate on 2026-11-30 from the embeddings of WikiText-2's train split (GPT-2
tokens) under the initial weights of seed 0, in place of WikiText-103; white noise has 0.8684 on
average. Calibrate again with trained weights.
"""

from configs import base


def get_config():
  c = base.chiar_400m()
  c.model.layers = 4
  c.model.width = 256
  c.model.heads = 4
  c.model.chiar.tau = 0.8682
  c.model.chiar.calibrated = 'dct'
  c.train.steps = 35_000  # 10 epochs
  c.optim.warmup = 500
  return c
