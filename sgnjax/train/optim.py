"""AdamW with warm-up and cosine, clipping by the global norm, and who takes weight decay."""

import jax
import jax.numpy as jnp
import optax
from ml_collections import ConfigDict

from sgnjax.errors import UserError
from sgnjax.parallel import rules

# By name and not by rank: `scan` adds an axis of repeats, which makes a bias look like a matrix.
DECAYED = ('kernel', 'embedding', 'head', 'position', 'cls')
PLAIN = ('bias', 'scale')
# Never trained: no gradient reaches them, and decay would move them.
FROZEN = ('frozen_gate', 'frozen_omega', 'frozen_key')
MECHANISM = (
  'gate', 'w_gate', 'b_gate', 'tau', 'alpha', 'scale_logits', 'log_centre', 'w_spectral',
  'meta_router', 'router', 'mixture', 'conv_taps', 'conv_bias', 'w_input', 'log_omega0',
  'log_sigma', 'angles', 'filters',
)  # fmt: skip


def path_of(key_path) -> str:
  """A key path of `jax.tree_util` as `a/b/c`."""
  return jax.tree_util.keystr(key_path, simple=True, separator='/')


def decays(path: str, mechanism: bool) -> bool:
  """Whether the parameter at `path` takes weight decay; `mechanism`: whether the mechanisms' do.

  Other names than these in a mixer that was registered are its mechanism. Raises UserError for a
  name that no rule covers.
  """
  names = path.split('/')
  if any(name in FROZEN for name in names):
    return False
  if any(name in MECHANISM for name in names):
    return mechanism
  if names[-1] in DECAYED:
    return True
  if names[-1] in PLAIN:
    return False
  if rules.own(path):
    return mechanism
  raise UserError(
    f"parameter '{path}' has no weight decay rule; add '{names[-1]}' to DECAYED, PLAIN or "
    'MECHANISM in sgnjax/train/optim.py'
  )


def decay_mask(params, mechanism: bool):
  """A tree like `params` of booleans: true where weight decay applies."""
  return jax.tree_util.tree_map_with_path(lambda p, _: decays(path_of(p), mechanism), params)


def schedule(config: ConfigDict) -> optax.Schedule:
  """Learning rate of a step counted from 0: linear to `lr` over the warm-up, cosine to `final_lr`.

  Step `warmup - 1` has the full rate; `final_lr` would be reached at step `train.steps`.
  """
  o, steps = config.optim, config.train.steps

  def rate(step):
    step = jnp.asarray(step, jnp.float32)
    rising = o.lr * (step + 1) / max(o.warmup, 1)
    share = jnp.clip((step - o.warmup) / max(steps - o.warmup, 1), 0, 1)
    falling = o.final_lr + 0.5 * (o.lr - o.final_lr) * (1 + jnp.cos(jnp.pi * share))
    return jnp.where(step < o.warmup, rising, falling)

  return rate


def make_optimiser(
  config: ConfigDict, rate: optax.Schedule | None = None
) -> optax.GradientTransformation:
  """AdamW after clipping by the global norm (`optim.clip`, 0: no clipping).

  rate: of each step counted from 0, in the place of `schedule`. Raises UserError for values that
  cannot be.
  """
  o = config.optim
  check(config)
  adamw = optax.adamw(
    schedule(config) if rate is None else rate,
    b1=o.b1,
    b2=o.b2,
    eps=o.eps,
    weight_decay=o.weight_decay,
    mask=lambda params: decay_mask(params, o.decay_mechanism),
  )
  return optax.chain(optax.clip_by_global_norm(o.clip), adamw) if o.clip else adamw


def check(config: ConfigDict) -> None:
  """Raises UserError for optimiser settings that cannot be."""
  o, steps = config.optim, config.train.steps
  if steps < 1:
    raise UserError(f'train.steps={steps}: expected at least 1')
  if not 0 <= o.warmup <= steps:
    way = f'; --config.optim.warmup={steps // 10} would do' if o.warmup > steps else ''
    raise UserError(f'optim.warmup={o.warmup}: expected 0 to train.steps={steps}{way}')
  if not o.lr > 0:
    raise UserError(f'optim.lr={o.lr}: expected more than 0')
  for key in ('final_lr', 'weight_decay', 'clip'):
    if not o[key] >= 0:
      raise UserError(f'optim.{key}={o[key]}: expected 0 or more')
  for key in ('b1', 'b2'):
    if not 0 <= o[key] < 1:
      raise UserError(f'optim.{key}={o[key]}: expected 0 or more and less than 1')
  if not o.eps > 0:
    raise UserError(f'optim.eps={o.eps}: expected more than 0')
