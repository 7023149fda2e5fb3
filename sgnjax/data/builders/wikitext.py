"""WikiText-2 and WikiText-103: an example is an article, in the order of the files."""

import io
import zipfile
from collections.abc import Iterable, Iterator

import tensorflow_datasets as tfds
from tensorflow_datasets.core.download.checksums import UrlInfo

HOME = 'https://wikitext.smerity.com/'
CITATION = """@inproceedings{merity2017pointer,
  title={Pointer Sentinel Mixture Models},
  author={Merity, Stephen and Xiong, Caiming and Bradbury, James and Socher, Richard},
  booktitle={International Conference on Learning Representations},
  year={2017}
}"""
PARTS = {'train': 'train', 'validation': 'valid', 'test': 'test'}


def articles(lines: Iterable[str]) -> Iterator[str]:
  """The articles of a WikiText file, one after another the whole of it.

  An article begins at a heading of the first level, ` = Title = ` between blank lines; what stands
  before the first belongs to it.
  """
  article: list[str] = []
  lines = iter(lines)
  before, line = '', next(lines, '')
  begun = False
  while line:
    after = next(lines, '')
    if not before.strip() and not after.strip() and _is_title(line.strip()):
      if begun:
        # The blank line above a heading goes with it.
        yield ''.join(article[:-1])
        article = article[-1:]
      begun = True
    article.append(line)
    before, line = line, after
  if article:
    yield ''.join(article)


def _is_title(line: str) -> bool:
  return (
    line.startswith('= ')
    and line.endswith(' =')
    and not line.startswith('= =')
    and not line.endswith('= =')
    and len(line) > 4
  )


class _WikiText(tfds.core.GeneratorBasedBuilder, skip_registration=True):
  """What both sizes share; a config is `tokens` (rare words are `<unk>`) or `raw`."""

  VERSION = tfds.core.Version('1.0.0')
  RELEASE_NOTES = {'1.0.0': 'One example an article.'}
  BUILDER_CONFIGS = [
    tfds.core.BuilderConfig(name='tokens', description='Words; rare ones are <unk>.'),
    tfds.core.BuilderConfig(name='raw', description='Before words were replaced by <unk>.'),
  ]
  stem: str

  def _info(self):
    return tfds.core.DatasetInfo(
      builder=self,
      description='Verified Good and Featured articles of the English Wikipedia.',
      features=tfds.features.FeaturesDict({'text': tfds.features.Text()}),
      homepage=HOME,
      citation=CITATION,
      license='Creative Commons Attribution-ShareAlike 3.0',
      disable_shuffling=True,
    )

  @property
  def _folder(self) -> str:
    return f'{self.stem}-raw' if self.builder_config.name == 'raw' else self.stem

  def needed(self) -> list[str]:
    """Addresses of what this config is made from."""
    return [f'{HOME}{self._folder}-v1.zip']

  def _split_generators(self, dl_manager):
    (url,) = self.needed()
    archive = dl_manager.download(url)
    end = 'raw' if self.builder_config.name == 'raw' else 'tokens'
    return {
      split: self._generate_examples(archive, f'{self._folder}/wiki.{part}.{end}')
      for split, part in PARTS.items()
    }

  def _generate_examples(self, archive, member):
    with zipfile.ZipFile(archive) as files, files.open(member) as file:
      # Lines end at LF alone: the text holds other characters that Python would end them at.
      lines = io.TextIOWrapper(file, encoding='utf-8', newline='\n')
      for number, article in enumerate(articles(lines)):
        yield number, {'text': article}


# SHA-256 as several public loaders state them; sizes and sums have not been verified by us.
class Wikitext2(_WikiText):
  """WikiText-2: 2,088,628 training words, 600 articles."""

  stem = 'wikitext-2'
  url_infos = {
    f'{HOME}wikitext-2-v1.zip': UrlInfo(
      4_475_746,
      '92675f1d63015c1c8b51f1656a52d5bdbc33aafa60cc47a218a66e7ee817488c',
      'wikitext-2-v1.zip',
    ),
    f'{HOME}wikitext-2-raw-v1.zip': UrlInfo(
      4_721_645,
      'ef7edb566e3e2b2d31b29c1fdb0c89a4cc683597484c3dc2517919c615435a11',
      'wikitext-2-raw-v1.zip',
    ),
  }


class Wikitext103(_WikiText):
  """WikiText-103: 103 million training words, 28,475 articles."""

  stem = 'wikitext-103'
  url_infos = {
    f'{HOME}wikitext-103-v1.zip': UrlInfo(
      190_229_076,
      '242ba0f20b329cfdf1ccc61e9e9e5b59becf189db7f7a81cd2a0e2fc31539590',
      'wikitext-103-v1.zip',
    ),
    f'{HOME}wikitext-103-raw-v1.zip': UrlInfo(
      191_984_949,
      '91c00ae287f0d699e18605c84afc9e45c192bc6b7797ff8837e5474655a33794',
      'wikitext-103-raw-v1.zip',
    ),
  }
