"""What hidden states do along the sequence: spectra (Wiener and Khinchin) and scalograms."""

import numpy as np
import pywt

from sgnjax.analysis import plots
from sgnjax.analysis.page import Picture

SHOWN = 64  # tokens of a scalogram
PERIODS = 24
WAVELET = 'cmor1.5-1.0'  # complex Morlet, one cycle a unit of scale


def spectrum(hidden_BLD: np.ndarray) -> np.ndarray:
  """Share of the power (F,), F = L // 2, at k / 2F cycles per token, k from 1.

  Mean over rows and channels. Wiener-Khinchin: the power spectrum of a stationary signal is the
  Fourier transform of its autocorrelation. Here that is taken of lags below half the window, the
  mean of each channel left out, under a triangle, which keeps every share at zero or above.
  """
  x_BLD = np.asarray(hidden_BLD, np.float64)
  x_BLD = x_BLD - x_BLD.mean(1, keepdims=True)
  length = x_BLD.shape[1]
  half = max(2, length // 2)
  power = np.abs(np.fft.rfft(x_BLD, 2 * length, axis=1)) ** 2
  lagged_T = np.fft.irfft(power.mean((0, 2)))[:half]  # autocorrelation, lags 0 .. half - 1
  lagged_T = lagged_T * (1 - np.arange(half) / half)
  both = np.concatenate([lagged_T, [0.0], lagged_T[:0:-1]])  # even, period 2 half
  share_F = np.fft.rfft(both).real[1:]
  return share_F / max(float(share_F.sum()), 1e-30)


def scalogram(hidden_LD: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Power (P, L) by period and place, mean over channels, and the periods (P,) in tokens."""
  x_DL = np.asarray(hidden_LD, np.float64).T
  x_DL = x_DL - x_DL.mean(1, keepdims=True)
  period_P = np.geomspace(2, max(4, x_DL.shape[1] / 2), PERIODS)
  found, _ = pywt.cwt(x_DL, period_P, WAVELET, axis=1)
  return (np.abs(found) ** 2).mean(1), period_P


def pictures(debug: dict[str, np.ndarray], pieces: list[str], *, leaky: bool) -> list[Picture]:
  """Spectra and scalograms of the embedding and of every layer's output, of captured arrays.

  pieces: the text of the first row's tokens.
  """
  hidden = {k: np.asarray(a, np.float32) for k, a in debug.items() if k.startswith('hidden/')}
  layers = {int(k.rpartition('/')[2]): a for k, a in sorted(hidden.items())}
  if not layers or next(iter(layers.values())).shape[1] < 8:
    return []
  named = {'embedding': debug['embedding']} if 'embedding' in debug else {}
  named |= {f'layer {i + 1}': a for i, a in layers.items()}
  power, period_P = {}, np.zeros(0)
  for i, hidden_BLD in layers.items():
    power[i], period_P = scalogram(hidden_BLD[0, :SHOWN])
  return [
    Picture(
      'spectra',
      plots.power_spectra({n: spectrum(a) for n, a in named.items()}, leaky=leaky),
      'Fourier transform of the autocorrelation of hidden states along the text (Wiener-Khinchin), '
      'mean over channels and windows. A flat line changes at every token; one that falls to the '
      'right carries slow change.',
    ),
    Picture(
      'scalograms',
      plots.scalograms(power, period_P, pieces[:SHOWN], leaky=leaky),
      f'The first {min(SHOWN, len(pieces))} tokens of a window. Bright: hidden states change there '
      'with that period (complex Morlet wavelet, mean over channels).',
    ),
  ]
