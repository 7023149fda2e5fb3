"""Operations against the FFTs that they cannot do without, forward and with their gradient."""

from collections.abc import Iterator, Sequence

import jax
import jax.numpy as jnp
import jax.scipy.fft

from sgnjax.analysis.benchmark import timing
from sgnjax.analysis.benchmark.page import Row
from sgnjax.analysis.benchmark.settings import Settings
from sgnjax.ops.dct import MATRIX_UP_TO, dct
from sgnjax.ops.gates import published_mix
from sgnjax.ops.kernels import causal_conv, fast_length

SHAPES = ((16, 1024, 256), (1, 65_536, 256))
PASSES = (('forward', lambda f: f), ('forward and gradient', timing.gradient))


def _pair(x_BLD):
  """One real FFT along the length, and back."""
  return jnp.fft.irfft(jnp.fft.rfft(x_BLD, axis=1), x_BLD.shape[1], axis=1)


def _scipy(x_BLD, gate_ND):
  spectrum = jax.scipy.fft.dct(x_BLD, axis=1, norm='ortho') * gate_ND[None]
  return jax.scipy.fft.idct(spectrum, axis=1, norm='ortho')


def _ours(x_BLD, gate_ND):
  return published_mix(x_BLD, 'dct', gate_ND, x_BLD.shape[1])


def gated_dct(settings: Settings, *, shapes: Sequence[tuple] = SHAPES) -> Iterator[Row | str]:
  """DCT, gate and inverse DCT

  Along the length of float32 (rows, length, channels), as the published SGN mixes, against one rfft
  and irfft of the same array, and the same with `jax.scipy.fft`."""
  for shape in shapes:
    x_BLD, gate_ND = _normal(0, shape), _normal(1, shape[1:])
    for what, derive in PASSES:
      timed = {
        'pair': timing.program(derive(_pair), x_BLD),
        'ours': timing.program(derive(_ours), x_BLD, gate_ND),
        'scipy': timing.program(derive(_scipy), x_BLD, gate_ND),
        'copy': timing.copy(x_BLD.size),
      }
      took = timing.interleaved(timed, settings.repeats, settings.seconds)
      yield {
        'shape': str(shape),
        'pass': what,
        'rfft + irfft, ms': 1e3 * took['pair'],
        'ours, ms': 1e3 * took['ours'],
        'ours / FFT pair': took.ratio('ours', 'pair'),
        'aim': '1.5' if what == 'forward' else None,
        'jax.scipy / FFT pair': took.ratio('scipy', 'pair'),
        'ours in copies of the array': took.ratio('ours', 'copy'),
        'ours, peak MiB': timed['ours'].peak / 2**20,
      }


def convolution(settings: Settings, *, shapes: Sequence[tuple] = SHAPES) -> Iterator[Row | str]:
  """Causal convolution

  With a kernel as long as the float32 input (rows, length, channels), against the FFTs of double
  length that it needs: of the input, of the kernel, and one back. The gradient needs twice as many:
  autodiff of the same FFTs is what it is compared with."""
  for shape in shapes:
    x_BLD, h_TD = _normal(0, shape), _normal(1, shape[1:])
    n = fast_length(2 * shape[1] - 1)

    def needed(x_BLD, h_TD, n=n):
      """The three FFTs, and a sum that keeps the kernel's alive."""
      kernel_FD = jnp.fft.rfft(h_TD, n, axis=0)
      spectrum_BFD = jnp.fft.rfft(x_BLD, n, axis=1)
      # Of the kernel only one number a channel is used: no product of the whole spectra.
      y_BLD = jnp.fft.irfft(spectrum_BFD, n, axis=1)[:, : x_BLD.shape[1]]
      return y_BLD + jnp.sum(jnp.real(kernel_FD) + jnp.imag(kernel_FD), 0)[None, None]

    for what, derive in PASSES:
      timed = {
        'needed': timing.program(derive(needed), x_BLD, h_TD),
        'ours': timing.program(derive(causal_conv), x_BLD, h_TD),
      }
      took = timing.interleaved(timed, settings.repeats, settings.seconds)
      yield {
        'shape': str(shape),
        'pass': what,
        'three FFTs, ms': 1e3 * took['needed'],
        'ours, ms': 1e3 * took['ours'],
        'ours / FFTs': took.ratio('ours', 'needed'),
        'aim': '1.3' if what == 'forward' else None,
        'ours, peak MiB': timed['ours'].peak / 2**20,
      }


def crossover(
  settings: Settings,
  *,
  points: Sequence[int] = (16, 32, 64, 128, 256, 512, 1024, 2048),
  numbers: int = 2**20,
) -> Iterator[Row | str]:
  """DCT by FFT and by matrix

  Along the last axis of a float32 array of 2^20 numbers; bfloat16 is computed in float32 too."""
  wins = None
  for n in points:
    x_RN = _normal(0, (max(1, numbers // n), n))
    timed = {
      f'{path} {what}': timing.program(derive(lambda x, path=path: dct(x, path=path)), x_RN)
      for path in ('fft', 'matrix')
      for what, derive in PASSES
    }
    took = timing.interleaved(timed, settings.repeats, settings.seconds / 4)
    row = {'points': n, 'rows': len(x_RN)}
    for what, _ in PASSES:
      row |= {
        f'FFT, ms, {what}': 1e3 * took[f'fft {what}'],
        f'matrix, ms, {what}': 1e3 * took[f'matrix {what}'],
        f'matrix / FFT, {what}': took.ratio(f'matrix {what}', f'fft {what}'),
      }
      if what != 'forward' and row[f'matrix / FFT, {what}'] < 1:
        wins = n
    yield row
  backend = jax.default_backend()
  said = f'the matrix wins up to {wins} points' if wins else 'the FFT wins at every length'
  yield f'With its gradient {said}; ops/dct.py takes it up to {MATRIX_UP_TO[backend]} on {backend}.'


def _normal(seed: int, shape: tuple[int, ...]) -> jax.Array:
  return jax.random.normal(jax.random.key(seed), shape, jnp.float32)


SECTIONS = {'dct': gated_dct, 'convolution': convolution, 'crossover': crossover}
