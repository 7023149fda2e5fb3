"""What the layers of a trained model do on real text: one forward pass, then its pictures."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure
from ml_collections import ConfigDict

from sgnjax.analysis import plots
from sgnjax.models import build
from sgnjax.models.decoder import Decoder
from sgnjax.ops.kernels import even_kernel, one_sided_kernel

WINDOWS = 4
SHOWN = 128  # tokens of text in a strip


class Picture(NamedTuple):
  """A figure, the file name it is saved under, and a sentence that says how to read it."""

  name: str
  figure: Figure
  caption: str


def capture(config: ConfigDict, params: Any, tokens_BL: np.ndarray, *, vocab: int):
  """`(model, debug)`: the model of the config and the arrays its layers show on these tokens."""
  model = build(config, vocab=vocab, capture=True)
  run = jax.jit(lambda params, tokens_BL: model.apply({'params': params}, tokens_BL).aux.debug)
  return model, jax.device_get(run(params, jnp.asarray(tokens_BL, jnp.int32)))


def windows(split_N: np.ndarray, length: int, count: int = WINDOWS) -> np.ndarray:
  """`count` windows (count, length), evenly spaced over a split of at least `length` tokens."""
  starts = np.linspace(0, len(split_N) - length, count).astype(int)
  return np.stack([split_N[s : s + length] for s in starts])


def pictures(
  model: Decoder, debug: dict[str, np.ndarray], tokens_BL: np.ndarray, tokenizer, *, leaky: bool
) -> list[Picture]:
  """The pictures of every mechanism among the layers; none for softmax attention."""
  pieces_BL = [[tokenizer.decode([t]) for t in row] for row in tokens_BL.tolist()]
  layers = {i: (name, block.make(parent=None)) for i, (name, block) in enumerate(model.layers())}

  def of(kind: str, key: str) -> dict[int, np.ndarray]:
    return {
      i: np.asarray(debug[f'{key}/{i:02d}'], np.float32)
      for i, (name, _) in layers.items()
      if name == kind
    }

  mixers = dict(layers.values())
  drawn = []
  if 'sgn' in mixers:
    drawn += _sgn(mixers['sgn'], of('sgn', 'gate'), leaky)
  if 'fourier_qk' in mixers:
    mixer = mixers['fourier_qk']
    placed = mixer.placed_by == 'bins' and min(mixer.bins) > 0  # bin 0 has no period to show
    centre = of('fourier_qk', 'centre') if placed else None
    drawn += _fourier_qk(mixer, of('fourier_qk', 'response'), centre, leaky)
  if 'ega' in mixers:
    drawn += _ega(mixers['ega'], of('ega', 'gate'), pieces_BL, leaky)
  if 'chiar' in mixers:
    drawn += _chiar(mixers['chiar'], of('chiar', 'route'), of('chiar', 'entropy'), pieces_BL, leaky)
  gates = [np.asarray(a, np.float32) for key, a in debug.items() if key.startswith('meta_gate/')]
  if gates:
    drawn.append(
      Picture(
        'meta_gate',
        plots.meta_gate(np.broadcast_to(gates[0], tokens_BL.shape), leaky=leaky),
        'The MetaRouter blends the output of the first layer with its input: at 1 the layer speaks '
        'alone, at 0 it is left out.',
      )
    )
  return drawn


def _sgn(mixer, gate_MD: dict[int, np.ndarray], leaky: bool) -> list[Picture]:
  truncated = mixer.form == 'causal' and mixer.operator == 'masked'
  if mixer.form == 'published' or truncated:
    response = {i: np.abs(g) for i, g in gate_MD.items()}
    kernel = {i: _toeplitz_part(g) for i, g in gate_MD.items()}
    how = 'The gate on the DCT coefficients, by absolute value.'
    and_how = (
      'The part of the operator that depends on the distance alone; the rest is a reflection.'
    )
  elif mixer.form == 'causal':
    kernel = {i: np.asarray(one_sided_kernel(jnp.asarray(g))) for i, g in gate_MD.items()}
    response = {i: np.abs(np.fft.rfft(h, 2 * (h.shape[0] - 1), axis=0)) for i, h in kernel.items()}
    how = 'The learned gate is the real part of this response of a causal filter.'
    and_how = 'The weights a token gives to itself (lag 0) and to the tokens before it.'
  else:
    kernel = {i: np.asarray(even_kernel(jnp.asarray(g))) for i, g in gate_MD.items()}
    response = {i: np.abs(g) for i, g in gate_MD.items()}
    how = 'The learned gate of the two-sided filter, by absolute value.'
    and_how = 'The weights a token gives to tokens at this distance, on both sides.'
  two_sided = mixer.form != 'causal'
  return [
    Picture(
      'sgn_gates',
      plots.gate_responses(response, leaky=leaky),
      f'{how} Bright is passed on; left is slow change over the text, right is fast.',
    ),
    Picture('sgn_kernels', plots.kernels(kernel, two_sided=two_sided, leaky=leaky), and_how),
  ]


def _toeplitz_part(gate_ND: np.ndarray) -> np.ndarray:
  """`g(tau) / 2` of `C^T diag(G) C`, whose entries are `(g(t - s) + g(t + s + 1)) / 2`."""
  n = gate_ND.shape[0]
  square_N1 = np.where(np.arange(n) == 0, 1, 2)[:, None] / n
  lags_TN = np.pi / n * np.outer(np.arange(n), np.arange(n))
  return np.cos(lags_TN) @ (square_N1 * gate_ND) / 2


def _fourier_qk(mixer, response_HKF, centre_HK, leaky: bool) -> list[Picture]:
  figure = plots.filter_responses(response_HKF, centre_HK_by_layer=centre_HK, leaky=leaky)
  start = ', '.join(f'{b / mixer.context:.3g}' for b in mixer.bins)
  start = f' Filters began at {start} cycles per token.'
  return [
    Picture(
      'filters',
      figure,
      'Scores compare only the part of queries and keys that these filters pass; values are not '
      f'filtered.{start if centre_HK is not None and mixer.learned else ""}',
    )
  ]


def _ega(mixer, gate_BHL, pieces_BL, leaky: bool) -> list[Picture]:
  layers = list(gate_BHL)
  chosen = sorted({layers[0], layers[len(layers) // 2], layers[-1]})
  last = {'query': ', as the last token of the window sees it'}.get(mixer.statistic, '')
  figure = plots.text_heat(
    pieces_BL[0][:SHOWN],
    {f'layer {i + 1}': gate_BHL[i][0].mean(0)[:SHOWN] for i in chosen},
    title='Which tokens the energy gates let speak',
    label='gate, mean over heads',
    leaky=leaky,
  )
  caption = f'Validation text. The gate of each token as a key{last}: bright is heard, dark is not.'
  return [Picture('ega_gates', figure, caption)]


def _chiar(mixer, route_BL, entropy_BL, pieces_BL, leaky: bool) -> list[Picture]:
  route_RBL = np.stack(list(route_BL.values()))
  first_RL = route_RBL[:, 0]
  pieces = [piece for row in pieces_BL for piece in row]
  return [
    Picture(
      'routes_text',
      plots.text_heat(
        pieces_BL[0][:SHOWN],
        {'routed layers together': first_RL.mean(0)[:SHOWN]},
        title='Which tokens the routers send to attention',
        label='share of the routed layers that attend',
        leaky=leaky,
      ),
      'Validation text. Bright tokens take attention in most routed layers, dark ones DCT mixing.',
    ),
    Picture(
      'routes_tokens',
      plots.attention_by_piece(pieces, route_RBL.reshape(len(route_RBL), -1), leaky=leaky),
      'The same over all captured windows, for each of the commonest tokens.',
    ),
    Picture(
      'routes_layers',
      plots.attention_shares(
        {i: float(r.mean()) for i, r in route_BL.items()},
        {i: e.ravel() for i, e in entropy_BL.items()},
        tau=mixer.tau,
        leaky=leaky,
      ),
      'A token above the threshold takes attention, one below it DCT mixing over the width.',
    ),
  ]
