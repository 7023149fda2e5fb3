"""The exact GELU's feed-forward network by tiles of tokens, which a CPU's caches hold."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from sgnjax.ops.backend import backend, tiles
from sgnjax.ops.dtypes import wide

TILE = 1 << 19  # hidden numbers of a tile: 2 MB in float32; reckoned
SEVERAL = 4  # tiles, from which it is cut; reckoned
FEWEST = 32  # tokens of a tile, where the number of tokens has no better divisor; reckoned


def tile_of(tokens: int, hidden: int) -> int | None:
  """Tokens of a tile, a divisor of their number; None where the whole is as good.

  Where it is not, the hidden numbers of all tokens, and their gradients, would each go to memory
  and back several times; by tiles they are never whole, and made a second time in the backward
  pass, which is one product more in six. Other devices have the memory and lack the caches.
  """
  if not tiles() or backend() != 'cpu' or tokens * hidden < SEVERAL * TILE:
    return None
  most = max(1, TILE // hidden)
  tile = next(n for n in range(min(most, tokens), 0, -1) if tokens % n == 0)
  return tile if tile >= min(most / 2, FEWEST) else None


@partial(jax.custom_vjp, nondiff_argnums=(5,))
def feed_forward(x_TD, up_DF, up_F, down_FD, down_D, tile: int) -> jax.Array:
  """`gelu(x up + b) down + c` of so many tokens at a time, which divide their number T: (T, D).

  Weights may be wider than x: products are of x's dtype with sums in float32 or wider, as is all
  else; the result has x's dtype.
  """
  weights = _narrow(up_DF, x_TD), up_F, _narrow(down_FD, x_TD), down_D

  def some(x_tD):
    h_tF = _hidden(x_tD, *weights[:2])
    y_tD = _product('tf,fd->td', _narrow(h_tF * _cdf(h_tF), x_tD), weights[2])
    return (y_tD + weights[3].astype(y_tD.dtype)[None, :]).astype(x_tD.dtype)

  return jax.lax.map(some, x_TD.reshape(-1, tile, x_TD.shape[1])).reshape(x_TD.shape)


def _backward(tile, saved, dy_TD):
  x_TD, up_DF, up_F, down_FD, down_D = saved
  dtype = wide(x_TD.dtype)
  up, down = _narrow(up_DF, x_TD), _narrow(down_FD, x_TD)

  def some(sums, inputs):
    x_tD, dy_tD = inputs
    h_tF = _hidden(x_tD, up, up_F)
    cdf_tF = _cdf(h_tF)
    density_tF = jnp.exp(h_tF**2 * _number(-0.5, dtype)) * _number((2 * np.pi) ** -0.5, dtype)
    da_tF = _product('td,fd->tf', dy_tD, down)
    dh_tF = da_tF * (cdf_tF + h_tF * density_tF)
    narrow_tF = _narrow(dh_tF, x_tD)
    here = (
      _product('td,tf->df', x_tD, narrow_tF),
      jnp.sum(dh_tF, axis=0),
      _product('tf,td->fd', _narrow(h_tF * cdf_tF, x_tD), dy_tD),
      jnp.sum(dy_tD.astype(dtype), axis=0),
    )
    dx_tD = _product('tf,df->td', narrow_tF, up).astype(x_tD.dtype)
    return jax.tree.map(jnp.add, sums, here), dx_tD

  weights = (up_DF, up_F, down_FD, down_D)
  zeros = tuple(jnp.zeros(a.shape, dtype) for a in weights)
  tiles = tuple(a.reshape(-1, tile, a.shape[1]) for a in (x_TD, dy_TD))
  sums, dx = jax.lax.scan(some, zeros, tiles)
  return dx.reshape(x_TD.shape), *(d.astype(a.dtype) for d, a in zip(sums, weights, strict=True))


feed_forward.defvjp(lambda *args: (feed_forward(*args), args[:5]), _backward)


def _hidden(x_tD, up_DF, up_F):
  h_tF = _product('td,df->tf', x_tD, up_DF)
  return h_tF + up_F.astype(h_tF.dtype)[None, :]


def _cdf(h_tF):
  """Of the normal distribution; by erfc, since 1 + erf loses the digits of its lower tail."""
  return jax.lax.erfc(h_tF * _number(-(0.5**0.5), h_tF.dtype)) * _number(0.5, h_tF.dtype)


def _number(value, dtype):
  return jnp.asarray(value, dtype)


def _narrow(a, like):
  return a.astype(like.dtype)


def _product(axes, a, b):
  dtype = wide(a.dtype)
  return jnp.einsum(axes, a, b.astype(a.dtype), preferred_element_type=dtype)
