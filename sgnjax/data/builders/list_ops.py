"""ListOps of the Long Range Arena: generated from a seed, or from the released files."""

import csv
import itertools

import tensorflow_datasets as tfds

from sgnjax.data import listops

CITATION = """@inproceedings{tay2021long,
  title={Long Range Arena: A Benchmark for Efficient Transformers},
  author={Tay, Yi and Dehghani, Mostafa and Abnar, Samira and Shen, Yikang and Bahri, Dara and
    Pham, Philip and Rao, Jinfeng and Yang, Liu and Ruder, Sebastian and Metzler, Donald},
  booktitle={International Conference on Learning Representations},
  year={2021}
}"""
RELEASED = {'train': 'basic_train.tsv', 'validation': 'basic_val.tsv', 'test': 'basic_test.tsv'}


def released(file):
  """Examples (symbols, value) of one of the released files, open as text."""
  rows = csv.DictReader(file, delimiter='\t')
  return ((listops.symbols(row['Source']), int(row['Target'])) for row in rows)


class ListOps(tfds.core.GeneratorBasedBuilder):
  """96,000 / 2,000 / 2,000 examples: the symbols of a nested list, and its value."""

  VERSION = tfds.core.Version('1.0.0')
  RELEASE_NOTES = {'1.0.0': 'Generated from seed 0, and the released files.'}
  BUILDER_CONFIGS = [
    tfds.core.BuilderConfig(name='generated', description='Of seed 0, some minutes.'),
    tfds.core.BuilderConfig(name='released', description="The benchmark's own files."),
  ]
  MANUAL_DOWNLOAD_INSTRUCTIONS = (
    'For the config `released`: basic_train.tsv, basic_val.tsv and basic_test.tsv of the folder '
    'listops-1000 in https://storage.googleapis.com/long-range-arena/lra_release.gz (7.7 GB). '
    'Their checksums are not known to us.'
  )

  def needed(self) -> list[str]:
    """Names in the manual folder of what this config is made from."""
    return [] if self.builder_config.name == 'generated' else list(RELEASED.values())

  def _info(self):
    return tfds.core.DatasetInfo(
      builder=self,
      description='Nested lists of digits under MIN, MAX, MED and SM, longer than 500 symbols.',
      features=tfds.features.FeaturesDict(
        {'text': tfds.features.Text(), 'label': tfds.features.ClassLabel(num_classes=10)}
      ),
      homepage='https://github.com/google-research/long-range-arena',
      citation=CITATION,
      license='Apache-2.0',
      disable_shuffling=True,
    )

  def _split_generators(self, dl_manager):
    if self.builder_config.name == 'generated':
      stream = listops.generate()
      # The splits are made in this order from one stream, so that no tree is in two.
      return {
        split: self._numbered(itertools.islice(stream, size))
        for split, size in listops.SIZES.items()
      }
    return {
      split: self._generate_examples(dl_manager.manual_dir / name)
      for split, name in RELEASED.items()
    }

  def _generate_examples(self, path):
    with path.open('r') as file:
      yield from self._numbered(released(file))

  def _numbered(self, examples):
    for number, (text, value) in enumerate(examples):
      yield number, {'text': text, 'label': value}
