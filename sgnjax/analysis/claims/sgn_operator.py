"""The claims of SGN about its operator as a matrix, in float64."""

import jax
import jax.numpy as jnp
import numpy as np

from sgnjax.analysis.claims.claim import FAILS, HOLDS, Finding, Table
from sgnjax.analysis.claims.lab import Lab
from sgnjax.ops import streaming
from sgnjax.ops.dct import dct, idct
from sgnjax.ops.gates import spectral_gate
from sgnjax.ops.kernels import causal_conv, one_sided_kernel

CHANNELS = 8


def theorem(lab: Lab) -> Finding:
  """The best gate of K coefficients for matrices of attention, by least squares, in float64."""
  n, kept = 64, (8, 16, 32, 64)
  rng = np.random.default_rng(0)
  scores, gate = rng.normal(size=(n, n)), rng.normal(size=n)
  with jax.enable_x64(True):
    c = np.asarray(dct(jnp.eye(n), 0))
  matrices = {
    'softmax of random scores': _rows(np.exp(scores)),
    'causal softmax of random scores': _rows(np.tril(np.exp(scores))),
    'the token before': np.eye(n, k=-1),
    'an operator of a gate': c.T @ (gate[:, None] * c),
  }
  left = {name: [nearest_gate(matrix, k) for k in kept] for name, matrix in matrices.items()}
  rows = tuple((name, *(f'{error:.3f}' for error in errors)) for name, errors in left.items())
  attend = [errors for name, errors in left.items() if name != 'an operator of a gate']
  worst = max(errors[-1] for errors in attend)
  first = attend[0]
  return Finding(
    HOLDS if worst < 1e-9 else FAILS,
    f'With all {n} coefficients the best gate leaves {first[-1]:.1%} of a softmax matrix (in norm) '
    f'and {worst:.1%} at worst, where the theorem says 0: operators of a gate are a Toeplitz part '
    f'and its reflection, n numbers for n x n. From K = {kept[0]} to {n} the bound falls to '
    f'1/{n // kept[0]} and the error to {first[-1] / first[0]:.3f} of itself; L sigma / K is not 0 '
    'at K = n either.',
    setting='matrices of 64 x 64; a control that a gate can make is left to rounding',
    tables=(
      Table(
        'What the best gate leaves, of the norm', ('matrix', *(f'K = {k}' for k in kept)), rows
      ),
    ),
  )


def _rows(weights: np.ndarray) -> np.ndarray:
  return weights / weights.sum(1, keepdims=True)


def nearest_gate(matrix: np.ndarray, kept: int) -> float:
  """What `C^T diag(G) C` with `kept` coefficients leaves of a matrix at least, of its norm.

  These operators are a linear space; the nearest one has the diagonal of `C A C^T` as its gate.
  """
  n = len(matrix)
  with jax.enable_x64(True):
    spectrum = dct(dct(jnp.asarray(matrix), 0), 1)
    gate = jnp.where(np.arange(n) < kept, jnp.diagonal(spectrum), 0)
    rest = matrix - idct(gate[:, None] * dct(jnp.eye(n), 0), 0)
    return float(jnp.linalg.norm(rest) / np.linalg.norm(matrix))


def edges(lab: Lab) -> Finding:
  """The layer on chunks, and behind padding, against the layer on the whole, in float64."""
  n, chunk, tokens = 128, 32, 96
  f_N = np.arange(n) / n
  gates = {
    'low pass, exp(-10 f)': np.exp(-10 * f_N),
    'band around f = 0.3': np.exp(-(((f_N - 0.3) / 0.1) ** 2) / 2),
    'random, as at the start': np.random.default_rng(1).normal(size=n),
  }
  rows, ratios = [], []
  with jax.enable_x64(True):
    x_BLD = jnp.asarray(np.random.default_rng(0).normal(size=(16, n, CHANNELS)))
    for name, gate_N in gates.items():
      gate_ND = jnp.repeat(jnp.asarray(gate_N)[:, None], CHANNELS, 1)
      whole = spectral_gate(x_BLD, gate_ND)
      parts = [spectral_gate(x_BLD[:, s : s + chunk], gate_ND) for s in range(0, n, chunk)]
      off_C = _off(jnp.concatenate(parts, 1), whole).reshape(-1, chunk).mean(0)
      short = spectral_gate(x_BLD[:, :tokens], gate_ND)
      padded = spectral_gate(x_BLD.at[:, tokens:].set(0), gate_ND)[:, :tokens]
      off_T = _off(padded, short)
      for what, edge, middle in (
        (f'chunks of {chunk}', (off_C[0] + off_C[-1]) / 2, off_C[chunk // 2]),
        (f'{n - tokens} of padding', off_T[-1], off_T[tokens // 2]),
      ):
        rows.append((name, what, f'{edge:.3f}', f'{middle:.3f}', f'{_exactly(x_BLD, gate_ND):.0e}'))
        ratios.append((name, edge, edge / max(middle, 1e-12)))
  shaped = [(edge, ratio) for name, edge, ratio in ratios if not name.startswith('random')]
  holds = all(edge > 0.01 and ratio > 2 for edge, ratio in shaped)
  least = min(ratio for _, ratio in shaped)
  return Finding(
    HOLDS if holds else FAILS,
    f'Published: at the edge of a chunk, and beside padding, {min(e for e, _ in shaped):.0%} to '
    f"{max(e for e, _ in shaped):.0%} of the output's size is wrong under a shaped gate, at least "
    f'{least:.1f} times as much as in the middle. Under a random gate all of it is. The causal '
    'kernel has neither: a cache carries what was before, and what is behind has no weight.',
    setting='random inputs, 128 tokens, no trained gate',
    tables=(
      Table(
        "Difference from the whole, of the output's size",
        ('gate', 'cut', 'at the edge', 'in the middle', 'causal kernel, largest'),
        tuple(rows),
      ),
    ),
  )


def _off(one_BLD, other_BLD) -> np.ndarray:
  """Root mean square of a difference at each position, over that of the second."""
  square_L = jnp.mean((one_BLD - other_BLD) ** 2, (0, 2))
  return np.asarray(jnp.sqrt(square_L / jnp.mean(other_BLD**2)))


def _exactly(x_BLD, gate_ND) -> float:
  """Largest difference of the causal kernel in chunks with a cache, and before padding."""
  h_TD = one_sided_kernel(jnp.concatenate([gate_ND, gate_ND[-1:]]))
  whole = causal_conv(x_BLD, h_TD)
  batch, n, width = x_BLD.shape
  state = streaming.begin('ring', batch, n, 1, (width,), x_BLD.dtype)
  parts = []
  for start in range(0, n, 32):
    y_BL1D, state = streaming.stream(state, x_BLD[:, start : start + 32], lambda: h_TD[:, None])
    parts.append(y_BL1D[:, :, 0])
  padded = causal_conv(x_BLD.at[:, 96:].set(0), h_TD)[:, :96]
  chunks = jnp.max(jnp.abs(jnp.concatenate(parts, 1) - whole))
  return float(jnp.maximum(chunks, jnp.max(jnp.abs(padded - whole[:, :96]))) / jnp.std(whole))
