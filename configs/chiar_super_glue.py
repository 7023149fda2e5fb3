"""SuperGLUE from a trained CHIAR-Former 400M: BoolQ first, the others by name.

Command: python launch/main.py --config=configs/chiar_super_glue.py \\
  --config.init_from=runs/chiar_400m
  (another task: --config.data.name=super_glue/rte, or cb, copa, multirc, wic, wsc.fixed)
Cost: 2,900 steps of 32 examples, 10 epochs of BoolQ (rte 780, cb 80, copa 125, multirc 8,500, wic
1,700, wsc.fixed 170). Hardware: one GPU of 24 GB or more. Result: not run yet. Layers stay causal,
as they were trained; the head reads the mean over the real tokens; what is longer than 256 tokens
is cut. ReCoRD asks for a span, and is left out.
tau: 0.8947, that of chiar_400m.
"""

from configs import base


def get_config():
  c = base.chiar_400m()
  c.data.name = 'super_glue/boolq'
  c.data.task = 'classify'
  c.train.steps = 2900
  c.train.batch = 32
  c.train.eval_every = 290
  c.train.checkpoint_every = 290
  c.optim.lr = 1e-5
  c.optim.final_lr = 0.0
  c.optim.warmup = 150
  return c
