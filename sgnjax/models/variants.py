"""Every named variant of the mechanisms: what it changes in a config's model."""

import math
from typing import Any

from ml_collections import ConfigDict

from sgnjax.errors import check_choice
from sgnjax.ops.entropy import white_entropy

PUBLISHED, BIDIRECTIONAL = {'form': 'published'}, {'form': 'bidirectional'}
SGN = {'mixer': 'sgn'}
PLAIN = SGN | PUBLISHED | {'sgn.gated': False}
FOURIER_QK = {'mixer': 'fourier_qk', 'fourier_qk.norm': 'l2', 'tied': False, 'out_bias': False}
TAPS = FOURIER_QK | {'fourier_qk.kernel': 'taps', 'fourier_qk.taps': 16}
CHIAR = {'mixer': 'chiar', 'block': 'chiar', 'positions': 'rope', 'qkv_bias': True}
CAPACITY = {'chiar.dispatch': 'capacity', 'chiar.route_window': 8, 'chiar.capacity': 0.375}
V1 = CHIAR | {'chiar.rbf': True, 'positions': 'learned', 'chiar.meta': False}
EGA = {'mixer': 'ega'}

# name: keys of config.model and their values. The first of a mechanism is its default, causal form.
VARIANTS: dict[str, dict[str, Any]] = {
  'sgn': SGN,
  'sgn-plain': SGN | {'sgn.gated': False},
  'sgn-masked': SGN | {'sgn.operator': 'masked', 'sgn.gated': False},
  'sgn-fft': SGN | {'sgn.basis': 'fft'},
  'sgn-adaptive': SGN | {'sgn.basis': 'adaptive'},
  'sgn-adaptive-masked': SGN | {'sgn.basis': 'adaptive', 'sgn.operator': 'masked'},
  'sgn-resolutions': SGN | {'sgn.resolutions': 3},
  'sgn-retained': SGN | {'sgn.retained': 6},
  'sgn-random': SGN | {'sgn.gate': 'random'},
  'sgn-lowpass': SGN | {'sgn.gate': 'lowpass'},
  'sgn-published': PLAIN,
  'sgn-published-block': PLAIN | {'block': 'sgn'},
  'sgn-published-gated': SGN | PUBLISHED,
  'sgn-published-fft': PLAIN | {'sgn.basis': 'fft'},
  'sgn-published-adaptive': PLAIN | {'sgn.basis': 'adaptive'},
  'sgn-published-retained': PLAIN | {'sgn.retained': 6},
  'sgn-published-random': PLAIN | {'sgn.gate': 'random'},
  'sgn-published-lowpass': PLAIN | {'sgn.gate': 'lowpass'},
  'sgn-published-2d': PLAIN | {'sgn.grid': 'of the context'},
  'sgn-bidirectional': SGN | BIDIRECTIONAL,
  'sgn-bidirectional-fft': SGN | BIDIRECTIONAL | {'sgn.basis': 'fft'},
  'sgn-bidirectional-adaptive': SGN | BIDIRECTIONAL | {'sgn.basis': 'adaptive'},
  'sgn-bidirectional-2d': SGN | BIDIRECTIONAL | {'sgn.grid': 'of the context'},
  'fourier_qk': FOURIER_QK,
  'fourier_qk-sum': FOURIER_QK | {'fourier_qk.norm': 'sum'},
  'fourier_qk-fixed': FOURIER_QK | {'fourier_qk.learned': False},
  'fourier_qk-multiscale': FOURIER_QK | {'fourier_qk.bins': (1.0, 2.0, 4.0, 8.0)},
  'fourier_qk-analytic': FOURIER_QK | {'fourier_qk.scores': 'analytic'},
  'fourier_qk-rope': FOURIER_QK | {'positions': 'rope'},
  'fourier_qk-mexican_hat': FOURIER_QK | {'fourier_qk.filter': 'mexican_hat'},
  'fourier_qk-paul': FOURIER_QK | {'fourier_qk.filter': 'paul'},
  'fourier_qk-morlet': FOURIER_QK | {'fourier_qk.filter': 'morlet'},
  'fourier_qk-ladder': FOURIER_QK | {'fourier_qk.filter': 'ladder'},
  'fourier_qk-random': FOURIER_QK | {'fourier_qk.filter': 'random'},
  'fourier_qk-dc': FOURIER_QK | {'fourier_qk.filter': 'dc'},
  'fourier_qk-nyquist': FOURIER_QK | {'fourier_qk.filter': 'nyquist'},
  'fourier_qk-taps-gaussian': TAPS,
  'fourier_qk-taps-mexican_hat': TAPS | {'fourier_qk.filter': 'mexican_hat'},
  'fourier_qk-taps-morlet': TAPS | {'fourier_qk.filter': 'morlet', 'fourier_qk.scores': 'analytic'},
  'fourier_qk-taps-morlet-real': TAPS | {'fourier_qk.filter': 'morlet'},
  'fourier_qk-taps-spectral': TAPS
  | {'fourier_qk.filter': 'spectral', 'fourier_qk.scores': 'analytic'},
  'fourier_qk-published': FOURIER_QK | PUBLISHED,
  'fourier_qk-published-fixed': FOURIER_QK | PUBLISHED | {'fourier_qk.learned': False},
  'fourier_qk-published-analytic': FOURIER_QK | PUBLISHED | {'fourier_qk.scores': 'analytic'},
  'fourier_qk-published-mexican_hat': FOURIER_QK | PUBLISHED | {'fourier_qk.filter': 'mexican_hat'},
  'fourier_qk-published-dc': FOURIER_QK | PUBLISHED | {'fourier_qk.filter': 'dc'},
  'fourier_qk-published-nyquist': FOURIER_QK | PUBLISHED | {'fourier_qk.filter': 'nyquist'},
  'fourier_qk-published-dc-rope': FOURIER_QK
  | PUBLISHED
  | {'fourier_qk.filter': 'dc', 'positions': 'rope'},
  'fourier_qk-published-paul': FOURIER_QK | PUBLISHED | {'fourier_qk.filter': 'paul'},
  'fourier_qk-published-morlet': FOURIER_QK | PUBLISHED | {'fourier_qk.filter': 'morlet'},
  'fourier_qk-published-ladder': FOURIER_QK | PUBLISHED | {'fourier_qk.filter': 'ladder'},
  'fourier_qk-published-random': FOURIER_QK | PUBLISHED | {'fourier_qk.filter': 'random'},
  'fourier_qk-surrogate': FOURIER_QK | PUBLISHED | {'fourier_qk.surrogate': 'random'},
  'fourier_qk-surrogate-independent': FOURIER_QK | {'fourier_qk.surrogate': 'independent'},
  'fourier_qk-surrogate-amplitude': FOURIER_QK | {'fourier_qk.surrogate': 'amplitude'},
  'fourier_qk-surrogate-shift': TAPS | {'fourier_qk.surrogate': 'shift'},
  'fourier_qk-bidirectional': FOURIER_QK | BIDIRECTIONAL,
  'fourier_qk-bidirectional-analytic': FOURIER_QK
  | BIDIRECTIONAL
  | {'fourier_qk.scores': 'analytic'},
  'chiar': CHIAR,
  'chiar-v1': V1,
  'chiar-v1-soft': V1 | {'chiar.router': 'soft', 'chiar.rbf_features': 16, 'chiar.rbf_gamma': 0.5},
  'chiar-v1-random': V1 | {'chiar.router': 'random'},
  'chiar-v2': CHIAR | {'chiar.meta': False},
  'chiar-soft': CHIAR | {'chiar.router': 'soft', 'chiar.collapse': 0.01},
  'chiar-hard': CHIAR | {'chiar.router': 'hard', 'chiar.collapse': 0.01},
  'chiar-random': CHIAR | {'chiar.router': 'random', 'chiar.rate': 0.4},
  'chiar-orthogonal': CHIAR | {'chiar.basis': 'orthogonal'},
  'chiar-permuted': CHIAR | {'chiar.basis': 'permuted', 'chiar.calibrated': 'permuted'},
  'chiar-released': CHIAR | {'chiar.released': True, 'chiar.calibrated': 'released'},
  'chiar-capacity-all': CHIAR | CAPACITY,
  'chiar-capacity-routed': CHIAR | CAPACITY | {'chiar.kv': 'routed'},
  'chiar-meta_hard': CHIAR | {'chiar.meta_hard': True},
  'chiar-published': CHIAR | PUBLISHED | {'chiar.released': True},
  'chiar-published-v1': V1 | PUBLISHED | {'chiar.released': True},
  'chiar-bidirectional': CHIAR | BIDIRECTIONAL,
  'chiar-bidirectional-v1': V1 | BIDIRECTIONAL,
  'ega': EGA,
  'ega-2': EGA | {'ega.scales': 2},
  'ega-4': EGA | {'ega.scales': 4},
  'ega-prefix': EGA | {'ega.znorm': 'prefix'},
  'ega-none': EGA | {'ega.znorm': 'none'},
  'ega-rope': EGA | {'positions': 'rope'},
  'ega-alibi': EGA | {'positions': 'alibi'},
  'ega-conv': EGA | {'ega.energy': 'conv'},
  'ega-conv-prefix': EGA | {'ega.energy': 'conv', 'ega.znorm': 'prefix'},
  'ega-morlet': EGA | {'ega.energy': 'morlet'},
  'ega-morlet-mean': EGA | {'ega.energy': 'morlet', 'ega.input': 'mean'},
  'ega-db2': EGA | {'ega.energy': 'daubechies', 'ega.wavelet': 'db2'},
  'ega-db4': EGA | {'ega.energy': 'daubechies'},
  'ega-learned_wavelet': EGA | {'ega.energy': 'learned_wavelet'},
  'ega-learned_wavelet-free': EGA | {'ega.energy': 'learned_wavelet', 'ega.orthonormal': False},
  'ega-db4-none': EGA | {'ega.energy': 'daubechies', 'ega.znorm': 'none'},
  'ega-packet': EGA | {'ega.energy': 'packet'},
  'ega-published': EGA | PUBLISHED | {'ega.released': True},
  'ega-published-2': EGA | PUBLISHED | {'ega.scales': 2, 'ega.released': True},
  'ega-published-4': EGA | PUBLISHED | {'ega.scales': 4, 'ega.released': True},
  'ega-published-conv': EGA | PUBLISHED | {'ega.energy': 'conv', 'ega.released': True},
  'ega-published-morlet': EGA
  | PUBLISHED
  | {'ega.energy': 'morlet', 'ega.input': 'mean', 'ega.released': True},
  'ega-published-reflect': EGA | PUBLISHED | {'ega.energy': 'conv', 'ega.pad': 'reflect'},
  'ega-published-db2': EGA | PUBLISHED | {'ega.energy': 'daubechies', 'ega.wavelet': 'db2'},
  'ega-published-db4': EGA | PUBLISHED | {'ega.energy': 'daubechies'},
  'ega-published-packet': EGA | PUBLISHED | {'ega.energy': 'packet'},
  'ega-bidirectional': EGA | BIDIRECTIONAL,
  'ega_fourier_qk': {'mixer': 'ega_fourier_qk', 'fourier_qk.norm': 'l2'},
  'ega_fourier_qk-published': {'mixer': 'ega_fourier_qk', 'fourier_qk.norm': 'l2'} | PUBLISHED,
  'softmax': {'mixer': 'softmax'},
  'softmax-rope': {'mixer': 'softmax', 'positions': 'rope'},
  'softmax-alibi': {'mixer': 'softmax', 'positions': 'alibi'},
  'softmax-bidirectional': {'mixer': 'softmax'} | BIDIRECTIONAL,
  'linear': {'mixer': 'linear'},
  'linear-bidirectional': {'mixer': 'linear'} | BIDIRECTIONAL,
  'performer': {'mixer': 'performer'},
  'performer-bidirectional': {'mixer': 'performer'} | BIDIRECTIONAL,
  'performer-rope': {'mixer': 'performer', 'positions': 'rope'},
  'haar': {'mixer': 'haar'},
  'fnet': {'mixer': 'fnet'} | BIDIRECTIONAL,
  'uniform': {'mixer': 'uniform'},
  'uniform-bidirectional': {'mixer': 'uniform'} | BIDIRECTIONAL,
  'identity': {'mixer': 'identity'},
}


def variant(config: ConfigDict, name: str) -> ConfigDict:
  """The config with its model turned into the named variant; sizes stay.

  CHIAR's thresholds lie around the entropy of white noise at the config's width, so that tokens go
  every way; a grid is the squarest of the context. Raises UserError for an unknown name.
  """
  check_choice('variant', name, VARIANTS)
  config = config.copy_and_resolve_references().unlock()
  m = config.model
  changes = dict(VARIANTS[name])
  if 'sgn.grid' in changes:
    rows = max(side for side in range(1, math.isqrt(m.context) + 1) if m.context % side == 0)
    changes['sgn.grid'] = (rows, m.context // rows)
  m.update_from_flattened_dict(changes)
  m.chiar.tau = white_entropy(m.width)
  m.chiar.tau_low = m.chiar.tau - 0.1 / math.log(m.width)
  return config.lock()
