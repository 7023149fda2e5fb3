"""EGA's gate on the keys and FourierQK's filter of queries and keys, in one attention."""

from typing import ClassVar

from sgnjax.mixers.ega import EGA
from sgnjax.mixers.fourier_qk import FourierQK


class EGAFourierQK(EGA, FourierQK):
  """`softmax(S + log g)` with FourierQK's filtered scores S and EGA's gate g.

  Options, and parameters beside those of attention, are those of both. A form is that of both, so
  it is causal, keeps a cache and takes masks and segments where both do.
  """

  group: ClassVar[str] = 'ega'
  option_groups: ClassVar[tuple[str, ...]] = ('ega', 'fourier_qk')

  label: ClassVar[str] = 'ega_fourier_qk'

  @property
  def causal(self) -> bool:
    return self.form == 'causal' and super().causal
