"""WikiText-103, FNet beside SGN, by masked tokens: FNet is no causal language model.

Command: python launch/main.py --config=configs/sgn_wikitext103_fnet.py --job=plan
  (SGN and attention on the same task: --config.model.mixer=sgn or softmax)
Cost: 92,000 steps of 256 x 512 tokens, 100 epochs. Hardware: 8 GPUs or a TPU slice. Result: not run
yet. The paper gives FNet a perplexity of 22.1 as a language model: an FFT over the whole sequence,
which sees the answers, and has no causal form. Masked tokens are what FNet was made for: their
perplexity stands beside that of the other encoders here, and beside no language model's.
"""

from configs import base


def get_config():
  c = base.sgn()
  c.model.mixer = 'fnet'
  c.model.form = 'bidirectional'
  c.data.task = 'mlm'
  return c
