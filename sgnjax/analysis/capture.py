"""What the layers of a trained model do on real text: one forward pass, then its pictures."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from sgnjax.analysis import plots
from sgnjax.analysis.page import Picture
from sgnjax.mixers import Mixer
from sgnjax.mixers.chiar import Routed
from sgnjax.mixers.ega import EGA
from sgnjax.mixers.fourier_qk import FourierQK
from sgnjax.mixers.sgn import SGN
from sgnjax.models import build
from sgnjax.models.decoder import Decoder
from sgnjax.ops.kernels import even_kernel, one_sided_kernel
from sgnjax.train.log import mark

WINDOWS = 4
SHOWN = 128  # tokens of text in a strip
_HARD = ' Without training it is cut: above 1/2 a token takes the layer, else its input.'


def capture(config: ConfigDict, params: Any, inputs: np.ndarray, *, vocab: int):
  """`(model, debug)`: the model of the config and the arrays its layers show on these inputs."""
  model = build(config, vocab=vocab, capture=True)
  run = jax.jit(lambda params, inputs: model.apply({'params': params}, inputs).aux.debug)
  dtype = jnp.float32 if config.model.image is not None else jnp.int32
  return model, jax.device_get(run(params, jnp.asarray(inputs, dtype)))


def windows(split_N: np.ndarray, length: int, count: int = WINDOWS) -> np.ndarray:
  """`count` windows (count, length), evenly spaced over a split of at least `length` tokens."""
  starts = np.linspace(0, len(split_N) - length, count).astype(int)
  return np.stack([split_N[s : s + length] for s in starts])


def pictures(
  model: Decoder, debug: dict[str, np.ndarray], tokens_BL: np.ndarray, tokenizer, *, leaky: bool
) -> list[Picture]:
  """The pictures of every mechanism among the layers; none for softmax attention."""
  pieces_BL = [[tokenizer.decode([t]) for t in row] for row in tokens_BL.tolist()]
  mixers = {i: block.make(parent=None) for i, (_, block) in enumerate(model.layers())}

  def of(kind: type[Mixer], key: str) -> dict[int, np.ndarray]:
    """The arrays of that name of all layers of a kind, which share their options."""
    return {
      i: np.asarray(debug[f'{key}/{i:02d}'], np.float32)
      for i, mixer in mixers.items()
      if isinstance(mixer, kind) and f'{key}/{i:02d}' in debug
    }

  def first(kind: type[Mixer]) -> Any:
    return next((mixer for mixer in mixers.values() if isinstance(mixer, kind)), None)

  drawn = []
  if mixer := first(SGN):
    drawn += _sgn(mixer, of(SGN, 'gate'), of(SGN, 'mixture'), leaky)
  if mixer := first(FourierQK):
    placed = mixer.placed_by == 'bins' and min(mixer.bins) > 0  # bin 0 has no period to show
    centre = of(FourierQK, 'centre') if placed else None
    drawn += _fourier_qk(mixer, of(FourierQK, 'response'), centre, leaky)
  if mixer := first(EGA):
    drawn += _ega(mixer, of(EGA, 'gate'), pieces_BL, leaky)
  if mixer := first(Routed):
    if mixer.router == 'soft':  # every token takes part of all operators
      share = {i: gates_BLK[..., -1] for i, gates_BLK in of(Routed, 'router_gates').items()}
    else:
      share = of(Routed, 'route')
    drawn += _chiar(mixer, share, of(Routed, 'entropy'), pieces_BL, leaky)
  gates = [np.asarray(a, np.float32) for key, a in debug.items() if key.startswith('meta_gate/')]
  if gates:
    hard = any(getattr(mixer, 'meta_hard', False) for mixer in mixers.values())
    drawn.append(
      Picture(
        'meta_gate',
        plots.meta_gate(np.broadcast_to(gates[0], tokens_BL.shape), leaky=leaky),
        'The MetaRouter blends the output of the first layer with its input: at 1 the layer speaks '
        f'alone, at 0 it is left out.{_HARD if hard else ""}',
      )
    )
  return drawn


def _sgn(mixer, gate_PD: dict[int, np.ndarray], mixture_GK, leaky: bool) -> list[Picture]:
  kind = {'learned': 'learned', 'random': 'random, fixed', 'lowpass': 'fixed low-pass'}[mixer.gate]
  kernel, and_how = None, ''
  response = {i: np.abs(g) for i, g in gate_PD.items()}
  plain = mixer.basis == 'dct' and mixer.resolutions == 1
  if mixer.grid is not None:
    # Neighbours along a row of patches are neighbours in the sequence.
    sides = mixer.grid if mixer.whole else [side + 1 for side in mixer.grid]
    response = {i: g.reshape(*sides, -1).mean(0) for i, g in response.items()}
    how = (
      f'The {kind} 2-D gate, by absolute value, over the frequency along a row of patches; mean '
      'over the frequencies along its columns.'
    )
  elif mixer.whole:
    on = {'dct': 'DCT coefficients', 'fft': 'Fourier coefficients'}
    on = on.get(mixer.basis, 'DCT coefficients, one basis of three, times its share')
    how = f'The {kind} gate on the {on}, by absolute value.'
    if mixer.basis == 'dct':
      kernel = {i: _toeplitz_part(g) for i, g in gate_PD.items()}
      and_how = (
        'The part of the operator that depends on the distance alone; the rest is a reflection.'
      )
  elif mixer.form == 'causal':
    kernel = {i: np.asarray(one_sided_kernel(jnp.asarray(g))) for i, g in gate_PD.items()}
    response = {i: np.abs(np.fft.rfft(h, 2 * (h.shape[0] - 1), axis=0)) for i, h in kernel.items()}
    how = f'The {kind} gate is the real part of this response of a causal filter.'
    if not plain:
      how = f'The response of the causal filter that its {kind} gates make together.'
    and_how = 'The weights a token gives to itself (lag 0) and to the tokens before it.'
  else:
    kernel = {i: np.asarray(even_kernel(jnp.asarray(g))) for i, g in gate_PD.items()}
    how = f'The {kind} gate of the two-sided filter, by absolute value.'
    and_how = 'The weights a token gives to tokens at this distance, on both sides.'
    if not plain:
      how = f'The real part of the response that its {kind} gates make together, absolute.'
    if mixer.basis != 'dct':
      and_how = 'The weights a token gives to tokens at this distance, mean of both sides.'
  if mixture_GK:
    share_K = np.mean([mixture.mean(0) for mixture in mixture_GK.values()], 0)
    shares = ', '.join(
      f'{name} {share:.0%}{mark(leaky)}'
      for name, share in zip(('DCT', 'FFT', 'Haar'), share_K, strict=True)
    )
    how = f'{how} Mixture of bases, mean over layers and groups: {shares}.'
  how = f'{how} Bright is passed on; left is slow change, right is fast.'
  drawn = [Picture('sgn_gates', plots.gate_responses(response, leaky=leaky), how)]
  if kernel is not None:
    two_sided = mixer.form != 'causal'
    figure = plots.kernels(kernel, two_sided=two_sided, leaky=leaky)
    drawn.append(Picture('sgn_kernels', figure, f'{and_how} {reach(kernel)}'))
  return drawn


def reach(kernel_TD: dict[int, np.ndarray]) -> str:
  """How far trained kernels look, in a sentence: lags within which half and 90 % of the energy lie.

  kernel_TD: by layer, lags from 0 first; medians over channels.
  """
  told = []
  for layer, h_TD in kernel_TD.items():
    share_TD = np.cumsum(np.square(h_TD, dtype=np.float64), axis=0)
    share_TD /= np.maximum(share_TD[-1:], 1e-30)
    half, most = (int(np.median((share_TD < s).sum(0))) for s in (0.5, 0.9))
    told.append(f'layer {layer + 1}: {half} and {most}')
  return f'Half and 90 % of the energy lie within so many tokens: {"; ".join(told)}.'


def _toeplitz_part(gate_ND: np.ndarray) -> np.ndarray:
  """`g(tau) / 2` of `C^T diag(G) C`, whose entries are `(g(t - s) + g(t + s + 1)) / 2`."""
  n = gate_ND.shape[0]
  square_N1 = np.where(np.arange(n) == 0, 1, 2)[:, None] / n
  lags_TN = np.pi / n * np.outer(np.arange(n), np.arange(n))
  return np.cos(lags_TN) @ (square_N1 * gate_ND) / 2


def _fourier_qk(mixer, response_HKF, centre_HK, leaky: bool) -> list[Picture]:
  figure = plots.filter_responses(response_HKF, centre_HK_by_layer=centre_HK, leaky=leaky)
  said = [
    'Scores compare only the part of queries and keys that these filters pass; values are not '
    'filtered.'
  ]
  if mixer.scores == 'analytic':
    said.append('Beside each filter stands its quadrature, a quarter of a cycle later.')
  if mixer.kernel == 'taps':
    said.append(f'Each is a causal filter of {mixer.taps} taps.')
  if mixer.surrogate is not None:
    said.append(f"Phases are not those of the text: surrogate '{mixer.surrogate}'.")
  if centre_HK is not None and mixer.learned:
    start = ', '.join(f'{b / mixer.context:.3g}' for b in mixer.bins)
    said.append(f'Filters began at {start} cycles per token.')
  drawn = [Picture('filters', figure, ' '.join(said))]
  if centre_HK is not None and mixer.learned:
    figure = plots.periods({i: 1 / c for i, c in centre_HK.items()}, leaky=leaky)
    said = 'One over the learned centre of each filter; heads of a layer stand side by side.'
    drawn.append(Picture('periods', figure, said))
  return drawn


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


def _chiar(mixer, share_BL, entropy_BL, pieces_BL, leaky: bool) -> list[Picture]:
  share_RBL = np.stack(list(share_BL.values()))
  first_RL = share_RBL[:, 0]
  pieces = [piece for row in pieces_BL for piece in row]
  soft = mixer.router == 'soft'
  mixing = {
    'dct': 'DCT mixing',
    'orthogonal': 'mixing in a random orthogonal basis',
    'permuted': 'DCT mixing of permuted channels',
  }[mixer.basis]
  others = f'{mixing} or RBF mixing' if mixer.rbf else mixing
  which = 'Bright tokens take attention in most routed layers'
  if soft:
    which = 'Bright tokens are attention to a large part'
  slots = ' In each window only as many attend as it has slots.' * (mixer.dispatch == 'capacity')
  between = ', between the two thresholds RBF mixing' if mixer.rbf else ''
  decides = {
    'threshold': f'A token above the threshold takes attention, one below it {mixing} over the '
    f'width{between}.',
    'soft': 'The router learned how much of each operator a token takes.',
    'hard': 'The router learned which operator a token takes.',
    'random': 'The route is drawn by position and knows nothing of the token or its entropy.',
  }[mixer.router]
  return [
    Picture(
      'routes_text',
      plots.text_heat(
        pieces_BL[0][:SHOWN],
        {'routed layers together': first_RL.mean(0)[:SHOWN]},
        title='Which tokens the routers send to attention',
        label='gate of attention' if soft else 'share of the routed layers that attend',
        leaky=leaky,
      ),
      f'Validation text. {which}, dark ones {others}.{slots}',
    ),
    Picture(
      'routes_tokens',
      plots.attention_by_piece(pieces, share_RBL.reshape(len(share_RBL), -1), leaky=leaky),
      'The same over all captured windows, for each of the commonest tokens.',
    ),
    Picture(
      'routes_layers',
      plots.attention_shares(
        {i: float(r.mean()) for i, r in share_BL.items()},
        {i: e.ravel() for i, e in entropy_BL.items()},
        tau=mixer.tau if mixer.router == 'threshold' else None,
        leaky=leaky,
      ),
      f'{decides}{slots}',
    ),
  ]
