"""The mixers: what can stand where attention stands, by the name a stack's layer gives it."""

from sgnjax.mixers.base import FORMS, Aux, Mixed, Mixer
from sgnjax.mixers.baselines import FNet, Haar, Identity, Linear, Performer, Uniform
from sgnjax.mixers.chiar import Routed
from sgnjax.mixers.chiar_operators import AttentionOperator, DCTOperator, RBFOperator
from sgnjax.mixers.ega import EGA
from sgnjax.mixers.ega_fourier_qk import EGAFourierQK
from sgnjax.mixers.fourier_qk import FourierQK
from sgnjax.mixers.own import check_known, register
from sgnjax.mixers.sgn import SGN
from sgnjax.mixers.softmax import Softmax

MIXERS: dict[str, type[Mixer]] = {
  'softmax': Softmax,
  'sgn': SGN,
  'fourier_qk': FourierQK,
  'ega': EGA,
  'ega_fourier_qk': EGAFourierQK,
  'chiar': Routed,
  'chiar_dct': DCTOperator,
  'chiar_attention': AttentionOperator,
  'chiar_rbf': RBFOperator,
  'linear': Linear,
  'performer': Performer,
  'haar': Haar,
  'fnet': FNet,
  'uniform': Uniform,
  'identity': Identity,
}

__all__ = ['FORMS', 'MIXERS', 'Aux', 'Mixed', 'Mixer', 'check_known', 'register']
