"""Pictures of FourierQK: filters, causal kernels, causal taps."""

import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from sgnjax.analysis.plots.panels import FINE, FREQUENCY, LAG, Curve, Panel, sheet
from sgnjax.ops import filters, kernels

CONTEXT = 256  # of the paper
PERIODS = np.asarray([50.0, 26.0, 10.0, 5.0])
OCTAVES = ([0, 1 / 256, 1 / 64, 1 / 16, 1 / 4, 1 / 2], ['0', '1/256', '1/64', '1/16', '1/4', '1/2'])
FEWER = tuple(row[:1] + row[2:] for row in OCTAVES)  # for panels of half the width


def fourier_qk_responses() -> Figure:
  """FourierQK: the response of every filter at the paper's context, with its coverage."""
  bins = jnp.arange(CONTEXT // 2 + 1.0)
  grid_F = np.asarray(bins) / CONTEXT
  omega = 2 * jnp.pi * bins / CONTEXT
  scale = jnp.asarray(PERIODS / (2 * np.pi))
  sigmas = np.asarray([0.5, 2.0, 16.0])
  fours = jnp.full((3,), 4.0)
  rungs = filters.ladder(CONTEXT, 6)
  periods = [f'{p:.0f}' for p in PERIODS]
  both = jnp.concatenate([filters.dc(CONTEXT, 1), filters.nyquist(CONTEXT, 1)])
  rows = {
    'gaussian at bin 4': (
      'σ (bins)',
      ['0.5', '2', '16'],
      filters.gaussian(bins, fours, sigmas[:, None]),
    ),
    'mexican_hat': ('period', periods, filters.mexican_hat(omega, 2**0.5 * scale)),
    'paul, order 4': ('period', periods, filters.paul(omega, 4 * scale, 4)),
    'morlet, ω₀ = 6': ('period', periods, filters.morlet(omega, 6 * scale, 6.0)),
    'ladder, σ = 2 bins': ('bin', rungs.astype(int), filters.gaussian(bins, jnp.asarray(rungs), 2)),
    'random': ('head', ['1'], filters.random_response(CONTEXT, 1)),
    'dc and nyquist': ('bin', [0, 128], both),
  }

  def panel(title, key, names, response_KF):
    response_KF = np.asarray(response_KF)
    peaked_KF = response_KF / response_KF.max(-1, keepdims=True)
    covered_K = np.asarray(filters.coverage(jnp.asarray(response_KF)))
    curves = []
    for name, y_F, covered in zip(names, peaked_KF, covered_K, strict=True):
      alone = np.count_nonzero(y_F) == 1
      at_F = y_F > 0 if alone else slice(None)
      curves.append(Curve(grid_F[at_F], y_F[at_F], f'{name}: {covered:.1%}', taps=alone))
    return Panel(
      title, '', 'over its peak', curves, f'{key}: coverage', ylim=(0, 1.05), scale='root',
      ticks=OCTAVES,
    )  # fmt: skip

  panels = [[panel(title, *row)] for title, row in rows.items()]
  panels[-1] = [panels[-1][0]._replace(xlabel=FREQUENCY)]
  return sheet('FourierQK: what the filters pass (context 256)', panels, height=1.4)


def fourier_qk_kernels() -> Figure:
  """FourierQK: causal one-sided kernels of three filters, and what the cut lets in beside."""
  bins = jnp.arange(CONTEXT + 1.0) / 2  # the half bins of a grid of 2N
  omega, ten = 2 * jnp.pi * bins / CONTEXT, jnp.asarray([10 / (2 * np.pi)])
  rows = {
    'gaussian, bin 4, σ = 2': (64, filters.gaussian(bins, jnp.asarray([4.0]), 2.0)),
    'mexican_hat, period 10': (16, filters.mexican_hat(omega, 2**0.5 * ten)),
    'morlet, period 10': (32, filters.morlet(omega, 6 * ten, 6.0)),
  }
  panels = []
  for title, (shown, response_KF) in rows.items():
    given_F1 = (response_KF / response_KF.max()).T
    h_T = np.asarray(kernels.one_sided_kernel(given_F1))[:, 0]
    odd_T = np.asarray(kernels.quadrature_kernel(given_F1))[:, 0]
    lag = np.arange(shown + 1)
    size_F = np.abs(np.fft.rfft(h_T, 2 * CONTEXT))
    grid = np.asarray(bins) / CONTEXT
    own = [Curve(lag, h_T[: shown + 1]), Curve(lag, odd_T[: shown + 1])]
    passed = [Curve(grid, given_F1[:, 0], 'filter = Re H'), Curve(grid, size_F, '|H|')]
    panels.append(
      [
        Panel(title, LAG, 'weight', own, xlim=(0, shown)),
        Panel('response', FREQUENCY, 'gain', passed, scale='root', ticks=FEWER),
      ]
    )  # fmt: skip
  return sheet('FourierQK, causal: kernel (solid) and its quadrature (dashed)', panels, height=1.9)


def fourier_qk_taps() -> Figure:
  """FourierQK: the causal taps of its paper, their responses, and how much of a mean they pass."""
  widths = jnp.asarray([2.0, 8.0, 32.0])
  sigmas = np.asarray([8.0, 4.0, 2.0])
  centre = jnp.full((3,), 2 * np.pi * 4 / CONTEXT)
  scales = [f'a = {w:.0f}' for w in widths]
  spectral = filters.half_morlet(centre, jnp.asarray(CONTEXT / (2 * np.pi * sigmas)), 128)
  rows = {
    'half gaussian': (scales, 24, 1, filters.half_gaussian(widths, 128)),
    'half mexican_hat': (scales, 36, 1, filters.half_mexican_hat(widths, 128)),
    'morlet, ω₀ = 6': (scales, 28, 1, filters.half_morlet(6 / widths, widths, 128)),
    'spectral, bin 4': ([f'σ = {s:.0f}' for s in sigmas], 80, 2, spectral),
  }
  panels = []
  for title, (names, shown, which, taps_PKT) in rows.items():
    response_KF = filters.taps_response(taps_PKT, FINE)
    left_K = np.asarray(filters.admissibility(response_KF))
    size_KF = np.abs(np.asarray(response_KF))
    size_KF = size_KF / size_KF.max(-1, keepdims=True)
    lag = np.arange(shown + 1)
    own = [Curve(lag, np.asarray(part_KT[which, : shown + 1])) for part_KT in taps_PKT]
    passed = [
      Curve(FINE, y, f'{name}: {left:.3f}')
      for name, y, left in zip(names, size_KF, left_K, strict=True)
    ]
    panels.append(
      [
        Panel(f'{title}, {names[which]}', LAG, 'tap', own, xlim=(0, shown)),
        Panel('response over its peak', FREQUENCY, '|H|', passed, '|H(0)| / max', ylim=(0, 1.05),
              scale='root', ticks=FEWER),
      ]
    )  # fmt: skip
  return sheet('FourierQK: causal taps, real (solid) and imaginary (dashed)', panels, height=1.75)
