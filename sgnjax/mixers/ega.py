"""EGA: a sigmoid gate on the keys of softmax attention, driven by an energy of each token."""

from typing import ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from sgnjax.errors import UserError, check_choice
from sgnjax.mixers.base import blank
from sgnjax.mixers.softmax import Attention, Gate
from sgnjax.ops import energy, wavelets
from sgnjax.ops.attention import attention_weights, visible
from sgnjax.ops.biases import Bias, of_keys, whole_bias
from sgnjax.ops.chunks import History, behind, carried, whole
from sgnjax.ops.dtypes import wide
from sgnjax.ops.energy import GateState
from sgnjax.ops.statistics import Moments, prefix_moments, sequence_znorm, znorm
from sgnjax.parallel.sequence import HEAD_KEYS, QUERIES, WHOLE_ROWS, constrain

WAVELETS = ('daubechies', 'learned_wavelet', 'packet')
CHOICES = {
  'energy': ('linear', 'conv', 'morlet', *WAVELETS),
  'input': ('projection', 'mean'),
  'pad': ('zero', 'reflect'),
}
ZNORMS = ('query', 'prefix', 'none', 'sequence')


class EGA(Attention):
  """Softmax attention with an energy gate per head and key: `softmax(S + log g)`.

  `g = sum_s softmax(scale)_s sigmoid(alpha_s (z_s - tau_s))`, z the energies, z-normed over: the
  keys a query sees (`query`), the prefix of the key (`prefix`), nothing (`none`), or the whole
  sequence (`sequence`, published, leaks). Energies of the mixer's own input x, and parameters of
  all H heads and S scales beside those of attention:

  linear: `w.x + b`; H S (D + 4).
  conv: causal convolutions of x to 2 outputs, squared and added; H (2 D sum(lengths) + 5 S).
  morlet: `|psi_s * u|^2`, omega and sigma learned, u the channels' mean, 5 H S, or x along a
    learned direction, H D more.
  daubechies: squared details of the undecimated causal transform of u; S levels, 3 H S, and that
    H D.
  learned_wavelet: the same with filters of T taps that train, a pair for each head: T/2 - 1 angles
    more a head where they stay orthonormal, else 2 T.
  packet: octaves of the best basis of u's wavelet packets, chosen by entropy at each position from
    what came before it (whole row with `sequence`); S = levels + 1, 3 H S, and that H D.

  A LayerNorm with equal gains has mean 0, so with input `mean` a model starts without gates.
  pad: zeros before the start, or (published) mirrored samples, which sees the future. released: the
  paper's code, with a floor of 1e-8 under each row's sum, where rows need not sum to one, and with
  Morlet envelopes that peak on the oldest tap. Cache: beside keys and values, S numbers (query) or
  one of each key and head, and the samples that filters look back at.
  """

  group: ClassVar[str] = 'ega'

  energy: str = 'linear'
  znorm: str | None = None
  scales: int = 1
  lengths: tuple[int, ...] = (3, 7, 15, 31)
  wavelet: str = 'db4'
  levels: int = 3
  input: str = 'projection'
  orthonormal: bool = True
  pad: str = 'zero'
  alpha: tuple[float, ...] = (2.0,)
  tau: tuple[float, ...] = (0.0,)
  released: bool = False

  @property
  def statistic(self) -> str:
    """The z-norm in force: as set, or what the form asks for."""
    return self.znorm or ('query' if self.form == 'causal' else 'sequence')

  @property
  def bands(self) -> int:
    """Energies of each head, S."""
    if self.energy in ('conv', 'morlet'):
      return len(self.lengths)
    return {'linear': self.scales, 'packet': self.levels + 1}.get(self.energy, self.levels)

  @property
  def signals(self) -> int:
    """Signals that are filtered: one where all heads share the channels' mean."""
    shared = self.input == 'mean' and self.energy not in ('linear', 'conv')
    return 1 if shared else self.heads

  @property
  def reach(self) -> int:
    """Positions that an energy looks back."""
    if self.energy in ('conv', 'morlet'):
      return max(self.lengths) - 1
    return wavelets.reach(len(wavelets.filters(self.wavelet)[0]), self.levels)

  def check(self) -> None:
    super().check()
    for key, choices in CHOICES.items():
      check_choice(f'model.ega.{key}', getattr(self, key), choices)
    check_choice('model.ega.znorm', self.statistic, ZNORMS)
    if self.scales < 1:
      raise UserError(f'model.ega.scales={self.scales}: expected at least 1')
    if not self.lengths or not all(type(n) is int and n > 0 for n in self.lengths):
      raise UserError(f'model.ega.lengths={self.lengths}: expected numbers of taps, above 0')
    if self.energy in WAVELETS:
      self.check_wavelet()
    for key in ('alpha', 'tau'):
      if len(getattr(self, key)) not in (1, self.bands):
        raise UserError(
          f'model.ega.{key}={getattr(self, key)}: expected one number, or one for each of the '
          f'{self.bands} scales'
        )
    if self.pad == 'reflect' and (self.form != 'published' or self.energy == 'linear'):
      raise UserError(
        "model.ega.pad='reflect' sees the future and needs taps: it fits model.form='published' "
        f"and no linear energy, but they are '{self.form}' and '{self.energy}'"
      )
    if self.form == 'causal' and self.statistic == 'sequence':
      raise UserError(
        "model.ega.znorm='sequence' sees the future, but model.form is 'causal'; "
        "set model.form='published' or znorm 'query', 'prefix' or 'none'"
      )
    if self.form != 'causal' and self.statistic != 'sequence':
      raise UserError(
        f"model.ega.znorm='{self.znorm}' belongs to form 'causal', but model.form is '{self.form}'"
      )

  def check_wavelet(self) -> None:
    if not 1 <= self.levels <= max(1, self.context.bit_length() - 1):
      raise UserError(
        f'model.ega.levels={self.levels}: expected 1 or more, and 2^levels within the context of '
        f'{self.context}'
      )
    low, _ = wavelets.filters(self.wavelet)
    if self.energy != 'learned_wavelet' or not self.orthonormal:
      return
    if len(low) == 2:
      raise UserError(
        f"model.ega.wavelet='{self.wavelet}': no other orthonormal pair has 2 taps, so nothing is "
        "learned; take 'db2' or a longer one, or model.ega.orthonormal=False"
      )
    wavelets.lattice_angles(low)

  @property
  def gate_width(self) -> int:
    return self.bands if self.statistic == 'query' else 1

  def init_gate(self, batch: int, dtype) -> GateState:
    def moments(*axes):
      return Moments(*(jnp.zeros((batch, *axes), dtype) for _ in range(3)))

    history = basis = None
    if self.energy != 'linear':
      axes = (sum(self.lengths), 2) if self.energy == 'conv' else ()
      history = History.empty((batch, self.signals, *axes, self.reach), dtype)
    if self.energy == 'packet':
      basis = moments(2, self.signals, 2 ** (self.levels + 1) - 1)
    of_energies = None
    if self.statistic in ('query', 'prefix'):
      heads = self.signals if self.energy in ('daubechies', 'packet') else self.heads
      of_energies = moments(heads, self.bands)
    return GateState(of_energies, jnp.zeros((batch,), jnp.int32), history, basis)

  def honours(self, mask_BL, segments_BL) -> None:
    super().honours(mask_BL, segments_BL)
    if self.statistic == 'sequence':
      self.refuse(
        segments_BL=segments_BL,
        why="its statistics run over the whole row; use znorm 'query' or 'prefix'",
      )

  def start(self, name: str, values_X) -> jax.Array:
    """A parameter of each head that starts at given numbers: (H, *X)."""
    start_HX = np.broadcast_to(np.asarray(values_X), (self.heads, *np.shape(values_X)))
    return self.param(name, lambda _: jnp.asarray(start_HX, self.param_dtype))

  def constant(self, name: str, values: tuple[float, ...]) -> jax.Array:
    """A parameter of each head and scale, from one value for all scales or one each."""
    return self.start(name, np.broadcast_to(np.asarray(values), (self.bands,)))

  def normal(self, name: str, *shape: int) -> jax.Array:
    """A parameter N(0, init_std)."""
    return self.param(name, nn.initializers.normal(self.init_std), shape, self.param_dtype)

  def uniform(self, name: str, bound_X, *shape: int) -> jax.Array:
    """A parameter (H, X, *shape), uniform within +- its bound."""
    shape = (self.heads, len(bound_X), *shape)
    return self.param(name, energy.uniform, np.asarray(bound_X), shape, self.param_dtype)

  def signal(self, x_BLD: jax.Array, bound_S) -> jax.Array:
    """What taps filter: (B, 1 or H, L); for conv, what each tap makes of x: (B, H, T, 2, L)."""
    if self.energy == 'conv':
      taps_HTDO = self.uniform('conv_taps', np.repeat(bound_S, self.lengths), self.width, 2)
      return jnp.einsum('bld,htdo->bhtol', x_BLD, taps_HTDO.astype(x_BLD.dtype))
    if self.input == 'mean':
      return jnp.mean(x_BLD, axis=-1)[:, None]
    w_HD = self.normal('w_input', self.heads, self.width)
    return jnp.einsum('bld,hd->bhl', x_BLD, w_HD.astype(x_BLD.dtype))

  def pair(self, dtype) -> tuple[jax.Array, jax.Array]:
    """Low and high filter, (1 or H, T) each."""
    low, high = wavelets.filters(self.wavelet)
    if self.energy != 'learned_wavelet':
      return jnp.asarray(low, dtype)[None], jnp.asarray(high, dtype)[None]
    if self.orthonormal:
      low_HT = wavelets.lattice(self.start('angles', wavelets.lattice_angles(low)).astype(dtype))
      return low_HT, wavelets.conjugate(low_HT)
    filters_H2T = self.start('filters', np.stack([low, high])).astype(dtype)
    return filters_H2T[:, 0], filters_H2T[:, 1]

  def energies(self, x_BLD, mask_BL, segments_BL, state):
    """Energies of each token (B, H or 1, S, L); history and moments of the basis after them."""
    # They stay in float32 or wider: a bfloat16 mean loses the small gates.
    dtype, length = wide(self.dtype), x_BLD.shape[1]
    x_BLD = blank(x_BLD, mask_BL).astype(dtype)
    if self.energy == 'linear':
      w_HSD = self.normal('w_gate', self.heads, self.bands, self.width)
      b_HS = self.constant('b_gate', (0.0,))
      return energy.linear(x_BLD, w_HSD.astype(dtype), b_HS.astype(dtype)), None, None
    bound_S = [(n * self.width) ** -0.5 for n in self.lengths]
    u_BXL, segments_BX, history, basis = self.signal(x_BLD, bound_S), segments_BL, None, None
    if self.energy != 'conv':
      u_BXL = constrain(u_BXL, of_rows(u_BXL))
    if self.pad == 'reflect':
      u_BXL = wavelets.mirrored(u_BXL, self.reach, mask_BL)
    elif state is not None:
      u_BXL, segments_BX, history = behind(state.history, u_BXL, segments_BL, mask_BL)
    if self.energy == 'conv':
      bias_HSO = self.uniform('conv_bias', bound_S, 2).astype(dtype)
      energy_BHSL = energy.conv(u_BXL, bias_HSO, self.lengths, segments_BX)
    elif self.energy == 'morlet':
      omega_S = np.pi / np.asarray(self.lengths)
      logs = (
        self.start(f'log_{name}', np.log(values)).astype(dtype)
        for name, values in (('omega0', omega_S), ('sigma', 5 / omega_S))
      )
      taps = energy.morlet_taps(*energy.admissible(*logs), self.lengths, released=self.released)
      energy_BHSL = energy.morlet(u_BXL, taps, segments_BX)
    elif self.energy == 'packet':
      nodes = wavelets.packets(u_BXL, *self.pair(dtype), self.levels, segments_BX)
      nodes = [node_BHNL[..., -length:] for node_BHNL in nodes]
      chosen, basis = wavelets.packet_basis(
        nodes,
        whole=self.statistic == 'sequence',
        segments_BL=segments_BL,
        mask_BL=mask_BL,
        before=state and (state.basis, state.segment_B),
      )
      energy_BHSL = wavelets.packet_energies(nodes, chosen)
    else:
      detail_BHSL, _ = wavelets.atrous(u_BXL, *self.pair(dtype), self.levels, segments_BX)
      energy_BHSL = detail_BHSL**2
    return energy_BHSL[..., -length:], history, basis

  def gate(self, x_BLD, *, mask_BL, segments_BL, state):
    if state is not None:
      _, segments_BL = whole(*x_BLD.shape[:2], mask_BL, segments_BL)
    energy_BHSL, history, basis = self.energies(x_BLD, mask_BL, segments_BL, state)
    # What statistics run over is whole on each device: S numbers a token and head.
    energy_BHSL = constrain(energy_BHSL, of_rows(energy_BHSL))
    moments = None
    if self.statistic in ('query', 'prefix'):
      before = state and (state.moments, state.segment_B)
      moments = prefix_moments(energy_BHSL, segments=segments_BL, mask=mask_BL, before=before)
    moments = moments and Moments(*(constrain(m, of_rows(m)) for m in moments))
    if state is not None:
      old = (state.moments, state.segment_B, state.basis)
      moved = carried(old, (moments, segments_BL, basis), mask_BL)
      state = GateState(*moved[:2], history, moved[2])
    if self.statistic == 'query':
      return Gate(energy_BHSL.swapaxes(2, 3), moments), state
    if self.statistic == 'prefix':
      return self.of_keys(znorm(energy_BHSL, moments)), state
    if self.statistic == 'sequence':
      energy_BHSL = sequence_znorm(energy_BHSL, mask=mask_BL)
    return self.of_keys(energy_BHSL), state

  def of_keys(self, z_BHSL: jax.Array) -> Gate:
    """The gate where it depends on the key alone: its logarithm is what a cache keeps."""
    return Gate(energy.log_gate(z_BHSL, *self.thresholds())[..., None], None)

  def thresholds(self) -> tuple[jax.Array, jax.Array, jax.Array]:
    """tau, alpha and the logits of the scales' shares: (H, S) each."""
    tau_HS, alpha_HS = self.constant('tau', self.tau), self.constant('alpha', self.alpha)
    return tau_HS, alpha_HS, self.constant('scale_logits', (1.0 / self.bands,))

  def log_gate(self, gate: Gate) -> Bias:
    if gate.query is None:
      return of_keys(gate.key_BHSX[..., 0])
    queries, of_heads = energy.by_queries(gate.query, *self.thresholds())
    queries = queries._replace(slope=constrain(queries.slope, QUERIES))
    return Bias(energy.tile_log_gate, queries, gate.key_BHSX, of_heads)

  def attend(self, q_BLHF, k_BHSF, v_BHSE, gate, biases, **how):
    if not self.released:
      return super().attend(q_BLHF, k_BHSF, v_BHSE, gate, biases, **how)
    if 'visible_BLS' not in how:
      seen = {key: how.pop(key) for key in ('causal', 'mask_BL', 'segments_BL')}
      how['visible_BLS'] = visible(q_BLHF.shape[1], **seen)
    gate_BHXS = jnp.exp(whole_bias((gate,)))
    weights_BHLS = attention_weights(q_BLHF, k_BHSF, bias_BHLS=whole_bias(biases), **how)
    weights_BHLS = energy.floored_weights(weights_BHLS.astype(gate_BHXS.dtype), gate_BHXS)
    return jnp.einsum('bhls,bhse->blhe', weights_BHLS.astype(v_BHSE.dtype), v_BHSE)


def of_rows(a_BHL: jax.Array):
  """Where signals of whole rows lie: each head's where the head is, one of all heads everywhere."""
  return HEAD_KEYS if a_BHL.shape[1] > 1 else WHOLE_ROWS
