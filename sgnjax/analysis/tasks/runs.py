"""Which runs there are: a config by name, sizes for two processor cores, and the models compared.

How long each took is on its page, `docs/results/tasks.md`. Paths are below the folder of real data.
"""

from dataclasses import dataclass

Overrides = dict[str, object]


@dataclass(frozen=True)
class Task:
  """A data set, and models that are trained on it under the same settings.

  name: of the workdirs. config: the file in configs/. data: keys whose values are paths below the
  folder of real data. sizes: further keys, the same for all models. models: by their name in the
  table, the keys that make each. kind: how a result is told, of `page.KINDS`. margin: how much
  better than the answer without a model each is to be, in the unit of the kind's first number.
  note: what a reader has to know.
  """

  name: str
  title: str
  config: str
  data: Overrides
  sizes: Overrides
  models: dict[str, Overrides]
  kind: str
  margin: float
  note: str = ''

  def workdir(self, model: str) -> str:
    """Name of the folder of a model's run."""
    return f'{self.name}-{"".join(c if c.isalnum() else "_" for c in model.lower())}'

  def flags(self, model: str, data: str) -> list[str]:
    """The command line's flags, with paths below `data`."""
    keys = {key: f'{data}/{path}' for key, path in self.data.items()}
    keys |= self.sizes | self.models[model]
    return [f'--config=configs/{self.config}.py', *(f'--config.{k}={v}' for k, v in keys.items())]


def _short(steps: int, **keys) -> Overrides:
  """A run of so many steps, evaluated at its end and saved on its way."""
  train = {'steps': steps, 'eval_every': steps, 'checkpoint_every': max(1, steps // 4)}
  keys = {key.replace('__', '.'): value for key, value in keys.items()}
  return {f'train.{key}': value for key, value in train.items()} | keys


SGN, SOFTMAX, FNET = ({'model.mixer': name} for name in ('sgn', 'softmax', 'fnet'))
# FNet's FFT runs over the whole row: padding is a token there, and no other model is given it so.
ENCODERS = {
  'SGN': SGN,
  'softmax attention': SOFTMAX,
  'FNet, padding read': FNET | {'data.mask_padding': False},
}
PUBLISHED = {'SGN, published DCT': SGN}
IMAGES = {
  key: found | {'model.form': 'bidirectional'}
  for key, found in (('softmax attention', SOFTMAX), ('FNet', FNET))
}
_READER = {'model__layers': 2, 'model__width': 64, 'model__heads': 2, 'optim__lr': 1e-3}

TASKS = (
  Task(
    name='ptb_characters',
    title='Penn Treebank by characters',
    config='ega_ptb',
    data={'data.path': 'ptb'},
    sizes=_short(
      800,
      train__batch=32,
      model__layers=4,
      model__width=128,
      model__heads=4,
      model__context=128,
      model__dropout=0.0,
      model__scan_unroll=4,
      optim__lr=1e-3,
      optim__warmup=50,
      eval__stride=128,
    ),
    models={
      'SGN, gated causal kernel': SGN,
      'softmax attention': SOFTMAX,
      'EGA-1, `query` statistics': {'model.mixer': 'ega'},
    },
    kind='text',
    margin=0.7,
    note='3.3 million characters, two thirds of an epoch.',
  ),
  Task(
    name='wikitext2',
    title="WikiText-2 in GPT-2's tokens",
    config='sgn_wikitext2',
    data={'data.path': 'wikitext-2', 'data.tokenizer_path': 'gpt2-bpe'},
    sizes=_short(
      600,
      train__batch=8,
      model__layers=2,
      model__width=64,
      model__heads=2,
      model__context=128,
      model__dropout=0.0,
      model__dtype='float32',
      data__stride=128,
      optim__lr=3e-3,
      optim__warmup=50,
      eval__stride=128,
      eval__batch=8,
    ),
    models={'SGN, gated causal kernel': SGN, 'softmax attention': SOFTMAX},
    kind='text',
    margin=0.3,
    note='0.6 million tokens, a quarter of an epoch: most of the work is the head of 50,257.',
  ),
  Task(
    name='masked_characters',
    title='TinyShakespeare by masked characters',
    config='fourier_qk_mlm',
    data={'data.path': 'tinyshakespeare/input.txt'},
    sizes=_short(
      500,
      train__batch=32,
      model__layers=4,
      model__width=128,
      model__heads=4,
      model__context=128,
      model__dropout=0.0,
      model__scan_unroll=4,
      optim__lr=1e-3,
      optim__warmup=50,
    ),
    models={
      'FourierQK, Gaussian, two-sided': {'model.mixer': 'fourier_qk'},
      'softmax attention': SOFTMAX,
      'SGN': SGN,
    },
    kind='masked',
    margin=0.2,
    note='15 % of the characters are asked for; the model sees both sides of them. The margin was '
    '0.3 for 800 steps, before the runs were cut to 500.',
  ),
  Task(
    name='digits',
    title="scikit-learn's digits",
    config='digits',
    data={},
    sizes=_short(3000),
    models={'SGN': SGN, 'softmax attention': SOFTMAX, 'FNet': FNET},
    kind='labels',
    margin=0.85,
    note='1,437 images for training, 360 for validation.',
  ),
  Task(
    name='mnist',
    title='MNIST, its 10,000 test images',
    config='digits',
    data={'data.path': 'mnist'},
    sizes=_short(
      800,
      data__name='mnist',
      data__validation=0.1,
      model__image='28,28,1',
      model__patch=4,
      model__context=49,
    ),
    models={'SGN': SGN, 'softmax attention': SOFTMAX, 'FNet': FNET},
    kind='labels',
    margin=0.6,
    note='Nine tenths of the test images for training, the last for validation: no MNIST number. '
    'The margin was 0.8 for 2,000 steps, before the runs were cut to 800.',
  ),
  Task(
    name='cifar10_tiny',
    title='CIFAR-10, 400 images',
    config='sgn_cifar10',
    data={'data.path': 'cifar10/cifar10_tiny_400_100.npz'},
    sizes=_short(
      200,
      train__batch=64,
      model__layers=4,
      model__width=128,
      model__heads=4,
      model__dtype='float32',
      optim__warmup=50,
      eval__split='test',
    ),
    models=PUBLISHED | IMAGES,
    kind='labels',
    margin=0.05,
    note='360 images for training and 100 of the test split: far too few for more than a sign.',
  ),
  Task(
    name='imdb',
    title='IMDB reviews',
    config='imdb',
    data={'data.path': 'imdb'},
    sizes=_short(600, **_READER),
    models=ENCODERS,
    kind='labels',
    margin=0.2,
    note='The first 256 words of a review; a tenth of the train split for validation.',
  ),
  Task(
    name='sst2',
    title='SST-2, sentences',
    config='imdb',
    data={'data.path': 'sst2'},
    sizes=_short(800, data__name='sst2', model__context=64, **_READER),
    models=ENCODERS,
    kind='labels',
    margin=0.15,
  ),
  Task(
    name='listops',
    title='ListOps',
    config='lra_listops',
    data={},
    sizes=_short(400, model__context=64, optim__warmup=50, **_READER | {'optim__lr': 2e-3}),
    models=ENCODERS,
    kind='labels',
    margin=0.05,
    note='The first 64 symbols of lists of 500 to 2,000: the outermost operator says most. Of 512 '
    'symbols, at a learning rate of 0.001, attention and FNet had learnt nothing after 250 steps '
    '(16.40 % both), SGN had (31.60 %).',
  ),
)
