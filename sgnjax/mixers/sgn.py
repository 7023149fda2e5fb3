"""SGN, spectral gated networks: a gate on the spectrum of the sequence, and its causal forms."""

import functools
from typing import ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from sgnjax.errors import UserError, check_choice
from sgnjax.mixers.base import Aux, Mixed, Mixer, blank
from sgnjax.ops import streaming
from sgnjax.ops.gates import (
  MIXTURE,
  Tree,
  causal_kernel,
  even_grid_gate,
  gate_points,
  grid_gate,
  longer_sum,
  lowpass,
  masked_gate,
  masked_operator,
  published_mix,
  real_response,
  two_sided_kernel,
)
from sgnjax.ops.kernels import causal_conv, even_conv, two_sided_conv
from sgnjax.parallel.sequence import (
  CHANNEL_WEIGHTS,
  CHANNELS,
  PARTS,
  TOKEN_WEIGHTS,
  TOKENS,
  constrain,
  over_length,
)

BASES = ('dct', 'fft', 'adaptive')
GATES = ('learned', 'random', 'lowpass')


class SGN(Mixer):
  """Spectral gated mixing over the length (SGN, section 3 and its ablation).

  operator, of the causal form: kernel (O(L log L)) or masked (dense reference, O(L^2)).
  basis: dct; fft, with a complex gate; adaptive, a softmax mixture of DCT, FFT and Haar for each of
  `groups` groups of channels, every basis with its own gate.
  gate: learned; random, frozen at its start; lowpass, `exp(-f / cutoff)`, f from 0 to 1 (Nyquist).
  retained: coefficients kept in each basis, the lowest. resolutions: kernels of the contexts N,
  N/2, N/4, ... (rounded down) added. grid: (rows, columns) of image patches, N in all: 2-D DCT.

  Numbers of the gate, each times the width D, in the published and masked forms | kernel forms:
    dct       N | N + 1
    fft       2 (N//2 + 1) | 2 (N + 1): real and imaginary part
    adaptive  both of these, and Haar's N | J + 1 with J = floor(log2(N + 1)); and 3 groups in all
    grid      N | (rows + 1) (columns + 1)
  With `retained` C: C, in fft 2 C, in adaptive 4 C (Haar's kernel: in place of C, 1 + the number of
  levels l of 1..J with N <= C 2^(l - 1)). With several resolutions: the sum of each one's,
  where C is at most its points. A random gate has as many, which count and are never trained: no
  gradient, no weight decay (`frozen_gate`). A low-pass gate has none, but for the mixture.
  `gated` adds 3 D^2 + D: project to (u, z), filter u, multiply by silu(z), project.

  Another length: published gates are resampled on normalised frequency. Kernels, causal and
  bidirectional, have one response at every length: they truncate for shorter inputs, and beyond
  N + 1 tokens the filter's memory ends at lag N. masked takes N tokens at most, a grid exactly N.
  With a real gate R, the causal fft kernel is half the dct one, but for lags 0 and N, which agree:
  the causal dct kernel is the fft one of the complex gate `R + i Im rfft(h_R)`.

  Cache, of a causal form; T = min(N, max_len - 1) lags; numbers a layer, for B examples:
    ring     inputs (T + 1) B D, of `dtype`; kernel 2 (T + 1) D. O(T D) a token.
    blocked  (P + 1) B D, kernel at most (P + 1) D (from 8 D), its responses at most 4 P D +
             O(log P) D, P the power of two from T on; all float32 or wider. O(D log^2 T) a token
             on average.
    masked   inputs max_len B D and the operator max_len^2 D, of `dtype`. O(max_len D) a token.
  streaming: ring, blocked or the quicker one (auto). Kernels are there after the first chunk only.
  """

  group: ClassVar[str] = 'sgn'
  attends: ClassVar[bool] = False

  operator: str = 'kernel'
  basis: str = 'dct'
  gate: str = 'learned'
  gated: bool = True
  gate_std: float = 0.02
  cutoff: float = 0.25
  retained: int | None = None
  resolutions: int = 1
  groups: int = 4
  grid: tuple[int, int] | None = None
  streaming: str = 'auto'

  @property
  def masked(self) -> bool:
    return self.form == 'causal' and self.operator == 'masked'

  @property
  def whole(self) -> bool:
    """Whether gates belong to transforms of N points, and not to kernels."""
    return self.form == 'published' or self.masked

  @property
  def uses_fft(self) -> bool:
    return not self.masked

  @property
  def contexts(self) -> list[int]:
    """The context of each resolution."""
    return [self.context >> i for i in range(self.resolutions)]

  def check(self) -> None:
    check_choice('model.sgn.operator', self.operator, ('kernel', 'masked'))
    check_choice('model.sgn.basis', self.basis, BASES)
    check_choice('model.sgn.gate', self.gate, GATES)
    check_choice('model.sgn.streaming', self.streaming, streaming.FORMS)
    if self.operator == 'masked' and self.form != 'causal':
      raise UserError(
        f"model.sgn.operator='masked' belongs to form 'causal', but model.form is '{self.form}'"
      )
    if self.gate_std < 0 or (self.gate == 'random' and self.gate_std == 0):
      raise UserError(f'model.sgn.gate_std={self.gate_std}: expected more than 0')
    if not self.cutoff > 0:
      raise UserError(f'model.sgn.cutoff={self.cutoff}: expected more than 0')
    if self.basis == 'adaptive' and (self.groups < 1 or self.width % self.groups):
      raise UserError(
        f'model.sgn.groups={self.groups} does not divide model.width={self.width} into groups'
      )
    if not 1 <= self.resolutions <= self.context.bit_length():
      raise UserError(
        f'model.sgn.resolutions={self.resolutions}: expected 1 to {self.context.bit_length()}, '
        f'the halvings of model.context={self.context}'
      )
    if self.resolutions > 1 and self.whole:
      raise UserError(
        f'model.sgn.resolutions={self.resolutions} adds kernels, which the published operator has '
        "not; use model.form='causal' with operator 'kernel', or 'bidirectional'"
      )
    if self.grid is not None:
      self._check_grid()
    most = self.context // 2 + 1 if self.whole and self.basis != 'dct' else self.context
    if self.retained is not None and not 1 <= self.retained <= most:
      raise UserError(
        f'model.sgn.retained={self.retained}: expected 1 to {most}, the coefficients of basis '
        f"'{self.basis}' at model.context={self.context}"
      )

  def _check_grid(self) -> None:
    grid = self.grid
    if len(grid) != 2 or min(grid) < 1 or grid[0] * grid[1] != self.context:
      raise UserError(
        f'model.sgn.grid={grid}: expected (rows, columns) with rows * columns = '
        f'model.context={self.context}'
      )
    for key, given, fits in (
      ('model.form', self.form, ('published', 'bidirectional')),
      ('model.sgn.basis', self.basis, ('dct',)),
      ('model.sgn.resolutions', self.resolutions, (1,)),
    ):
      if given not in fits:
        raise UserError(
          f'model.sgn.grid={grid} does not go with {key}={given!r}; it takes '
          f'{" or ".join(map(repr, fits))}'
        )

  def _points(self, n: int) -> Tree:
    return gate_points(self.basis, n, published=self.whole, retained=self.retained, grid=self.grid)

  def _gates(self) -> tuple[list[Tree], dict[str, jax.Array]]:
    """Of each context the gates at the points that are kept; and what to show."""
    spec = self._points(self.context)
    several = self.resolutions > 1
    if several:
      spec = {f'context_{n}': self._points(n) for n in self.contexts}

    def draw(key):
      leaves, tree = jax.tree.flatten(spec)
      keys = [key] if len(leaves) == 1 else jax.random.split(key, len(leaves))
      normal = nn.initializers.normal(self.gate_std)
      pairs = zip(keys, leaves, strict=True)
      return tree.unflatten(
        [normal(k, (len(p.kept_C), self.width), self.param_dtype) for k, p in pairs]
      )

    if self.gate == 'learned':
      kept = self.param('gate', draw)
    elif self.gate == 'random':
      kept = jax.lax.stop_gradient(self.param('frozen_gate', draw))
    else:
      kept = lowpass(spec, self.cutoff, self.width, self.param_dtype)
    gates = [kept[f'context_{n}'] for n in self.contexts] if several else [kept]
    if self.basis != 'adaptive':
      return gates, {}
    logits_GK = self.param(
      'mixture', nn.initializers.zeros, (self.groups, len(MIXTURE)), self.param_dtype
    )
    mixture_GK = jax.nn.softmax(logits_GK, axis=-1)
    share_KD = jnp.repeat(mixture_GK, self.width // self.groups, axis=0).T
    shares = {b: share_KD[k][None] for k, b in enumerate(MIXTURE)}

    # An operator is linear in its gate: the gates are mixed, and one convolution serves all.
    def mixed(gate):
      return {b: jax.tree.map(lambda g_CD, b=b: g_CD * shares[b], gate[b]) for b in MIXTURE}

    return [mixed(gate) for gate in gates], {'mixture': mixture_GK}

  def _expanded(self, gates: list[Tree]) -> list[Tree]:
    """The gates at all their points: zero where not kept."""

    def expand(p, value_CD):
      if len(p.kept_C) == len(p.frequency_P):
        return value_CD
      gate_PD = jnp.zeros((len(p.frequency_P), value_CD.shape[1]), value_CD.dtype)
      return gate_PD.at[p.kept_C].set(value_CD)

    pairs = zip(self.contexts, gates, strict=True)
    return [jax.tree.map(expand, self._points(n), gate) for n, gate in pairs]

  def _kernels(self, gates: list[Tree]) -> jax.Array | tuple[jax.Array, jax.Array]:
    """Lags 0..N, resolutions added; bidirectional: over the past, and over the future."""
    make = causal_kernel if self.form == 'causal' else two_sided_kernel
    kernels = [make(self.basis, g, n) for g, n in zip(gates, self.contexts, strict=True)]
    return functools.reduce(lambda a, b: jax.tree.map(longer_sum, a, b), kernels)

  def _mix(self, x_BLD: jax.Array, gates: list[Tree]) -> jax.Array:
    gates = self._expanded(gates)
    if self.grid is not None:
      mix = grid_gate if self.form == 'published' else even_grid_gate
      return mix(x_BLD, gates[0], self.grid)
    if self.form == 'published':
      return published_mix(x_BLD, self.basis, gates[0], self.context)
    if self.masked:
      return masked_gate(x_BLD, self.basis, gates[0], self.context)
    if self.form == 'causal':
      return causal_conv(x_BLD, self._kernels(gates))
    past_TD, future_TD = self._kernels(gates)
    if self.basis == 'dct':
      return even_conv(x_BLD, past_TD)
    return two_sided_conv(x_BLD, past_TD, future_TD)

  def empty_cache(self, batch: int, max_len: int, dtype):
    if not self.masked:
      lags = min(self.context, max_len - 1)
      return streaming.begin(self.streaming, batch, lags, 1, (self.width,), dtype)
    self._check_length(max_len)
    return streaming.rows(batch, max_len, self.width, dtype)

  def _stream(self, x_BLD: jax.Array, gates: list[Tree] | None, cache, mask_BL):
    gates = gates and self._expanded(gates)
    if self.masked:

      def operator():
        return masked_operator(self.basis, gates[0], self.context)

      return streaming.stream_rows(cache, x_BLD, operator, mask_BL)
    y_BL1D, cache = streaming.stream(cache, x_BLD, lambda: self._kernels(gates)[:, None], mask_BL)
    return y_BL1D[:, :, 0], cache

  def _check_length(self, length: int) -> None:
    if self.masked and length > self.context:
      raise UserError(
        f"mixer 'sgn' with operator 'masked' has {self.context} positions and was given "
        f"{length}; operator 'kernel' takes any length"
      )

  def _shown(self, gates: list[Tree]) -> jax.Array:
    """One real gate for pictures: of a kernel form the real part of its response.

    `one_sided_kernel` or `even_kernel` of it is the kernel, or its even part. Published, the gate;
    of a complex one the modulus, of a mixture the DCT's.
    """
    if self.whole or self.grid is not None:
      gate = gates[0]['dct'] if self.basis == 'adaptive' else gates[0]
      return jnp.hypot(gate['real'], gate['imag']) if self.basis == 'fft' else gate
    if self.basis == 'dct' and self.resolutions == 1:
      return gates[0]
    return real_response(self._kernels(gates))

  @nn.compact
  def __call__(
    self, x_BLD, *, positions_BL=None, mask_BL=None, segments_BL=None, cache=None, train=False
  ) -> Mixed:
    published = self.form == 'published'
    self.refuse(
      cache=None if self.causal else cache,
      mask_BL=mask_BL if published else None,
      segments_BL=segments_BL,
      why="use form 'causal' or 'bidirectional' for padding, one document a row, or attention",
    )
    length = x_BLD.shape[1]
    self._check_length(length)
    # Parameters do not depend on the length, so they may be made from any.
    fits = self.grid is None or length == self.context
    if not fits and not self.is_initializing():
      raise UserError(
        f"mixer 'sgn' with model.sgn.grid={self.grid} needs {self.context} patches and was given "
        f'{length}: a length does not tell the shape of another image'
      )
    gates, shown = None, {}
    if cache is None or streaming.fresh(cache) or self.capture:
      gates, shown = self._gates()
    u_BLD = x_BLD
    if self.gated:
      uz_BL2D = constrain(self.dense((2, self.width), 'in', False)(x_BLD), PARTS)
      u_BLD, z_BLD = uz_BL2D[:, :, 0], uz_BL2D[:, :, 1]
    if cache is not None:
      y_BLD, cache = self._stream(blank(u_BLD, mask_BL), gates, cache, mask_BL)
    else:
      y_BLD = u_BLD
      if fits:
        specs = (CHANNELS, CHANNEL_WEIGHTS) if self.gated else (TOKENS, TOKEN_WEIGHTS)
        y_BLD = over_length(self._mix, blank(u_BLD, mask_BL), gates, specs=specs)
    if self.gated:
      y_BLD = self.dense(self.width, 'out', self.out_bias)(y_BLD * nn.silu(z_BLD))
    y_BLD = nn.Dropout(self.dropout)(y_BLD, deterministic=not train)
    debug = {'gate': self._shown(self._expanded(gates)), **shown} if self.capture else {}
    return Mixed(blank(y_BLD, mask_BL), Aux({}, {}, debug), cache)
