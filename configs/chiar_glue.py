"""GLUE from a trained CHIAR-Former 400M, its paper's future work: SST-2 first, the others by name.

Command: python launch/main.py --config=configs/chiar_glue.py --config.init_from=runs/chiar_400m
  (another task: --config.data.name=glue/mnli, or cola, mrpc, qqp, qnli, rte, wnli, stsb, a number)
Cost: 6,300 steps of 32 examples, 3 epochs of SST-2 (cola 800, mrpc 350, qqp 34,000, mnli 37,000,
qnli 9,800, rte 235, wnli 60, stsb 540). Hardware: one GPU of 24 GB or more. Result: not run yet.
Layers stay causal, as they were trained; the head reads the mean over the real tokens. The
validation split is what results are told of: labels of the test split are secret.
tau: 0.8947, that of chiar_400m.
"""

from configs import base


def get_config():
  c = base.chiar_400m()
  c.data.name = 'glue/sst2'
  c.data.task = 'classify'
  c.train.steps = 6300
  c.train.batch = 32
  c.train.eval_every = 1000
  c.optim.lr = 2e-5
  c.optim.final_lr = 0.0
  c.optim.warmup = 300
  return c
