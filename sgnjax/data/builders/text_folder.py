"""A folder of text as a TFDS set: sub-folders are splits, a file is an example."""

import tensorflow_datasets as tfds


class TextFolder(tfds.core.GeneratorBasedBuilder):
  """The *.txt files of `<data_dir>/downloads/manual/text_folder/`, with their names.

  Each of its sub-folders is a split; without any, all files are 'train'.
  """

  VERSION = tfds.core.Version('1.0.0')
  RELEASE_NOTES = {'1.0.0': 'One example a file.'}
  MANUAL_DOWNLOAD_INSTRUCTIONS = (
    'Put text_folder/SPLIT/*.txt (or text_folder/*.txt, all of it train) into the manual folder.'
  )

  def needed(self) -> list[str]:
    """Names in the manual folder of what this is made from."""
    return ['text_folder']

  def _info(self):
    return tfds.core.DatasetInfo(
      builder=self,
      description='Texts of your own.',
      features=tfds.features.FeaturesDict(
        {'text': tfds.features.Text(), 'file': tfds.features.Text()}
      ),
      disable_shuffling=True,
    )

  def _split_generators(self, dl_manager):
    root = dl_manager.manual_dir / 'text_folder'
    splits = sorted(path for path in root.iterdir() if path.is_dir())
    if not splits:
      return {'train': self._generate_examples(root)}
    return {path.name: self._generate_examples(path) for path in splits}

  def _generate_examples(self, folder):
    for number, path in enumerate(sorted(folder.glob('*.txt'))):
      yield number, {'text': path.read_bytes(), 'file': path.name}
