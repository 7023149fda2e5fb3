"""The dtype that sums, transforms and exponentials are computed in."""

import jax.numpy as jnp


def wide(*dtypes) -> jnp.dtype:
  """float64 if any of the dtypes is, else float32; also under strict promotion."""
  return jnp.dtype(jnp.float64 if jnp.dtype(jnp.float64) in map(jnp.dtype, dtypes) else jnp.float32)
