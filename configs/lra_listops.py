"""ListOps of the Long Range Arena, bidirectional SGN: 6 layers, width 512, up to 2,000 symbols.

Command: python launch/main.py --config=configs/lra_listops.py
  (baselines: --config.model.mixer=softmax, linear or performer; FNet, whose FFT reads padding:
  --config.model.mixer=fnet --config.data.mask_padding=false; the benchmark's own files:
  --config.data.name=list_ops/released --config.data.path=FOLDER)
Cost: 5,000 steps of 32 lists. Hardware: one GPU. Result: not run yet at full size (the benchmark's
Transformer: accuracy 36.37 %; the evaluation tells the most frequent of the ten classes beside).
Examples are drawn from seed 0 by the benchmark's own distribution, some minutes the first time.
"""

from configs import base


def get_config():
  c = base.get_config()
  c.model.mixer = 'sgn'
  c.model.form = 'bidirectional'
  c.model.layers = 6
  c.model.width = 512
  c.model.heads = 8
  c.model.context = 2000
  c.model.dropout = 0.1
  c.model.pooling = 'cls'  # a mean over 2,000 symbols thins out the operator that says most
  c.data.name = 'list_ops'
  c.data.task = 'classify'
  c.data.tokenizer = 'word'
  c.train.steps = 5000
  c.train.eval_every = 500
  c.train.checkpoint_every = 500
  c.optim.lr = 3e-4
  c.optim.warmup = 1000
  return c
