"""Spectra and scalograms against signals whose periods are known."""

import numpy as np

from sgnjax.analysis import activations
from sgnjax.analysis.capture import reach
from sgnjax.analysis.history import panels


def wave(period: float, length: int = 128) -> np.ndarray:
  phase = np.arange(4)[None, :]
  return np.sin(2 * np.pi * np.arange(length)[:, None] / period + phase)[None]


def test_a_wave_has_its_power_at_its_frequency():
  share_F = activations.spectrum(wave(8))
  assert len(share_F) == 64
  np.testing.assert_allclose(share_F.sum(), 1)
  assert np.argmax(share_F) + 1 == 128 // 8  # frequencies k / 128, from 1
  assert share_F.min() > -1e-9


def test_noise_is_flat_and_a_walk_falls():
  noise_BLD = np.random.default_rng(0).standard_normal((64, 128, 8))
  flat_F = activations.spectrum(noise_BLD) * 64
  assert 0.7 < flat_F[1:-1].min() < flat_F[1:-1].max() < 1.3
  walk_F = activations.spectrum(noise_BLD.cumsum(1))
  assert walk_F[0] > 10 * walk_F[8] > 100 * walk_F[40]


def test_wiener_and_khinchin_of_a_periodic_signal():
  """Without the triangle the transform of the circular autocorrelation is the periodogram."""
  x_L = np.random.default_rng(1).standard_normal(32)
  lagged = [np.mean(x_L * np.roll(x_L, -k)) for k in range(32)]
  np.testing.assert_allclose(np.fft.fft(lagged).real, np.abs(np.fft.fft(x_L)) ** 2 / 32)


def test_a_scalogram_shows_when_a_period_changes():
  x_LD = np.concatenate([wave(4, 64)[0], wave(16, 64)[0]])
  power_PL, period_P = activations.scalogram(x_LD)
  assert power_PL.shape == (activations.PERIODS, 128)
  early, late = (period_P[np.argmax(power_PL[:, i])] for i in (32, 96))
  assert 3 < early < 5.5
  assert 12 < late < 21


def test_pictures_of_captured_layers():
  debug = {f'hidden/0{i}': np.tile(wave(8, 32), (2, 1, 1)) for i in range(2)}
  debug |= {'embedding': debug['hidden/00'], 'gate/00': np.ones(3)}
  drawn = activations.pictures(debug, list('some text of thirty-two letters!'), leaky=True)
  assert [p.name for p in drawn] == ['spectra', 'scalograms']
  assert all('LEAKY' in p.figure.get_suptitle() for p in drawn)
  labels = [t.get_text() for t in drawn[0].figure.axes[0].get_legend().get_texts()]
  assert labels == ['embedding', 'layer 1', 'layer 2']
  assert activations.pictures({}, [], leaky=False) == []


def test_what_was_logged_over_training():
  records = [
    {'kind': 'train', 'step': s, 'meta_gate/00': 0.5, 'attention_share/01': s / 100,
     'attention_share/02': 0.1} for s in (10, 20)
  ]  # fmt: skip
  records += [
    {'kind': 'evaluation', 'step': s, 'learned': {'tau': [s, s - 1, s + 1]}} for s in (1, 2)
  ]
  found = panels(records, leaky=False)
  assert [(p.ylabel.split()[0], len(p.bands)) for p in found] == [
    ('MetaRouter:', 1), ('share', 2), ('tau,', 1),
  ]  # fmt: skip
  assert list(found[1].bands[0].middle) == [0.1, 0.2]
  assert (found[2].bands[0].low, found[2].bands[0].high) == ((0, 1), (2, 3))


def test_how_far_kernels_look():
  h_TD = np.zeros((10, 3))
  h_TD[0], h_TD[7] = 1, 0.5  # 80 % of the energy at lag 0, the rest at lag 7
  assert reach({2: h_TD}).endswith('tokens: layer 3: 0 and 7.')
