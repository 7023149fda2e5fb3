"""Pictures of SGN, and of the bases it and CHIAR-Former use."""

import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from sgnjax.analysis.plots.panels import FINE, FREQUENCY, LAG, Curve, Matrix, Panel, sheet
from sgnjax.ops import gates, haar, kernels
from sgnjax.ops.width import analyse


def sgn_gates(n: int) -> dict[str, np.ndarray]:
  """Three gates over f = k/N, from 0 to 1 (Nyquist)."""
  f = np.arange(n + 1) / n
  return {
    'low pass': np.exp(-4 * f),
    'band at 0.15': np.exp(-(((f - 0.3) / 0.08) ** 2) / 2),
    'random, sd 0.3': 0.3 * np.random.default_rng(0).standard_normal(n + 1),
  }


def sgn_kernels() -> Figure:
  """SGN: gates, and the causal and the even kernel that each of them makes."""
  n, shown = 64, 24
  drawn = sgn_gates(n)
  gate_ND = jnp.asarray(np.stack(list(drawn.values()), 1))
  causal_TD = np.asarray(kernels.one_sided_kernel(gate_ND))
  even_TD = np.asarray(kernels.even_kernel(gate_ND))
  both_TD = np.concatenate([even_TD[shown:0:-1], even_TD[: shown + 1]])
  grid = np.arange(n + 1) / (2 * n)

  def curves(x, y_XD, labels):
    return [Curve(x, y, label) for y, label in zip(y_XD.T, labels, strict=True)]

  return sheet(
    'SGN: a gate, and the kernels it stands for',
    [
      [Panel('gate G', FREQUENCY, 'gate', curves(grid, np.asarray(gate_ND), drawn), xlim=(0, 0.5))],
      [
        Panel(
          'causal form: Re H = G', LAG, 'weight h',
          curves(np.arange(shown + 1), causal_TD[: shown + 1], [''] * 3), xlim=(0, shown),
        )
      ],
      [
        Panel(
          'bidirectional form: H = G', 'distance t − s (tokens; below 0 is the future)', 'weight r',
          curves(np.arange(-shown, shown + 1), both_TD, [''] * 3), xlim=(-shown, shown),
        )
      ],
    ],
  )  # fmt: skip


def sgn_operator() -> Figure:
  """SGN: one band-pass gate as the matrices that its forms apply to the sequence."""
  n = 24
  gate_N1 = jnp.asarray(sgn_gates(n)['band at 0.15'][:, None])
  units_NND = jnp.eye(n)[:, :, None]
  published = np.asarray(gates.spectral_gate(units_NND, gate_N1[:n]))[:, :, 0].T
  masked = np.asarray(gates.masked_operator('dct', gate_N1[:n], n))[:, :, 0]
  causal = np.asarray(kernels.causal_conv(units_NND, kernels.one_sided_kernel(gate_N1)))
  even = np.asarray(kernels.even_conv(units_NND, kernels.even_kernel(gate_N1)))
  axes = ('input s (token)', 'output t (token)')
  return sheet(
    'SGN: who sees whom under one gate',
    [
      [
        Matrix('published: past, future, mirror', *axes, published),
        Matrix('causal, operator masked', *axes, masked),
      ],
      [
        Matrix('bidirectional', *axes, even[:, :, 0].T),
        Matrix('causal, operator kernel', *axes, causal[:, :, 0].T),
      ],
    ],
    height=2.7,
    bar='weight of input s in output t',
  )


def bases() -> Figure:
  """The orthonormal bases of the length and of the width, one row a basis vector."""
  n = 32
  unit = jnp.eye(n)
  axes = ('place (token or channel)', 'basis vector')
  drawn = {name: np.asarray(analyse(unit, name)).T for name in ('dct', 'orthogonal', 'permuted')}
  return sheet(
    'Orthonormal bases, n = 32',
    [
      [Matrix('DCT-II', *axes, drawn['dct']),
       Matrix('Haar', *axes, np.asarray(haar.haar(unit)).T)],
      [Matrix('random orthogonal', *axes, drawn['orthogonal']),
       Matrix('DCT of permuted channels', *axes, drawn['permuted'])],
    ],
    height=2.7,
    bar='weight',
  )  # fmt: skip


def haar_kernels() -> Figure:
  """The causal undecimated Haar transform: the kernel of each level, and what it passes."""
  levels = 4
  h_TJ = np.asarray(haar.causal_haar_kernel(jnp.eye(levels + 1)))
  names = ['average of 16', *(f'detail {levels - j}' for j in range(levels))]
  lag = np.arange(len(h_TJ) + 1) - 0.5
  steps = [Curve(np.repeat(lag, 2)[1:-1], np.repeat(h, 2)) for h in h_TJ.T]
  sizes = [Curve(FINE, np.abs(np.fft.rfft(h, 4096)), name)
           for name, h in zip(names, h_TJ.T, strict=True)]  # fmt: skip
  octaves = ([0, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2], ['0', '1/32', '1/16', '1/8', '1/4', '1/2'])
  return sheet(
    'Causal Haar levels: they add up to the identity',
    [
      [Panel('kernels', LAG, 'weight', steps, xlim=(-0.5, 15.5))],
      [Panel('responses', FREQUENCY, 'gain', sizes, xlim=(0, 0.5), scale='root', ticks=octaves)],
    ],
    height=2.1,
  )  # fmt: skip
