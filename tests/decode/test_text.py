"""Text in, text out: what is shown on the way, and where it stops."""

import numpy as np
import pytest

from sgnjax.data.tokenizers import ByteTokenizer
from sgnjax.decode import text as text_module
from sgnjax.decode.generate import generate
from sgnjax.decode.score import log_probabilities
from sgnjax.decode.text import write
from sgnjax.errors import UserError
from tests.decode.test_generate import CONTEXT, make


class Letters:
  """A tokenizer of eleven letters."""

  def encode(self, text):
    return ['abcdefghijk'.index(c) for c in text]

  def decode(self, ids):
    return ''.join('abcdefghijk'[i] for i in ids)


@pytest.mark.parametrize('kind', ['softmax', 'sgn'])
def test_text_in_text_out_past_the_context(kind):
  model, params = make(kind)
  written = write(model, params, Letters(), ['abc', 'k'], 30, temperature=0.0)
  expected_BT = generate(model, params, [[0, 1, 2], [10]], 30, slide=True)
  assert written.texts == [Letters().decode(row) for row in expected_BT]
  assert written.tokens == [30, 30]
  assert written.rate == 60 / written.seconds > 0


def scripted(monkeypatch, tokenizer, texts, **options):
  """What `write` makes of a model that says these texts; what was shown, and how many pieces."""
  rows = [tokenizer.encode(text) for text in texts]
  taken = []

  class Says:
    def __init__(self, model, params, prompts, tokens, *, chunk, **_):
      self.chunk = chunk

    def __iter__(self):
      for at in range(0, len(rows[0]), self.chunk):
        taken.append(at)
        yield np.asarray([row[at : at + self.chunk] for row in rows])

  monkeypatch.setattr(text_module, 'Generation', Says)
  shown = [[] for _ in texts]
  written = write(
    None, None, tokenizer, texts, 9, show=lambda i, said: shown[i].append(said), **options
  )
  return written, shown, len(taken)


def test_what_is_shown_adds_up_and_holds_no_half_character(monkeypatch):
  said = 'naïve – 数学, fin'
  written, (shown,), _ = scripted(monkeypatch, ByteTokenizer(), [said])
  assert written.texts == [said] == [''.join(shown)]
  assert len(shown) > 3
  assert not any('\N{REPLACEMENT CHARACTER}' in piece for piece in shown)


def test_a_stop_string_ends_its_row_and_is_never_shown(monkeypatch):
  texts = ['one. END of it, xxxxxxxx', 'two ENDs; E and EN, xxxx', 'one.. END, and xxxx ENx.']
  written, shown, pieces = scripted(monkeypatch, ByteTokenizer(), texts, stop=['END', 'xx EN'])
  assert written.texts == ['one. ', 'two ', 'one.. ']
  assert [''.join(pieces) for pieces in shown] == written.texts
  assert written.tokens == [8, 7, 9]  # END included, whatever was made behind it
  assert pieces == 3  # of four tokens


def test_a_stop_string_that_does_not_come_stops_nothing(monkeypatch):
  written, (shown,), _ = scripted(monkeypatch, ByteTokenizer(), ['only EN, then E'], stop=['END'])
  assert written.texts == ['only EN, then E'] == [''.join(shown)]


@pytest.mark.parametrize('stop', ['END', [''], [3]])
def test_stop_strings_are_a_list_of_texts(stop):
  with pytest.raises(UserError, match='a list of texts'):
    write(None, None, Letters(), ['a'], 1, stop=stop)


@pytest.mark.parametrize('stride', [None, 16, 3])
def test_log_probabilities_are_those_of_the_logits(stride):
  model, params = make('softmax')
  rng = np.random.default_rng(1)
  rows = [rng.integers(0, model.vocab, n).tolist() for n in (5, 2, CONTEXT + 1, 40)]
  found = log_probabilities(model, params, rows, stride=stride)
  fresh = stride or CONTEXT // 2
  for row, logp_L in zip(rows, found, strict=True):
    assert logp_L.shape == (len(row) - 1,)
    for t in range(1, len(row)):
      windows = max(0, -(-(t - CONTEXT) // fresh))  # how often it was moved on for token t
      end = min(len(row), CONTEXT + 1 + windows * fresh)
      before = row[max(0, end - CONTEXT - 1) : t]
      padded_L = np.zeros((1, CONTEXT), np.int32)
      padded_L[0, : len(before)] = before
      key = (stride, tuple(before))
      if key not in seen:
        seen[key] = np.asarray(model_logits(model, params, padded_L))[len(before) - 1]
      logits_V = seen[key][: model.vocab].astype(np.float64)
      expected = logits_V[row[t]] - np.log(np.sum(np.exp(logits_V - logits_V.max())))
      assert logp_L[t - 1] == pytest.approx(expected - logits_V.max(), abs=1e-4)


seen = {}


def model_logits(model, params, padded_L):
  import jax

  if 'forward' not in seen:
    seen['forward'] = jax.jit(lambda tokens: model.apply({'params': params}, tokens).y_BLD[0])
  return seen['forward'](padded_L)


@pytest.mark.parametrize(
  ('rows', 'stride', 'said'),
  [
    ([[1]], None, 'text of 1 token: the first token follows nothing'),
    ([[]], None, 'text of 0 tokens'),
    ([[1, 99]], None, 'token 99 is outside'),
    ([[1, 2]], 17, 'stride 17: expected 1 to the context of 16'),
    ([[1, 2]], 0, 'stride 0'),
  ],
)
def test_what_scoring_refuses(rows, stride, said):
  with pytest.raises(UserError, match=said):
    log_probabilities(*make('softmax'), rows, stride=stride)
