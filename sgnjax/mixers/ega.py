"""EGA: a sigmoid gate on the keys of softmax attention, driven by an energy of each token."""

from typing import ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from sgnjax.errors import UserError, check_choice
from sgnjax.mixers.base import Aux, Mixed
from sgnjax.mixers.softmax import Attention
from sgnjax.ops.attention import attention, attention_weights, visible
from sgnjax.ops.dtypes import wide
from sgnjax.ops.statistics import prefix_znorm, query_znorm, sequence_znorm

ZNORMS = ('query', 'prefix', 'none', 'sequence')


def log_gate(z_BHSX: jax.Array, tau_HS, alpha_HS, scale_logits_HS) -> jax.Array:
  """`log sum_s softmax(scale)_s sigmoid(alpha_s (z_s - tau_s))` over the scale axis 2 (EGA gate).

  z has any axes after (batch, head, scale); the result lacks the scale axis.
  """

  def spread(a_HS):
    return a_HS.reshape(1, *a_HS.shape, *(1,) * (z_BHSX.ndim - 3)).astype(z_BHSX.dtype)

  gate_BHSX = jax.nn.log_sigmoid(spread(alpha_HS) * (z_BHSX - spread(tau_HS)))
  share_BHSX = jax.nn.log_softmax(spread(scale_logits_HS), axis=2)
  return jax.nn.logsumexp(share_BHSX + gate_BHSX, axis=2)


def floored_weights(weights_BHLS: jax.Array, gate_BHXS: jax.Array) -> jax.Array:
  """Gated weights as the released code renormalises them: row sums floored at 1e-8."""
  gated_BHLS = weights_BHLS * gate_BHXS
  return gated_BHLS / jnp.maximum(jnp.sum(gated_BHLS, -1, keepdims=True), 1e-8)


class EGA(Attention):
  """Softmax attention with an energy gate per head and key: `softmax(S + log g)`.

  Energy `w.x + b` of the mixer's own input, z-normed over: the keys a query sees (`query`), the
  prefix of the key (`prefix`), nothing (`none`), or the whole sequence (`sequence`, published,
  leaks). heads x scales x (width + 4) parameters beside those of attention.
  released: the paper's code's floor of 1e-8 under each row's sum, where rows need not sum to one.
  """

  group: ClassVar[str] = 'ega'

  znorm: str | None = None
  scales: int = 1
  alpha: float = 2.0
  tau: float = 0.0
  released: bool = False

  @property
  def statistic(self) -> str:
    """The z-norm in force: as set, or what the form asks for."""
    return self.znorm or ('query' if self.form == 'causal' else 'sequence')

  def check(self) -> None:
    check_choice('model.ega.znorm', self.statistic, ZNORMS)
    if self.scales < 1:
      raise UserError(f'model.ega.scales={self.scales}: expected at least 1')
    if self.form == 'causal' and self.statistic == 'sequence':
      raise UserError(
        "model.ega.znorm='sequence' sees the future, but model.form is 'causal'; "
        "set model.form='published' or znorm 'query', 'prefix' or 'none'"
      )
    if self.form != 'causal' and self.statistic != 'sequence':
      raise UserError(
        f"model.ega.znorm='{self.znorm}' belongs to form 'causal', but model.form is '{self.form}'"
      )

  @nn.compact
  def __call__(
    self, x_BLD, *, positions_BL=None, mask_BL=None, segments_BL=None, cache=None, train=False
  ) -> Mixed:
    whole = self.statistic == 'sequence'
    self.refuse(
      cache=cache,
      segments_BL=segments_BL if whole else None,
      why="its statistics run over the whole row; use znorm 'query' or 'prefix'",
    )
    visible_BLS = visible(
      x_BLD.shape[1],
      causal=self.form != 'bidirectional',
      mask_BL=mask_BL,
      segments_BL=segments_BL,
    )
    log_gate_BHX = self.gate(x_BLD, mask_BL, segments_BL)
    q_BLHE, k_BLHE, v_BLHE = (self.split(x_BLD, name) for name in 'qkv')
    q_BLHE, k_BLHE = (self.rotate(a, positions_BL) for a in (q_BLHE, k_BLHE))
    common = {'scale': (self.width // self.heads) ** -0.5, 'visible_BLS': visible_BLS}
    per_query = log_gate_BHX.ndim == 4
    if self.released:
      gate_BHXS = jnp.exp(log_gate_BHX if per_query else log_gate_BHX[:, :, None, :])
      weights_BHLS = attention_weights(q_BLHE, k_BLHE, dropout=self.weight_dropout(train), **common)
      weights_BHLS = floored_weights(weights_BHLS.astype(gate_BHXS.dtype), gate_BHXS)
      y_BLHE = jnp.einsum('bhls,bshe->blhe', weights_BHLS.astype(v_BLHE.dtype), v_BLHE)
    else:
      if per_query:
        common['bias_BHLS'] = log_gate_BHX
      else:
        common['log_gate_BSH'] = log_gate_BHX.transpose(0, 2, 1)
      y_BLHE = attention(q_BLHE, k_BLHE, v_BLHE, dropout=self.weight_dropout(train), **common)
    debug = {}
    if self.capture:  # the gate of each key; with `query` statistics, as the last query sees it
      debug['gate'] = jnp.exp(log_gate_BHX[:, :, -1] if per_query else log_gate_BHX)
    return Mixed(self.join(y_BLHE, mask_BL, train), Aux({}, {}, debug), None)

  def gate(self, x_BLD, mask_BL, segments_BL):
    """log g: (B, H, keys), or (B, H, queries, keys) where the statistics depend on the query."""
    shape = (self.heads, self.scales)

    def constant(name, value):
      return self.param(name, nn.initializers.constant(value), shape, self.param_dtype)

    w_HSD = self.param(
      'w_gate', nn.initializers.normal(self.init_std), (*shape, self.width), self.param_dtype
    )
    b_HS = constant('b_gate', 0.0)
    # Energies and their moments stay in float32 or wider: a bfloat16 mean loses the small gates.
    compute = wide(self.dtype)
    energy_BHSL = jnp.einsum('bld,hsd->bhsl', x_BLD.astype(compute), w_HSD.astype(compute))
    energy_BHSL = energy_BHSL + b_HS.astype(compute)[None, :, :, None]
    if self.statistic == 'sequence':
      z_BHSX = sequence_znorm(energy_BHSL, mask=mask_BL)
    elif self.statistic == 'prefix':
      z_BHSX = prefix_znorm(energy_BHSL, segments=segments_BL, mask=mask_BL)
    elif self.statistic == 'query':
      z_BHSX = query_znorm(energy_BHSL, segments=segments_BL, mask=mask_BL)
    else:
      z_BHSX = energy_BHSL
    tau_HS = constant('tau', self.tau)
    alpha_HS = constant('alpha', self.alpha)
    return log_gate(z_BHSX, tau_HS, alpha_HS, constant('scale_logits', 1.0 / self.scales))
