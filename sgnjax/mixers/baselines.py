"""Baselines in the same blocks: linear attention, averages, FNet, and no mixing at all."""

from typing import ClassVar

import flax.linen as nn
import jax.numpy as jnp

from sgnjax.errors import UserError
from sgnjax.mixers.base import Aux, Mixed, Mixer, blank, prefix_mean
from sgnjax.mixers.softmax import Attention
from sgnjax.ops import averages, linear_attention
from sgnjax.ops.chunks import History
from sgnjax.ops.dtypes import wide
from sgnjax.parallel.mesh import ROWS
from sgnjax.parallel.sequence import (
  CHANNELS,
  TOKENS,
  WHOLE_ROWS,
  P,
  over_length,
  over_width,
)


class Linear(Attention):
  """Linear Transformer: attention with the kernel `(elu(q) + 1) (elu(k) + 1)`, no softmax.

  Causal in every form but `bidirectional`. 4 width^2 parameters, and 3 width (qkv_bias) and width
  (out_bias), named as softmax attention's. No dropout on weights: there are none to drop.
  Source: Linear Transformers (Katharopoulos et al. 2020), eqs. 5-7.
  """

  group: ClassVar[str] = 'baselines'
  label: ClassVar[str] = 'linear'
  attends: ClassVar[bool] = False
  published_leaks: ClassVar[bool] = False

  @property
  def kernel_features(self) -> int:
    """Features of a head's queries and keys."""
    return self.width // self.heads

  def check(self) -> None:
    if self.positions in ('rope', 'alibi'):
      why = (
        'a rotated feature may be negative, and the normaliser then vanish'
        if self.positions == 'rope'
        else 'there is no score to add a bias to'
      )
      raise UserError(
        f"model.positions='{self.positions}' does not fit mixer '{self.label}': {why}; "
        "use 'learned' or 'none'" + (", or mixer 'performer'" if self.positions == 'rope' else '')
      )

  def feature_maps(self, q_BLHE, k_BLHE, positions_BL):
    """Features of queries and of keys, and a logarithm of each key's weight or None."""
    return linear_attention.elu_features(q_BLHE), linear_attention.elu_features(k_BLHE), None

  @nn.compact
  def __call__(
    self, x_BLD, *, positions_BL=None, mask_BL=None, segments_BL=None, cache=None, train=False
  ) -> Mixed:
    self.refuse(cache=cache)
    if cache is not None and positions_BL is None:
      positions_BL = cache.length_B[:, None] + jnp.arange(x_BLD.shape[1], dtype=jnp.int32)[None, :]
    q_BLHE, k_BLHE, v_BLHE = (self.split(x_BLD, name) for name in 'qkv')
    q_BLHF, k_BLHF, scale_BLH = self.feature_maps(q_BLHE, k_BLHE, positions_BL)
    whole = P(ROWS, None, 'tensor')  # queries and keys, beside each device's share of the values
    y_BLHE, cache = over_length(
      self.attend,
      v_BLHE,
      q_BLHF,
      k_BLHF,
      scale_BLH,
      mask_BL,
      segments_BL,
      cache,
      specs=(CHANNELS, whole, whole, whole, WHOLE_ROWS, WHOLE_ROWS, P()),
    )
    return Mixed(self.join(y_BLHE, mask_BL, train), Aux({}, {}, {}), cache)

  def attend(self, v_BLHE, q_BLHF, k_BLHF, scale_BLH, mask_BL, segments_BL, state):
    """Values under the kernel's weights, and the state."""
    return linear_attention.linear_attention(
      q_BLHF,
      k_BLHF,
      v_BLHE,
      causal=self.causal,
      scale_BLH=scale_BLH,
      mask_BL=mask_BL,
      segments_BL=segments_BL,
      state=state,
    )

  def empty_cache(self, batch: int, max_len: int, dtype) -> linear_attention.LinearState:
    """Sums S and z, and their scale: F * (width + heads) + heads numbers an example and a layer.

    In float32 or wider, whatever max_len. F: width of a head (linear), or features (performer).
    """
    return linear_attention.empty_state(
      batch, self.heads, self.kernel_features, self.width // self.heads, dtype
    )


class Performer(Linear):
  """Performer: softmax attention's kernel by FAVOR+ positive orthogonal random features.

  features: directions a head, drawn once from a fixed seed, another set for each head, the same in
  every layer; not trained, not redrawn. Queries and keys are scaled by E^(-1/4), so that the
  kernel's mean is exp(q k / sqrt(E)). RoPE turns them before the features, which stay positive.
  Causal in every form but `bidirectional`; parameters as in `Linear`: features are none.
  Source: Performers (Choromanski et al. 2021), lemma 1 and section 2.4.
  """

  label: ClassVar[str] = 'performer'
  attends: ClassVar[bool] = True

  features: int = 64

  @property
  def kernel_features(self) -> int:
    return self.features

  def check(self) -> None:
    if self.features < 1:
      raise UserError(f'model.baselines.features={self.features}: expected at least 1')
    if self.positions != 'rope':
      super().check()

  def feature_maps(self, q_BLHE, k_BLHE, positions_BL):
    head_width = self.width // self.heads
    w_HFE = linear_attention.orthogonal_directions(self.heads, self.features, head_width)
    compute = wide(self.dtype)
    w_HFE = jnp.asarray(w_HFE, compute)

    def features(a_BLHE):
      a_BLHE = self.rotate(a_BLHE, positions_BL).astype(compute)
      return linear_attention.positive_features(
        a_BLHE * jnp.asarray(head_width**-0.25, compute), w_HFE
      )

    # A query's own scale is a factor of its numerator and of its normaliser.
    return features(q_BLHE)[0], *features(k_BLHE)


class Uniform(Attention):
  """Equal weights on all tokens seen: the floor of attention without content.

  What softmax attention computes where its scores are equal (FourierQK's DC filter). Causal in
  every form but `bidirectional`. 2 width^2 parameters, and width (qkv_bias) and width (out_bias):
  the projections `v` and `o` of softmax attention. No dropout on weights.
  """

  group: ClassVar[str] = 'baselines'
  label: ClassVar[str] = 'uniform'
  attends: ClassVar[bool] = False
  published_leaks: ClassVar[bool] = False

  @nn.compact
  def __call__(
    self, x_BLD, *, positions_BL=None, mask_BL=None, segments_BL=None, cache=None, train=False
  ) -> Mixed:
    self.refuse(cache=cache)
    v_BLHE = self.split(x_BLD, 'v')
    mean_BLD, cache = prefix_mean(
      v_BLHE.reshape(x_BLD.shape), self.causal, mask_BL, segments_BL, cache
    )
    return Mixed(self.join(mean_BLD.reshape(v_BLHE.shape), mask_BL, train), Aux({}, {}, {}), cache)

  def empty_cache(self, batch: int, max_len: int, dtype) -> averages.MeanState:
    """The mean: width numbers of float32 or wider an example and a layer, whatever max_len."""
    return averages.empty_mean(batch, self.width, dtype)


class Haar(Mixer):
  """Causal Haar averages: half the channels as they are, the others means over the last 2^l tokens.

  The last floor(width / 2) channels take l = 1, 2, ..., levels, 1, 2, ... in turn; at the start the
  mean is over the tokens there are. No parameters. Causal (forms causal and published).
  Source: WaveletGPT (Verma 2024), which does this to the embeddings between attention layers.
  """

  group: ClassVar[str] = 'baselines'
  label: ClassVar[str] = 'haar'
  attends: ClassVar[bool] = False
  published_leaks: ClassVar[bool] = False
  forms: ClassVar[tuple[str, ...]] = ('causal', 'published')

  levels: int = 5

  def check(self) -> None:
    if not 1 <= self.levels <= 24:
      raise UserError(f'model.baselines.levels={self.levels}: expected 1 to 24')
    if self.form == 'bidirectional':
      raise UserError(
        "mixer 'haar' has no form 'bidirectional': averages over 2^l tokens have no middle token; "
        "set model.form='causal', or mixer 'uniform' or 'fnet'"
      )

  @nn.compact
  def __call__(
    self, x_BLD, *, positions_BL=None, mask_BL=None, segments_BL=None, cache=None, train=False
  ) -> Mixed:
    averaged = self.width // 2
    kept_BLC, x_BLC = jnp.split(x_BLD, [self.width - averaged], axis=-1)
    level_C = 1 + jnp.arange(averaged, dtype=jnp.int32) % self.levels
    mean_BLC, cache = averages.window_mean(
      x_BLC, level_C, self.levels, mask_BL=mask_BL, segments_BL=segments_BL, history=cache
    )
    y_BLD = jnp.concatenate([kept_BLC, mean_BLC], axis=-1)
    return Mixed(blank(y_BLD, mask_BL), Aux({}, {}, {}), cache)

  def empty_cache(self, batch: int, max_len: int, dtype) -> History:
    """min(2^levels - 1, max_len) tokens of width / 2 numbers of `dtype`, and an int32 each."""
    tokens = min(2**self.levels - 1, max_len)
    return History.empty((batch, self.width // 2, tokens), dtype)


class FNet(Mixer):
  """`Re FFT(x)` over length and width: every token sees every other; no parameters.

  published: the plain sums of the paper, sqrt(L width) times larger than the input, for blocks with
  a norm behind (postnorm, sgn). bidirectional: the same over sqrt(L width), which a pre-norm
  residual can carry. Batches of one length alone: padding would be mixed in.
  Source: FNet (Lee-Thorp et al. 2022), eq. 3.
  """

  group: ClassVar[str] = 'baselines'
  label: ClassVar[str] = 'fnet'
  attends: ClassVar[bool] = False
  forms: ClassVar[tuple[str, ...]] = ('published', 'bidirectional')

  @property
  def uses_fft(self) -> bool:
    return True

  def check(self) -> None:
    if self.form == 'causal':
      raise UserError(
        "model.form='causal' does not fit mixer 'fnet': FNet sees the whole sequence; "
        "set model.form='bidirectional'"
      )

  @nn.compact
  def __call__(
    self, x_BLD, *, positions_BL=None, mask_BL=None, segments_BL=None, cache=None, train=False
  ) -> Mixed:
    self.refuse(
      cache=cache,
      mask_BL=mask_BL,
      segments_BL=segments_BL,
      why='its FFT runs over the whole row; use batches of one length, or mixer '
      "'linear', 'uniform' or 'softmax'",
    )
    norm = 'backward' if self.form == 'published' else 'ortho'
    z_BLD = over_width(
      lambda x_BLD: jnp.fft.fft(x_BLD, axis=2, norm=norm), x_BLD.astype(wide(x_BLD.dtype))
    )
    y_BLD = over_length(
      lambda z_BLD: jnp.real(jnp.fft.fft(z_BLD, axis=1, norm=norm)), z_BLD, specs=(TOKENS,)
    )
    return Mixed(y_BLD.astype(x_BLD.dtype), Aux({}, {}, {}), None)


class Identity(Mixer):
  """Its input: no mixing, no parameters, so that the FFN is alone in the block."""

  group: ClassVar[str] = 'baselines'
  label: ClassVar[str] = 'identity'
  attends: ClassVar[bool] = False

  @property
  def causal(self) -> bool:
    return True

  @nn.compact
  def __call__(
    self, x_BLD, *, positions_BL=None, mask_BL=None, segments_BL=None, cache=None, train=False
  ) -> Mixed:
    return Mixed(blank(x_BLD, mask_BL), Aux({}, {}, {}), cache)

  def empty_cache(self, batch: int, max_len: int, dtype):
    """Nothing: a token needs no other."""
    return ()
