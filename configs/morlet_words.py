"""WikiText-2 by words, FourierQK with 128 causal Morlet taps: what its paper predicts to gain.

Command: python launch/main.py --config=configs/morlet_words.py
  (plain files instead of TFDS: --config.data.path=FOLDER; the dot product:
  --config.model.mixer=softmax; causal Haar averages: --config.model.mixer=haar)
Cost: 5,000 steps of 64 x 256 words, 39 epochs. Hardware: one GPU. Result: not run yet at full size
(the paper predicts, and has not tried, that 128 taps span a paragraph's period when a token is a
word; its character models lose by the same taps).
"""

from configs import base


def get_config():
  c = base.tiny_shakespeare()
  c.model.mixer = 'fourier_qk'
  c.model.vocab = 33278
  c.model.out_bias = False
  c.model.fourier_qk.filter = 'morlet'
  c.model.fourier_qk.kernel = 'taps'
  c.model.fourier_qk.scores = 'analytic'
  c.model.fourier_qk.taps = 128
  c.model.fourier_qk.widths = (32.0,)
  c.data.name = 'wikitext2'
  c.data.tokenizer = 'word'
  c.optim.warmup = 200
  return c
