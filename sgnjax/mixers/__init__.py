"""The mixers: what can stand where attention stands, by the name a stack's layer gives it."""

from sgnjax.mixers.base import FORMS, Aux, Mixed, Mixer
from sgnjax.mixers.chiar import AttentionOperator, DCTOperator, Routed
from sgnjax.mixers.ega import EGA
from sgnjax.mixers.fourier_qk import FourierQK
from sgnjax.mixers.sgn import SGN
from sgnjax.mixers.softmax import Softmax

MIXERS: dict[str, type[Mixer]] = {
  'softmax': Softmax,
  'sgn': SGN,
  'fourier_qk': FourierQK,
  'ega': EGA,
  'chiar': Routed,
  'chiar_dct': DCTOperator,
  'chiar_attention': AttentionOperator,
}

__all__ = ['FORMS', 'MIXERS', 'Aux', 'Mixed', 'Mixer']
