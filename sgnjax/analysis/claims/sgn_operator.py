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
# Of what is cut: into chunks, and into tokens before padding.
LENGTH, CHUNK, TOKENS = 128, 32, 96
RANDOM = 'random, as at the start'


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
  f_N = np.arange(LENGTH) / LENGTH
  gates = {
    'low pass, exp(-10 f)': np.exp(-10 * f_N),
    'band around f = 0.3': np.exp(-(((f_N - 0.3) / 0.1) ** 2) / 2),
    RANDOM: np.random.default_rng(1).normal(size=LENGTH),
  }
  rows, shaped, random = [], [], []
  cuts = jax.jit(lambda x_BLD, gate_ND: (*_published(x_BLD, gate_ND), _causal(x_BLD, gate_ND)))
  with jax.enable_x64(True):
    x_BLD = jnp.asarray(np.random.default_rng(0).normal(size=(16, LENGTH, CHANNELS)))
    for name, gate_N in gates.items():
      gate_ND = jnp.repeat(jnp.asarray(gate_N)[:, None], CHANNELS, 1)
      off_C, off_T, exact = jax.device_get(cuts(x_BLD, gate_ND))
      for what, edge, middle in (
        (f'chunks of {CHUNK}', (off_C[0] + off_C[-1]) / 2, off_C[CHUNK // 2]),
        (f'{LENGTH - TOKENS} of padding', off_T[-1], off_T[TOKENS // 2]),
      ):
        rows.append((name, what, f'{edge:.3f}', f'{middle:.3f}', f'{exact:.0e}'))
        if name == RANDOM:
          random.append(middle)
        else:
          shaped.append((edge, edge / max(middle, 1e-12)))
  least, most = min(edge for edge, _ in shaped), max(edge for edge, _ in shaped)
  ratio = min(ratio for _, ratio in shaped)
  return Finding(
    HOLDS if least > 0.01 and ratio > 2 else FAILS,
    f'Published: at the edge of a chunk and beside padding an output is off by {least:.0%} to '
    f"{most:.0%} of the outputs' size under a shaped gate, {ratio:.1f} times as much as in the "
    f'middle or more; under a random gate by {min(random):.0%} or more in the middle too. The '
    'causal kernel has neither: a cache carries what was before, and what is behind has no weight.',
    setting=f'random inputs, {LENGTH} tokens, no trained gate',
    tables=(
      Table(
        "Difference from the whole, of the outputs' size",
        ('gate', 'cut', 'at the edge', 'in the middle', 'causal kernel, largest'),
        tuple(rows),
      ),
    ),
  )


def _published(x_BLD, gate_ND) -> tuple[jax.Array, jax.Array]:
  """How far chunks, and what stands before padding, are from the whole, at each position."""
  whole = spectral_gate(x_BLD, gate_ND)
  x_XCD = x_BLD.reshape(-1, CHUNK, CHANNELS)
  off_L = _off(spectral_gate(x_XCD, gate_ND).reshape(x_BLD.shape), whole)
  short = spectral_gate(x_BLD[:, :TOKENS], gate_ND)
  padded = spectral_gate(x_BLD.at[:, TOKENS:].set(0), gate_ND)[:, :TOKENS]
  return off_L.reshape(-1, CHUNK).mean(0), _off(padded, short)


def _off(one_BLD, other_BLD) -> jax.Array:
  """Root mean square of a difference at each position, over that of the second."""
  return jnp.sqrt(jnp.mean((one_BLD - other_BLD) ** 2, (0, 2)) / jnp.mean(other_BLD**2))


def _causal(x_BLD, gate_ND) -> jax.Array:
  """Largest difference of the causal kernel in chunks with a cache, and before padding."""
  h_TD = one_sided_kernel(jnp.concatenate([gate_ND, gate_ND[-1:]]))
  whole = causal_conv(x_BLD, h_TD)
  state = streaming.begin('ring', len(x_BLD), LENGTH, 1, (CHANNELS,), x_BLD.dtype)
  parts = []
  for start in range(0, LENGTH, CHUNK):
    chunk_BLD = x_BLD[:, start : start + CHUNK]
    y_BL1D, state = streaming.stream(state, chunk_BLD, lambda: h_TD[:, None])
    parts.append(y_BL1D[:, :, 0])
  padded = causal_conv(x_BLD.at[:, TOKENS:].set(0), h_TD)[:, :TOKENS]
  chunks = jnp.max(jnp.abs(jnp.concatenate(parts, 1) - whole))
  return jnp.maximum(chunks, jnp.max(jnp.abs(padded - whole[:, :TOKENS]))) / jnp.std(whole)
