"""Which runs there are: a config by name, sizes for two processor cores, and the models compared.

Each takes some four minutes there. Paths are below the folder of real data.
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


SOFTMAX, SGN = {'model.mixer': 'softmax'}, {'model.mixer': 'sgn'}

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
    ),
    models={'SGN, gated causal kernel': SGN, 'softmax attention': SOFTMAX},
    kind='text',
    margin=0.3,
    note='0.6 million tokens, a quarter of an epoch: most of the work is the head of 50,257.',
  ),
)
