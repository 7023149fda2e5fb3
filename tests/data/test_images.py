"""Images: from files, from TFDS and from scikit-learn, cut to one shape, changed by row alone."""

import io
import json
import tarfile

import numpy as np
import pytest

from configs import base
from sgnjax.data import images, pipeline, prepared, rows
from sgnjax.errors import UserError


def config(name, path=None, **keys):
  c = base.get_config()
  c.train.batch, c.eval.batch = 5, 4
  c.data.name, c.data.task = name, 'classify'
  c.data.path = None if path is None else str(path)
  for key, value in keys.items():
    c.data[key] = value
  return c


def png(pixels):
  from PIL import Image

  out = io.BytesIO()
  Image.fromarray(pixels if pixels.shape[2] == 3 else pixels[..., 0]).save(out, 'PNG')
  return out.getvalue()


def pixels(count, *shape):
  return np.random.default_rng(0).integers(0, 256, (count, *shape), np.uint8)


def scaled(image, name):
  """Pixels as batches have them."""
  kind = images.SETS[name]
  return (image / 255 - np.array(kind.mean)) / np.array(kind.std)


def write_mnist(folder, split, count):
  x, y = pixels(count, 28, 28), np.arange(count, dtype=np.uint8) % 10
  header = np.array([2051, count, 28, 28], '>i4').tobytes()
  (folder / f'{split}-images-idx3-ubyte').write_bytes(header + x.tobytes())
  (folder / f'{split}-labels-idx1-ubyte').write_bytes(
    np.array([2049, count], '>i4').tobytes() + y.tobytes()
  )
  return x, y


def test_mnist_files(tmp_path):
  x, y = write_mnist(tmp_path, 'train', 30)
  found = pipeline.load(config('mnist', tmp_path))
  assert (found.classes, found.shape) == (10, (28, 28, 1))
  assert {split: len(pairs) for split, pairs in found.splits.items()} == {
    'train': 27,
    'validation': 3,
  }
  seen = [image[..., 0] for split in found.splits.values() for image, _ in split]
  assert sum(any((a == b).all() for b in seen) for a in x) == 30
  image, label = found.splits['validation'][0]
  (place,) = (i for i in range(30) if (x[i] == image[..., 0]).all())
  assert label == y[place]
  write_mnist(tmp_path, 't10k', 10)
  assert len(pipeline.load(config('mnist', tmp_path)).splits['test']) == 10
  for path in tmp_path.glob('train*'):
    path.unlink()
  alone = pipeline.load(config('mnist', tmp_path))
  assert 'test images alone' in alone.source
  assert len(alone.splits['train']) == 9


@pytest.mark.parametrize(('name', 'coarse'), [('cifar10', 0), ('cifar100', 1)])
def test_cifar_files(tmp_path, name, coarse):
  x = pixels(10, 32, 32, 3)
  rows = [bytes([7] * coarse) + bytes([i]) + x[i].transpose(2, 0, 1).tobytes() for i in range(10)]
  files = (
    {'train.bin': rows} if coarse else {'data_batch_1.bin': rows[:4], 'data_batch_2.bin': rows[4:]}
  )
  for file, part in files.items():
    (tmp_path / file).write_bytes(b''.join(part))
  found = pipeline.load(config(name, tmp_path))
  for image, label in found.splits['train']:
    np.testing.assert_array_equal(image, x[label])


def test_batches_order_and_evaluation(tmp_path):
  write_mnist(tmp_path, 'train', 60)
  c = config('mnist', tmp_path, validation=0.1)
  found = pipeline.load(c)
  iterator = pipeline.train_iterator(c, found)
  batches = [next(iterator) for _ in range(15)]
  assert batches[0]['image'].shape == (5, 28, 28, 1)
  assert batches[0]['image'].dtype == np.float32
  lowest, highest = (scaled(value, 'mnist') for value in (0, 255))
  assert lowest - 1e-5 < batches[0]['image'].min() < batches[0]['image'].max() < highest + 1e-5
  assert batches[0]['label'].dtype == np.int32
  resumed = pipeline.train_iterator(c, pipeline.load(c))
  resumed.set_state(json.loads(json.dumps({'next_index': 11})))
  for batch in batches[11:]:
    again = next(resumed)
    np.testing.assert_array_equal(batch['image'], again['image'])
    np.testing.assert_array_equal(batch['label'], again['label'])
  evaluated = list(pipeline.eval_windows(c, found, 'validation'))
  assert [batch['image'].shape[0] for batch in evaluated] == [4, 4]
  expected = [label for _, label in found.splits['validation']]
  assert np.concatenate([b['label'] for b in evaluated]).tolist() == [*expected, -1, -1]
  first = found.splits['validation'][0][0]
  np.testing.assert_allclose(evaluated[0]['image'][0], scaled(first, 'mnist'), atol=1e-5)


def test_an_image_is_changed_before_it_is_cut(tmp_path):
  write_mnist(tmp_path, 'train', 30)
  c = config('mnist', tmp_path)
  found = pipeline.load(c)

  def flip(example, generator):
    assert example['image'].dtype == np.uint8
    return example | {'image': example['image'][:, :: generator.choice([-1, 1])]}

  changed = next(pipeline.train_iterator(c, found, augment=flip))
  plain = next(pipeline.train_iterator(c, found))
  turned = [
    (a == b[:, ::-1]).all() and not (a == b).all()
    for a, b in zip(changed['image'], plain['image'], strict=True)
  ]
  assert 0 < sum(turned) < 5
  again = next(pipeline.train_iterator(c, found, augment=flip))
  np.testing.assert_array_equal(changed['image'], again['image'])


def write_tar(path, files):
  with tarfile.open(path, 'w') as archive:
    for name, content in files.items():
      info = tarfile.TarInfo(name)
      info.size = len(content)
      archive.addfile(info, io.BytesIO(content))


def test_archives_of_class_folders_and_sizes(tmp_path):
  path = tmp_path / 'images.tar'
  write_tar(path, {
    f'data/{split}/{kind}/{i}.png': png(np.full((20 + 8 * i, 30, 3), grey, np.uint8))
    for split, count in (('train', 4), ('test', 2))
    for kind, grey in (('dog', 200), ('cat', 50))
    for i in range(count)
  })  # fmt: skip
  c = config('cifar10', path, image_size=16, validation=0.5)
  found = pipeline.load(c)
  assert found.shape == (16, 16, 3)
  batch = next(pipeline.train_iterator(c, found))
  assert batch['image'].shape == (5, 16, 16, 3)
  # Classes in sorted order: cat, dog.
  grey = np.array([[50] * 3, [200] * 3])[batch['label']]
  np.testing.assert_allclose(batch['image'][:, 8, 8], scaled(grey, 'cifar10'), atol=1e-5)


def test_arrays_and_pictures_of_real_images(real_data):
  found = pipeline.load(config('cifar10', real_data / 'cifar10' / 'cifar10_tiny_400_100.npz'))
  assert {split: len(pairs) for split, pairs in found.splits.items()} == {
    'train': 360,
    'test': 100,
    'validation': 40,
  }
  assert {label for _, label in found.splits['train']} == set(range(10))
  mnist = pipeline.load(config('mnist', real_data / 'mnist'))
  assert {split: len(pairs) for split, pairs in mnist.splits.items()} == {
    'train': 9000,
    'validation': 1000,
  }
  assert {label for _, label in mnist.splits['validation']} == set(range(10))


def test_digits():
  pytest.importorskip('sklearn', reason='the package scikit-learn is not installed')
  found = pipeline.load(config('digits', validation=0.2))
  assert found.shape == (8, 8, 1)
  assert sum(map(len, found.splits.values())) == 1797
  assert {label for _, label in found.splits['validation']} == set(range(10))


def test_images_of_tfds_without_tensorflow(tmp_path):
  """TFDS's own builder reads what lies there, and images are decoded by Pillow."""
  import tensorflow_datasets as tfds

  real = prepared.builder('cifar10', str(tmp_path))
  x = pixels(12, 32, 32, 3)

  class Stand(tfds.core.GeneratorBasedBuilder, skip_registration=True):
    VERSION = tfds.core.Version(str(real.version))

    def _info(self):
      return tfds.core.DatasetInfo(builder=self, features=real.info.features)

    def _split_generators(self, dl_manager):
      return {split: self._generate_examples() for split in ('train', 'test')}

    def _generate_examples(self):
      for i in range(12):
        yield i, {'id': f'{i}', 'image': io.BytesIO(png(x[i])), 'label': i % 10}

  Stand.name = 'cifar10'
  Stand(data_dir=tmp_path, file_format='array_record').download_and_prepare()
  c = config('cifar10', dir=str(tmp_path))
  found = pipeline.load(c)
  assert found.shape == (32, 32, 3)
  (batch,) = rows.InOrder(images.Pictures(found.splits['test'], found.shape, found.kind), 12)
  order = [
    next(i for i in range(12) if np.allclose(scaled(x[i], 'cifar10'), image, atol=1e-5))
    for image in batch['image']
  ]
  assert sorted(order) == list(range(12))
  assert batch['label'].tolist() == [i % 10 for i in order]


@pytest.mark.parametrize(('name', 'keys', 'said'), [
  ('mnist', {'task': 'lm'}, r'set data\.task=classify'),
  ('mnist', {'path': 'nowhere'}, "'nowhere' does not exist"),
  ('imagenet2012', {'path': '.'}, 'not read from plain files'),
  ('mnist', {'validation': -0.5}, 'expected a share between 0 and 1'),
  ('mnist', {'slice': ':1%'}, r'data\.slice=:1% is of texts'),
  ('digits', {'path': '.'}, 'data.name=digits reads no file'),
  ('digits', {'image_size': 0}, r'data\.image_size=0: expected at least 1'),
])  # fmt: skip
def test_wrong_choices(name, keys, said):
  with pytest.raises(UserError, match=said):
    pipeline.load(config(name, **keys))


def test_arrays_of_images(tmp_path):
  """As Keras writes MNIST, without an axis of channels; and arrays of another set."""
  path = tmp_path / 'a.npz'

  def load(name, x, y):
    np.savez(path, x_train=x, y_train=y)
    return pipeline.load(config(name, path))

  x, y = pixels(20, 28, 28), np.arange(20) % 10
  found = load('mnist', x, y)
  assert found.shape == (28, 28, 1)
  assert found.splits['train'][0][0].shape == (28, 28, 1)
  with pytest.raises(UserError, match='expected uint8'):
    load('mnist', x / 255, y)
  with pytest.raises(UserError, match='has a label of 10, and 10 classes'):
    load('mnist', x, np.arange(20))
  with pytest.raises(UserError, match='cifar10 has 3 channels'):
    load('cifar10', x, y)


def test_broken_files(tmp_path):
  with pytest.raises(UserError, match=r'holds no cifar10: expected its binary files'):
    pipeline.load(config('cifar10', tmp_path))
  (tmp_path / 'a.npz').write_bytes(b'not one')
  with pytest.raises(UserError, match='cannot read cifar10'):
    pipeline.load(config('cifar10', tmp_path / 'a.npz'))
  for name, content, said in (
    ('a.txt', None, r'neither an \.npz file nor a tar'),
    ('a.tar', {'cat.png': b''}, "'cat.png' in it is not SPLIT/CLASS/NAME"),
    ('a.tar', {f'train/cat/{i}.png': b'none' for i in range(20)}, 'an image of 4 bytes is broken'),
  ):
    if content is None:
      (tmp_path / name).write_text('words')
    else:
      write_tar(tmp_path / name, content)
    with pytest.raises(UserError, match=said):
      pipeline.load(config('cifar10', tmp_path / name))
  write_mnist(tmp_path, 'train', 1)
  with pytest.raises(UserError, match='too few images'):
    pipeline.load(config('mnist', tmp_path))


@pytest.mark.parametrize('name', ['cifar10', 'mnist', 'imagenet2012'])
def test_images_that_are_not_there(tmp_path, name):
  with pytest.raises(UserError, match=f'{name} is not prepared'):
    pipeline.load(config(name, dir=str(tmp_path), image_size=8))
