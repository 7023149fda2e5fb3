"""Changed and mixed images: what each change does, and that seed, step and row decide all of it."""

import json

import numpy as np
import pytest
from PIL import Image

from configs import base
from sgnjax.data import augment, images, pipeline
from sgnjax.data.image_files import Pairs
from sgnjax.errors import UserError
from tests.data.batches import assert_same, take


def config(name, **keys):
  c = base.get_config()
  c.train.batch, c.eval.batch = 6, 4
  c.data.name, c.data.task = name, 'classify'
  for key, value in keys.items():
    c.data[key] = value
  return c


def found(name, count=32, shape=None, size=None):
  """A set of smooth random images, each different; labels 0, 1, ... in turn."""
  kind = images.SETS[name]
  shape = shape or (16, 16, len(kind.mean))
  small = np.random.default_rng(0).integers(0, 256, (count, 4, 4, shape[2]), np.uint8)
  whole = [images.fit(image, shape) for image in small]
  pairs = Pairs(whole, np.arange(count, dtype=np.int32) % kind.classes)
  size = shape if size is None else (size, size, shape[2])
  return images.Images({'train': pairs, 'validation': pairs}, kind, size, 'random images', name)


def bytes_of(batch, kind):
  return np.round((batch['image'] * np.array(kind.std) + kind.mean) * 255).astype(int)


def test_a_moved_crop_is_the_image_elsewhere_and_black_around_it():
  data = found('mnist')
  change = augment.of(config('mnist', augment='light'), data)
  image = np.maximum(data.splits['train'][0][0], 1)  # black is around it alone
  padded = np.pad(image, ((2, 2), (2, 2), (0, 0)))
  places = set()
  for seed in range(200):
    changed = change({'image': image, 'label': 7}, np.random.default_rng(seed))
    assert changed['label'] == 7
    places |= {
      (i, j)
      for i in range(5)
      for j in range(5)
      if (padded[i : i + 16, j : j + 16] == changed['image']).all()
    }
  assert len(places) == 25  # of 16 pixels, two each way, and none is mirrored


def test_half_the_images_are_mirrored_where_classes_survive_it():
  data = found('cifar10')
  image = data.splits['train'][0][0]
  change = augment.of(config('cifar10', augment='light'), data)
  padded = [np.pad(a, ((2, 2), (2, 2), (0, 0))) for a in (image, image[:, ::-1])]

  def mirrored(changed):
    cuts = [[p[i : i + 16, j : j + 16] for i in range(5) for j in range(5)] for p in padded]
    seen = [any((cut == changed).all() for cut in own) for own in cuts]
    assert sum(seen) == 1
    return seen[1]

  count = sum(
    mirrored(change({'image': image}, np.random.default_rng(seed))['image']) for seed in range(200)
  )
  assert 70 < count < 130


@pytest.mark.parametrize('shape', [(60, 90, 3), (8, 400, 3), (3, 3, 3)])
def test_a_zoomed_crop_is_a_part_of_a_photograph(shape):
  """Of a ramp in both directions: increasing still, over a share of the area between the bounds."""
  rows, columns = np.indices(shape[:2])
  ramps = np.stack([rows * 255 / shape[0], columns * 255 / shape[1], 0 * rows], -1)
  data = found('imagenet2012', shape=shape, size=24)
  change = augment.of(config('imagenet2012', image_size=24, augment='light'), data)
  shares = []
  for seed in range(100):
    image = change({'image': ramps.astype(np.uint8)}, np.random.default_rng(seed))['image']
    assert image.shape == (24, 24, 3)
    down, across = (image[..., c].astype(float) for c in (0, 1))
    down, across = down[-1, 0] - down[0, 0], across[0, -1] - across[0, 0]
    shares.append(abs(down * across) / 255**2)
  if shape == (60, 90, 3):
    assert min(shares) < 0.2
    assert max(shares) > 0.6
  assert max(shares) <= 1


def test_colours_change_and_nothing_else():
  """Grey has no hue and no saturation; crop and mirror are those of the same draws without."""
  data = found('cifar10')
  light, papers = (augment.of(config('cifar10', augment=a), data) for a in ('light', 'papers'))
  image, greys = data.splits['train'][1][0], []
  for seed in range(60):
    plain, coloured = (
      change({'image': image}, np.random.default_rng(seed))['image'] for change in (light, papers)
    )
    assert (plain != coloured).any()
    outside = (plain == 0).all(
      -1
    )  # what the crop left black: brightness and contrast leave it grey
    assert (np.ptp(coloured[outside].astype(int), axis=-1) <= 1).all()
    grey = papers({'image': np.full((16, 16, 3), 100, np.uint8)}, np.random.default_rng(seed))
    middle = grey['image'][8, 8].astype(int)
    assert np.ptp(middle) <= 1
    greys.append(middle[0])
  assert 100 * 0.6 - 20 < min(greys) < 75
  assert 125 < max(greys) < 100 * 1.4 + 20


def test_hues_turn():
  red = Image.fromarray(np.full((2, 2, 3), (200, 0, 0), np.uint8))
  green = np.asarray(augment.turn_hues(red, 1 / 3)).astype(int)
  assert np.abs(green - [0, 200, 0]).max() < 8
  np.testing.assert_array_equal(augment.turn_hues(red, 0.0), red)


@pytest.mark.parametrize('name', ['mnist', 'cifar10'])
def test_rows_are_the_same_whoever_reads_them_and_wherever_a_run_resumes(name):
  """In the middle of an epoch, over its end, by threads and without, in one process or in three."""
  c, data = config(name, augment='papers', mixup=0.4), found(name)  # 32 images, six a step
  straight = take(pipeline.train_iterator(c, data), 14)
  assert not (straight[0]['image'] == straight[1]['image']).all()
  for at in (0, 3, 5, 11):
    resumed = pipeline.train_iterator(c, found(name))
    resumed.set_state(json.loads(json.dumps({'next_index': at})))
    assert_same(take(resumed, 3), straight[at : at + 3])
  c.data.threads = 0
  assert_same(take(pipeline.train_iterator(c, data), 6), straight[:6])
  for rows in (slice(0, 2), slice(2, 4), slice(4, 6), slice(5, 6)):
    part = take(pipeline.train_iterator(c, data, rows), 6)
    assert_same(part, [{k: v[rows] for k, v in batch.items()} for batch in straight[:6]])
  c.seed = 1
  assert (take(pipeline.train_iterator(c, data), 1)[0]['image'] != straight[0]['image']).any()


@pytest.mark.slow
def test_workers_go_on_where_a_thread_was():
  c, data = config('cifar10', augment='papers', mixup=0.4), found('cifar10')
  straight = take(pipeline.train_iterator(c, data), 9)
  c.data.workers = 2
  resumed = pipeline.train_iterator(c, data)
  resumed.set_state({'next_index': 4})
  assert_same(take(resumed, 5), straight[4:])
  resumed.close()


def test_mixed_rows_lie_between_a_row_and_the_next():
  data = found('cifar10')
  plain = take(pipeline.train_iterator(config('cifar10'), data), 40)
  mixed = take(pipeline.train_iterator(config('cifar10', mixup=0.5), data), 40)
  weights = []
  for one, both in zip(plain, mixed, strict=True):
    assert both['label'].shape == (6, 10)
    assert both['label'].dtype == both['image'].dtype == np.float32
    np.testing.assert_allclose(both['label'].sum(1), 1, atol=1e-6)
    next_image, next_label = (np.roll(one[key], -1, 0) for key in ('image', 'label'))
    for i in range(6):
      if one['label'][i] == next_label[i]:
        continue
      w = both['label'][i, one['label'][i]]
      weights.append(w)
      between = w * one['image'][i] + (1 - w) * next_image[i]
      np.testing.assert_allclose(both['image'][i], between, atol=1e-5)
  assert len(weights) > 150
  assert len(np.unique(weights)) == len(weights)
  assert 0.4 < np.mean(weights) < 0.6
  assert 0.25 < np.std(weights) < 0.45  # Beta(0.5, 0.5): 0.354


def test_evaluation_and_its_labels_are_neither_changed_nor_mixed():
  data = found('cifar10', 8)
  plain, changed = (
    config('cifar10', augment=a, mixup=m) for a, m in (('none', 0.0), ('papers', 1.0))
  )
  for read in (
    lambda c: list(pipeline.eval_windows(c, data, 'validation')),
    lambda c: list(pipeline.random_batches(c, data, 'validation', 2, 0)),
  ):
    assert_same(read(plain), read(changed))
    assert read(changed)[0]['label'].dtype == np.int32


def test_pixels_of_a_set_have_mean_0_and_deviation_1():
  pytest.importorskip('sklearn', reason='the package scikit-learn is not installed')
  data = pipeline.load(config('digits'))
  whole = [
    batch['image'][batch['label'] >= 0]
    for split in data.splits
    for batch in pipeline.eval_windows(config('digits'), data, split)
  ]
  pixels = np.concatenate(whole)
  assert len(pixels) == 1797
  assert abs(pixels.mean()) < 1e-3
  assert abs(pixels.std() - 1) < 1e-3


@pytest.mark.parametrize(('name', 'path'), [
  ('mnist', 'mnist'), ('cifar10', 'cifar10/cifar10_test_jpeg.tar.xz'),
])  # fmt: skip
def test_constants_are_those_of_real_images(name, path, real_data):
  """Within 0.012 of 10,000 test images; the constants are of the training images."""
  data = pipeline.load(config(name, path=str(real_data / path), validation=0.5))
  kind = images.SETS[name]
  rows = images.Pictures(data.splits['train'], data.shape, kind)
  image = rows.take(np.arange(0, len(rows), 5))['image']
  np.testing.assert_allclose(image.mean((0, 1, 2)) * kind.std, 0, atol=0.012)
  np.testing.assert_allclose(image.std((0, 1, 2)) * kind.std, kind.std, atol=0.012)


@pytest.mark.parametrize(('name', 'keys', 'said'), [
  ('cifar10', {'augment': 'lite'}, "data.augment 'lite' is not known; did you mean 'light'"),
  ('embedded', {'augment': 'light'}, r'data\.augment=light is of images, and data\.name=embedded'),
  ('imdb_reviews', {'mixup': 0.2}, r'data\.mixup=0\.2 is of images, .* set data\.mixup=0\.0'),
  ('cifar10', {'mixup': -1.0}, r'data\.mixup=-1\.0: expected 0 \(none\) or more'),
  ('cifar10', {'mixup': float('nan')}, r'data\.mixup=nan'),
])  # fmt: skip
def test_wrong_choices(name, keys, said):
  c = config(name, **keys)
  with pytest.raises(UserError, match=said):
    pipeline.load(c)


def test_a_batch_of_one_has_nothing_to_mix():
  c = config('cifar10', mixup=0.2)
  c.train.batch = 1
  with pytest.raises(UserError, match='mixes rows of a batch'):
    pipeline.load(c)
