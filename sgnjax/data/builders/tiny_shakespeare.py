"""TFDS's `tiny_shakespeare`: its name, version, checksum and layout, without TensorFlow."""

import tensorflow_datasets as tfds
from tensorflow_datasets.core.download import checksums
from tensorflow_datasets.datasets.tiny_shakespeare import tiny_shakespeare_dataset_builder

PACKAGE = tfds.core.tfds_path('datasets/tiny_shakespeare')


class TinyShakespeare(tiny_shakespeare_dataset_builder.Builder, skip_registration=True):
  name = 'tiny_shakespeare'
  pkg_dir_path = PACKAGE
  url_infos = checksums.load_url_infos(PACKAGE / 'checksums.tsv')

  def _split_generators(self, dl_manager):
    (url,) = self.url_infos
    text = dl_manager.download(url).read_text(encoding='utf-8')
    a = int(0.9 * len(text))
    b = a + int(0.5 * (len(text) - a))
    parts = {'train': text[:a], 'validation': text[a:b], 'test': text[b:]}
    return {split: self._generate_examples(split, part) for split, part in parts.items()}
