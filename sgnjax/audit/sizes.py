"""How much of the future each layer sees, place by place: what the audit compares, in numbers."""

import functools

import jax
import numpy as np

from sgnjax.audit import QUICK, _as, _forward, local_cpu, recast
from sgnjax.audit.causality import replaced
from sgnjax.models import Model


def sizes(
  model: Model, params, tokens_BL: np.ndarray, *, cut: int, vocab: int, seed: int = 0
) -> dict[str, np.ndarray]:
  """`{layer: change_L}`: largest change of its output before `cut`, over its largest value.

  Tokens from `cut` on are replaced, in float64 on a CPU at one compiled shape. The last entry is
  `logits`. Changes of some 1e-15 are rounding of an FFT; a causal layer has no others.
  """
  rng, cpu = np.random.default_rng(seed), local_cpu()
  with jax.enable_x64(True), jax.default_device(cpu):
    model64, params64 = recast(model, 'float64'), _as(params, np.float64, cpu)
    forward = jax.jit(functools.partial(_forward, model64), compiler_options=QUICK)
    later_BL = np.broadcast_to(np.arange(tokens_BL.shape[1]) >= cut, tokens_BL.shape)
    found = [
      forward(params64, tokens) for tokens in (tokens_BL, replaced(tokens_BL, later_BL, vocab, rng))
    ]
  arrays = [
    {
      **{name: np.asarray(a) for name, a in hidden.items()},
      'logits': np.asarray(logits)[..., :vocab],
    }
    for logits, hidden in found
  ]
  return {
    name: np.abs(before - arrays[1][name])[:, :cut].max((0, 2)) / np.abs(before).max()
    for name, before in arrays[0].items()
  }
