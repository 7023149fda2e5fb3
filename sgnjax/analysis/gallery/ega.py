"""Pictures of EGA: wavelets, and gates over a line of text."""

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from sgnjax.analysis.plots.panels import FINE, FREQUENCY, LAG, Curve, Panel, sheet
from sgnjax.analysis.plots.runs import text_heat
from sgnjax.mixers.ega import EGA
from sgnjax.ops import energy, wavelets

TEXT = "To be, or not to be, that is the question:\nWhether 'tis nobler in the mind to suffer\n"


def ega_wavelets() -> Figure:
  """EGA: filters of the wavelet energies, what their levels and packets pass, Morlet envelopes."""
  db2, db4 = wavelets.filters('db2'), wavelets.filters('db4')
  angles = wavelets.lattice_angles(db4[0])
  learned = np.asarray(wavelets.lattice(jnp.asarray(angles)))
  impulse = jnp.zeros((1, 128)).at[0, 0].set(1.0)
  low, high = (jnp.asarray(a, jnp.float32) for a in db4)
  detail_1JL, rest_1L = wavelets.atrous(impulse, low, high, 3)
  nodes_FL = np.asarray(wavelets.packets(impulse, low, high, 3)[-1])[0]

  def size(h_L):
    return np.abs(np.fft.rfft(np.asarray(h_L), 2 * len(FINE) - 2))

  passed = [Curve(FINE, size(d) / 2 ** ((j + 1) / 2), f'detail {j + 1}')
            for j, d in enumerate(detail_1JL[0])]  # fmt: skip
  passed.append(Curve(FINE, size(rest_1L[0]) / 2**1.5, 'rest'))
  bands = [Curve(FINE, size(u) / 2**1.5, str(f)) for f, u in enumerate(nodes_FL)]
  omega, sigma = jnp.asarray([[np.pi / 15]]), jnp.asarray([[75 / np.pi]])
  waves = [energy.morlet_taps(omega, sigma, (15,), released=r)[0][0, 0] for r in (False, True)]

  def taps(h_T, label):
    return Curve(np.arange(len(h_T)), np.asarray(h_T), label, taps=True)

  lattice = Curve(np.arange(8), learned, 'learned, at start')
  wave = [taps(h, name) for h, name in zip(waves, ('ours', 'released code'), strict=True)]
  return sheet(
    'EGA: wavelets that see the past alone',
    [
      [Panel('db2', LAG, 'tap', [taps(db2[0], 'low'), taps(db2[1], 'high')], xlim=(-0.3, 7.3))],
      [Panel('db4', LAG, 'tap', [taps(db4[0], 'low'), taps(db4[1], 'high'), lattice],
             xlim=(-0.3, 7.3))],
      [Panel('db4, undecimated: level j over 2^(j/2)', FREQUENCY, 'gain', passed, xlim=(0, 0.5))],
      [Panel('db4 packets: level 3 over 2^(3/2)', FREQUENCY, 'gain', bands, 'band', (0, 0.5))],
      [Panel('Morlet of 15 taps at start, real part', LAG, 'tap', wave, xlim=(-0.4, 14.4))],
    ],
    height=1.65,
  )  # fmt: skip


def ega_gates() -> Figure:
  """EGA: gates of untrained heads over a line of text, the same weights under each statistic."""
  ids = np.asarray([sorted(set(TEXT)).index(c) for c in TEXT])
  table_VD = np.random.default_rng(0).standard_normal((len(set(TEXT)), 64))
  x_BLD = jnp.asarray(table_VD[ids][None], jnp.float32)

  def gate(**options):
    mixer = EGA(width=64, heads=1, context=len(ids), capture=True, **options)
    y, _ = jax.jit(mixer.init_with_output)(jax.random.key(0), x_BLD)
    return np.asarray(y.aux.debug['gate'])[0, 0]

  wavelet = {'energy': 'daubechies', 'znorm': 'prefix'}
  strips = {
    'linear energy, znorm sequence (published: sees the future)': gate(form='published'),
    'linear energy, znorm prefix': gate(znorm='prefix'),
    'db4 details, znorm prefix': gate(**wavelet),
    'wavelet packets, znorm prefix': gate(energy='packet', znorm='prefix'),
  }
  title = 'EGA: gates of an untrained head'
  return text_heat(list(TEXT), strips, title=title, label='gate', columns=43)
