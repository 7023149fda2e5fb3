"""The report of a run: one self-contained page, and its pictures as files."""

import json
from pathlib import Path
from statistics import median

from sgnjax import audit, config
from sgnjax.analysis import activations, answers, plots
from sgnjax.analysis.capture import WINDOWS, capture, pictures, windows
from sgnjax.analysis.history import history
from sgnjax.analysis.page import Picture, escape, image, section, table, whole
from sgnjax.data import pipeline
from sgnjax.decode.text import write
from sgnjax.errors import UserError
from sgnjax.machine import origin
from sgnjax.models import DECODERS, build, count, unpadded
from sgnjax.train.checkpoint import load_params
from sgnjax.train.log import STARTS, mark, read_records, write_atomically

NAMES = {'softmax': 'Softmax attention', 'sgn': 'SGN', 'fourier_qk': 'FourierQK', 'ega': 'EGA'}
NAMES |= {'chiar': 'CHIAR-Former', 'ega_fourier_qk': 'EGA with FourierQK', 'fnet': 'FNet'}
NAMES |= {'linear': 'Linear attention', 'performer': 'Performer', 'haar': 'Haar averages'}
NAMES |= {'uniform': 'Uniform attention', 'identity': 'No mixing'}


def report(workdir: str | Path) -> Path:
  """Writes `report.html` and `pictures/*.png` into the workdir; returns the page's path.

  The page needs no other file and no network: result against the entropy of single tokens, losses,
  what the layers of the best checkpoint do on validation text, the audit, sample text, throughput,
  parameters, config and versions. A run that sees the future has LEAKY at every number.

  The audit is the one in audit.json, or made here, of the config's small twin. What cannot be shown
  (text that has gone, a prompt with unknown characters) is said on the page. Raises UserError where
  the workdir holds no checkpoint.
  """
  workdir = Path(workdir)
  settings, params, tokenizer, step = load_params(workdir)
  records = read_records(workdir)
  audited = _audit(workdir, settings, tokenizer)
  leaky = audited['leaky'] or any(r.get('leaky') for r in records)
  model = build(settings, vocab=tokenizer.vocab_size)
  writes, encodes = settings.data.task == 'lm', settings.data.task not in DECODERS
  evaluations = [
    r for r in records if r['kind'] == 'evaluation' and r['split'] == settings.eval.split
  ]
  drawn, missing, origin = _pictures(settings, params, tokenizer, records, evaluations, leaky)
  folder = workdir / 'pictures'
  folder.mkdir(exist_ok=True)
  images = [image(picture, folder) for picture in drawn]
  mixers = dict.fromkeys(name.split('_')[0] if name.startswith('chiar') else name
                         for name, _ in model.layers())  # fmt: skip
  what = ' + '.join(NAMES.get(name, name) for name in mixers)
  total = count(model, params)
  m = settings.model
  title = f'{what}, {m.form} form{mark(leaky)}'
  layers = len(model.layers())
  said = f'{total:,} parameters in {layers} layers of width {m.width}, context {m.context} tokens.'
  parts = [
    f'<h1>{escape(title)}</h1>',
    f'<p>{escape(said)} Trained on {escape(origin)}.</p>',
    _banner(leaky),
    (_headline if writes else answers.headline)(evaluations, step, settings, leaky),
    section('Learning', images[0]),
    section('What the layers do', *images[1:], missing),
    section('What does it see?' if encodes else 'Does it see the future?', _audit_table(audited)),
    section('Text it writes', _sample(model, params, tokenizer, settings, leaky)) if writes else '',
    section('Speed and size', _speed(records, settings, leaky), _parameters(model, params)),
    section('How to get this again', _origin(workdir, settings)),
  ]
  path = workdir / 'report.html'
  write_atomically(path, whole(title, parts))
  return path


def _audit(workdir: Path, settings, tokenizer) -> dict:
  path = workdir / 'audit.json'
  if path.is_file():
    return json.loads(path.read_text(encoding='utf-8'))
  return audit.twin_report(settings, vocab=tokenizer.vocab_size).to_json()


def _pictures(settings, params, tokenizer, records, evaluations, leaky):
  """All pictures, the losses first; why some are missing, as HTML; where the text came from."""
  train = [r for r in records if r['kind'] == 'train']
  extra = {'unigram': evaluations[-1].get('unigram') if evaluations else None}
  if settings.data.task != 'lm' and evaluations:
    extra['unigram'], extra['guess'] = answers.guess(evaluations[-1])
    extra['unit'] = answers.loss_unit(evaluations[-1])
  losses = plots.loss_curves(
    ([r['step'] for r in train], [r['loss'] for r in train]),
    ([r['step'] for r in evaluations], [r['loss'] for r in evaluations]),
    **extra,
    leaky=leaky,
  )
  caption = (
    'Each training point is the mean over the steps since the one before. The dashed line is what '
    'knowing only how frequent each token is would give.'
  )
  if settings.data.task != 'lm':
    caption = caption.replace('how frequent each token is', 'frequencies or the mean')
  drawn, vocab = [Picture('losses', losses, caption)], tokenizer.vocab_size
  try:
    corpus = pipeline.load(settings)
    if corpus.tokenizer.to_json() != tokenizer.to_json():
      raise UserError(f'{corpus.source} has changed: its vocabulary is another one now')
  except UserError as error:
    gone = f'<p class="bad">No pictures of the layers: {escape(error)}</p>'
    return drawn, gone, f'data.name={settings.data.name}'
  if settings.model.image is not None:
    inputs, tokens_BL = answers.shown_images(settings, corpus)
    tokenizer = answers.PatchNumbers()
  else:
    split_N, length = corpus.splits[settings.eval.split], settings.model.context
    whole_rows = settings.data.task == 'recall'  # each begins anew
    inputs = tokens_BL = (
      split_N[: WINDOWS * length].reshape(-1, length) if whole_rows else windows(split_N, length)
    )
  model, debug = capture(settings, params, inputs, vocab=vocab)
  shown = pictures(model, debug, tokens_BL, tokenizer, leaky=leaky)
  pieces = [tokenizer.decode([t]) for t in tokens_BL[0].tolist()]
  alike = activations.pictures(debug, pieces, leaky=leaky)
  none = '' if shown else '<p>These layers have no gate, no filter and no route to show.</p>'
  return drawn + history(records, leaky=leaky) + shown + alike, none, corpus.source


def _banner(leaky: bool) -> str:
  if not leaky:
    return ''
  return (
    '<p class="leaky">LEAKY: this model sees tokens that it is asked to predict, or other '
    'examples. Its numbers cannot be compared with those of a language model.</p>'
  )


def _headline(evaluations: list[dict], step: int, settings, leaky: bool) -> str:
  """The result as tiles, and every evaluation as a table."""
  if not evaluations:
    return '<p class="bad">This run was stopped before its first evaluation.</p>'
  last = evaluations[-1]
  best = next((r for r in evaluations if r['step'] == step), last)
  if settings.eval.protocol == 'paper' and settings.eval.pick == 'last':
    best = last
  said = escape(mark(leaky))
  bits = f'{best["bits_per_byte"]:.3f}{said}'
  tiles = [
    (f'{best["loss"]:.3f}{said}', 'nats per token'),
    (_perplexity(best, leaky), 'perplexity'),
    (bits, 'bits per byte'),
    (f'{best["unigram"]:.3f}', 'nats per token from token frequencies alone'),
  ]
  boxes = ''.join(f'<div class="tile"><b>{value}</b>{escape(name)}</div>' for value, name in tiles)
  saved = 1 - best['loss'] / best['unigram'] if best['unigram'] else 0  # a text of one character
  how = 'the whole split in order' if settings.eval.protocol == 'full' else 'random batches'
  line = (
    f'On the {escape(settings.eval.split)} split ({how}, {best["tokens"]:,} tokens) after step '
    f'{best["step"]:,}: {abs(saved):.0%}{said} {"below" if saved >= 0 else "ABOVE"} what token '
    'frequencies alone give.'
  )
  rows = [
    (f'{r["step"]:,}', f'{r["loss"]:.4f}{said}', _perplexity(r, leaky),
     f'{r["bits_per_byte"]:.4f}{said}')
    for r in evaluations
  ]  # fmt: skip
  listed = table(rows, ('step', 'nats per token', 'perplexity', 'bits per byte'))
  every = f'<details><summary>All {len(rows)} evaluations</summary>{listed}</details>'
  return f'<div class="tiles">{boxes}</div>\n<p>{line}</p>\n{every}'


def _perplexity(record: dict, leaky: bool) -> str:
  value = record['perplexity']
  return 'beyond e^700' if value is None else f'{value:,.2f}{escape(mark(leaky))}'


def _audit_table(found: dict) -> str:
  rows = []
  for row in found['rows']:
    size = '-' if row['relative'] is None else f'{row["relative"]:.1e}' if row['relative'] else '0'
    note = f'LEAK {row["layer"]}' if row['fails'] and row['check'] != 'decoding' else row['note']
    cells = [row['check'], '' if row['position'] is None else row['position'], size]
    cells += [f'{row["limit"]:.0e}' if row['limit'] else '0', note]
    mark_up = '<span class="bad">{}</span>' if row['fails'] else '{}'
    rows.append([mark_up.format(escape(cell)) for cell in cells])
  kind = 'bad' if found['leaky'] or not found['decodes'] else 'good'
  listed = table(rows, ('replaced', 'from', 'change', 'limit', 'first layer, or note'))
  return (
    f'<p class="{kind}">{escape(found["verdict"])}.</p>\n'
    f'<p class="soft">{escape(found["model"])}, {found["batch"]} x {found["length"]} tokens, in '
    'float64. Tokens a prediction may not depend on were replaced; changes of the logits before '
    f'them, over the largest logit.</p>\n{listed}'
  )


def _sample(model, params, tokenizer, settings, leaky: bool) -> str:
  s = settings.sample
  try:
    written = write(model, params, tokenizer, [s.prompt], s.tokens, temperature=s.temperature,
                    top_k=s.top_k, seed=settings.seed)  # fmt: skip
  except UserError as error:
    return f'<p class="bad">No sample: {escape(error)}</p>'
  top = '' if s.top_k is None else f', top {s.top_k}'
  rate = written.rate
  return (
    f'<p class="soft">{s.tokens} tokens after the prompt {escape(ascii(s.prompt))}, temperature '
    f'{s.temperature:g}{top}, {rate:,.0f} tokens/s{mark(leaky)}</p>\n'
    f'<pre>{escape(s.prompt + written.texts[0])}</pre>'
  )


def _speed(records: list[dict], settings, leaky: bool) -> str:
  train = [r for r in records if r['kind'] == 'train']
  unit = next(
    (u for u in ('examples', 'masked_tokens', 'asked_tokens') if train and u in train[0]), 'tokens'
  )
  name = unit.replace('_', ' ')
  timed = [r for r in train if f'{unit}_per_second' in r]
  rows = [(f'{name} trained on', f'{sum(r[unit] for r in train):,}')]
  if timed:
    rate = median(r[f'{unit}_per_second'] for r in timed)
    seconds = median(r['step_seconds'] for r in timed)
    rows += [
      (f'training {name}/s', f'{rate:,.0f}{escape(mark(leaky))}'),
      ('a step', f'{1000 * seconds:,.1f}{escape(mark(leaky))} ms, batch {settings.train.batch}'),
    ]
  return table(rows) + '<p class="soft">Medians over the logged intervals.</p>'


def _parameters(model, params) -> str:
  shapes = [(escape(name), escape(' x '.join(map(str, shape)))) for name, shape in
            sorted(unpadded(model, params).items())]  # fmt: skip
  return f'<details><summary>Parameters by name</summary>{table(shapes)}</details>'


def _origin(workdir: Path, settings) -> str:
  """The config, and each start of the run with its code and machine."""
  rows = [
    ('run', workdir.resolve().name),
    ('config', f'{config.fingerprint(settings)}, seed {settings.seed}'),
  ]
  for start in read_records(workdir, STARTS):
    processes = '' if start['processes'] == 1 else f'{start["processes"]} processes; '
    begun = 'begun' if not start['step'] else f'went on from step {start["step"]:,}'
    rows.append((begun, f'{start["time"]} UTC; {processes}{origin(start)}'))
  keys = [(escape(k), escape(v)) for k, v in config.flat(settings).items()]
  listed = table([(escape(k), escape(v)) for k, v in rows])
  return f'{listed}\n<details><summary>Every key of the config</summary>{table(keys)}</details>'
