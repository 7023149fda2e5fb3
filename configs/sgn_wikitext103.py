"""WikiText-103, gated causal SGN: 12 layers, width 768, context 512, 121,668,864 parameters.

Command: python launch/main.py --config=configs/sgn_wikitext103.py --job=plan
  (evaluated with windows that do not overlap: --job=eval --config.eval.stride=512)
Cost: 92,000 steps of 256 x 512 tokens, 100 epochs. Hardware: 8 GPUs or a TPU slice. Result: not run
yet (the paper: perplexity 18.1, by a DCT over the whole sequence, which sees the future; that form:
--config.model.form=published --config.allow_leak=True). Compare `word_perplexity`, which is that of
the text's own words under any tokens.
"""

from configs import base


def get_config():
  return base.sgn()
