"""Parameter counts against the formulas of the docstrings."""

import jax
import numpy as np

from tests.theorems.instances import HEADS, WIDTH, N, every_variant, instance

D, H = WIDTH, HEADS
ATTENTION = 4 * D * D
BIASED = ATTENTION + D  # the output projection's
GATED = 3 * D * D + D
FREE = (N + 1) * D  # a gate of a causal or even kernel
HAAR = (N + 1).bit_length()  # levels of the causal kernel, and the average
MIXTURE = 4 * 3  # 4 groups of 3 bases
ROUTED = ATTENTION + 4 * D + 2 * D + 3 * D  # attention with biases and norm; the DCT operator


def rbf(features):
  return 3 * features * D + D + 8 * D * D + 5 * D + 2 * D  # features * D of these are frozen


TAPS = 3 + 5


def ega(scales, each=0, head=0):
  """Attention; of each head and scale tau, alpha, its share and `each` more; `head` of a head."""
  return BIASED + H * (scales * (3 + each) + head)


# By the start of the name: the longest that fits counts.
FORMULAS = {
  'sgn': FREE + GATED,
  'sgn-plain': FREE,
  'sgn-masked': N * D,
  'sgn-fft': 2 * FREE + GATED,
  'sgn-adaptive': 3 * FREE + HAAR * D + MIXTURE + GATED,
  'sgn-adaptive-masked': 2 * N * D + 2 * (N // 2 + 1) * D + MIXTURE + GATED,
  'sgn-resolutions': (N + N // 2 + N // 4 + 3) * D + GATED,
  'sgn-retained': 6 * D + GATED,
  'sgn-lowpass': GATED,
  'sgn-published': N * D,
  'sgn-published-gated': N * D + GATED,
  'sgn-published-fft': 2 * (N // 2 + 1) * D,
  'sgn-published-adaptive': 2 * N * D + 2 * (N // 2 + 1) * D + MIXTURE,
  'sgn-published-retained': 6 * D,
  'sgn-published-lowpass': 0,
  'sgn-bidirectional-fft': 2 * FREE + GATED,
  'sgn-bidirectional-adaptive': 3 * FREE + HAAR * D + MIXTURE + GATED,
  'sgn-bidirectional-2d': 5 * 7 * D + GATED,  # a grid of 4 x 6
  'fourier_qk': ATTENTION + H,
  'fourier_qk-fixed': ATTENTION,
  'fourier_qk-multiscale': ATTENTION + 4 * H,
  'fourier_qk-mexican_hat': ATTENTION + 4 * H,
  'fourier_qk-published-mexican_hat': ATTENTION + 4 * H,
  'fourier_qk-paul': ATTENTION + 4 * H,
  'fourier_qk-morlet': ATTENTION + 4 * H,
  'fourier_qk-ladder': ATTENTION,
  'fourier_qk-random': ATTENTION,
  'fourier_qk-dc': ATTENTION,
  'fourier_qk-nyquist': ATTENTION,
  'fourier_qk-published-fixed': ATTENTION,
  'fourier_qk-published-paul': ATTENTION + 4 * H,
  'fourier_qk-published-morlet': ATTENTION + 4 * H,
  'fourier_qk-published-ladder': ATTENTION,
  'fourier_qk-published-random': ATTENTION,
  'fourier_qk-published-dc': ATTENTION,
  'fourier_qk-published-nyquist': ATTENTION,
  'chiar': ROUTED,
  'chiar-v1': ROUTED + rbf(64),
  'chiar-v1-soft': ROUTED + rbf(16) + 3 * (D + 2),
  'chiar-v1-random': ROUTED + rbf(64) + 1,
  'chiar-published-v1': ROUTED + rbf(64),
  'chiar-bidirectional-v1': ROUTED + rbf(64),
  'chiar-soft': ROUTED + 2 * (D + 2),
  'chiar-hard': ROUTED + 2 * (D + 2),
  'chiar-random': ROUTED + 1,
  'ega': ega(1, each=D + 1),
  'ega-2': ega(2, each=D + 1),
  'ega-4': ega(4, each=D + 1),
  'ega-conv': ega(2, each=2) + H * 2 * D * TAPS,
  'ega-morlet-mean': ega(2, each=2),
  'ega-morlet': ega(2, each=2, head=D),
  'ega-db': ega(2, head=D),
  'ega-learned_wavelet': ega(2, head=D + 3),
  'ega-learned_wavelet-free': ega(2, head=D + 16),
  'ega-packet': ega(3, head=D),
  'ega-published-2': ega(2, each=D + 1),
  'ega-published-4': ega(4, each=D + 1),
  'ega-published-db': ega(2, head=D),
  'ega-published-packet': ega(3, head=D),
  'ega-published-conv': ega(2, each=2) + H * 2 * D * TAPS,
  'ega-published-reflect': ega(2, each=2) + H * 2 * D * TAPS,
  'ega-published-morlet': ega(2, each=2),
  'ega_fourier_qk': ega(1, each=D + 1) + H,
  'softmax': BIASED,
  'linear': BIASED,
  'performer': BIASED,
  'uniform': 2 * D * D + D,
  'haar': 0,
  'fnet': 0,
  'identity': 0,
}


@every_variant
def test_parameters_are_as_many_as_the_docstring_says(name, record_property):
  counted = sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(instance(name).params))
  assert counted == FORMULAS[max((f for f in FORMULAS if name.startswith(f)), key=len)]
  record_property('cell', f'{counted:,}')
