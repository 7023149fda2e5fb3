"""TFDS builders: prepared without TensorFlow or network, read back whole, refused in time."""

import hashlib
import io
import itertools
import tarfile
import threading
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest

from configs import base
from sgnjax.data import listops, pipeline, prepared, sources
from sgnjax.data.builders.list_ops import ListOps
from sgnjax.data.builders.ptb import Ptb
from sgnjax.data.builders.wikitext import Wikitext2, articles
from sgnjax.errors import UserError

PARTS = {'train': 'train', 'validation': 'valid', 'test': 'test'}


def config(name, folder, **keys):
  c = base.get_config()
  c.model.context = 8
  c.data.name, c.data.dir = name, str(folder)
  for key, value in keys.items():
    c.data[key] = value
  return c


def manual(folder) -> Path:
  path = folder / 'downloads' / 'manual'
  path.mkdir(parents=True, exist_ok=True)
  return path


@pytest.fixture
def no_network(monkeypatch):
  def tried(*_, **__):
    raise AssertionError('a network was tried')

  monkeypatch.setattr('socket.getaddrinfo', tried)
  monkeypatch.setattr('socket.socket.connect', tried)


def put(monkeypatch, builder, files: dict[str, bytes], folder):
  """Writes files into the manual folder, and has the builder expect them."""
  from tensorflow_datasets.core.download.checksums import UrlInfo

  infos = {}
  for url, info in builder.url_infos.items():
    content = files[info.filename]
    (manual(folder) / info.filename).write_bytes(content)
    infos[url] = UrlInfo(len(content), hashlib.sha256(content).hexdigest(), info.filename)
  monkeypatch.setattr(builder, 'url_infos', infos)


def texts(source):
  return {split: list(found.texts()) for split, found in source.splits.items()}


ARTICLES = [' \n = One = \n \n a b c \n = = Part = = \n x = 3 \n', ' \n = Two = \n \n d e \n']


def wikitext_zip(path, folder, end):
  with zipfile.ZipFile(path, 'w') as archive:
    for part in PARTS.values():
      archive.writestr(f'{folder}/wiki.{part}.{end}', ''.join(ARTICLES) * 3 + ' \n')
  return path.read_bytes()


@pytest.mark.usefixtures('no_network')
@pytest.mark.parametrize(('name', 'folder', 'end'), [
  ('wikitext2', 'wikitext-2', 'tokens'), ('wikitext2/raw', 'wikitext-2-raw', 'raw'),
])  # fmt: skip
def test_wikitext_from_its_archive(tmp_path, monkeypatch, name, folder, end):
  files = {
    f'{f}-v1.zip': wikitext_zip(tmp_path / f'{f}.zip', f, e)
    for f, e in (('wikitext-2', 'tokens'), ('wikitext-2-raw', 'raw'))
  }
  put(monkeypatch, Wikitext2, files, tmp_path)
  source = sources.load(config(name, tmp_path))
  whole = ARTICLES * 3
  whole[-1] += ' \n'
  assert texts(source) == dict.fromkeys(PARTS, whole)
  assert 'wikitext2/' in source.origin
  plain = tmp_path / 'plain'
  plain.mkdir()
  for part in PARTS.values():
    (plain / f'wiki.{part}.{end}').write_text(''.join(ARTICLES) * 3 + ' \n')
  assert texts(sources.load(config(name, tmp_path, path=str(plain)))) == texts(source)


def test_articles_are_the_whole_file():
  lines = ' \n = A = \n \n b \n \n = 2 = \n c \n \n = = D = = \n \n = E = \n \n f \n'
  found = list(articles(lines.splitlines(keepends=True)))
  assert ''.join(found) == lines
  assert [text.split()[1] for text in found] == ['A', 'E']  # `= 2 =` has no blank line below it
  assert list(articles([])) == []
  assert list(articles(['no title\n'])) == ['no title\n']


@pytest.mark.usefixtures('no_network')
def test_ptb_words_and_characters(tmp_path, monkeypatch):
  content = b' the <unk> N \n no it was \n'
  put(monkeypatch, Ptb, {f'ptb.{part}.txt': content for part in PARTS.values()}, tmp_path)
  assert texts(sources.load(config('ptb', tmp_path)))['train'] == [content.decode()]
  characters = texts(sources.load(config('ptb/char', tmp_path)))
  assert characters == {split: ['the <unk> N\nno it was\n'] for split in PARTS}
  as_bytes = sources.load(config('ptb', tmp_path, tokenizer='byte'))
  assert texts(as_bytes)['test'] == [content]


@pytest.mark.usefixtures('no_network')
def test_a_wrong_file_is_refused(tmp_path):
  for part in PARTS.values():
    (manual(tmp_path) / f'ptb.{part}.txt').write_text('something else')
  with pytest.raises(UserError, match=r'ptb\.train\.txt: 5,101,618 bytes of SHA-256 fcea919f6cf8'):
    sources.load(config('ptb', tmp_path))


def test_ptb_checksums_are_of_the_files(real_data):
  for info in Ptb.url_infos.values():
    content = (real_data / 'ptb' / info.filename).read_bytes()
    assert len(content) == info.size
    assert hashlib.sha256(content).hexdigest() == info.checksum


def test_wikitext_has_sixty_articles(real_data):
  for part in ('valid', 'test'):
    text = (real_data / 'wikitext-2' / f'{part}.txt').read_text(encoding='utf-8')
    found = list(articles(io.StringIO(text, newline='\n')))
    assert len(found) == 60
    assert ''.join(found) == text


@pytest.mark.usefixtures('no_network')
def test_a_folder_of_text(tmp_path, monkeypatch):
  root = manual(tmp_path) / 'text_folder'
  for split in ('train', 'validation'):
    (root / split).mkdir(parents=True)
    for name in 'ba':
      (root / split / f'{name}.txt').write_text(f'{split} {name} ' * 9)
  source = sources.load(config('text_folder', tmp_path))
  assert texts(source)['train'] == ['train a ' * 9, 'train b ' * 9]
  assert source.splits['train'].separate


@pytest.mark.usefixtures('no_network')
def test_list_ops_is_generated(tmp_path, monkeypatch):
  monkeypatch.setattr(listops, 'SIZES', {'train': 12, 'validation': 5, 'test': 5})
  c = config('list_ops', tmp_path, tokenizer='word', task='classify')
  corpus = pipeline.load(c)
  expected = list(itertools.islice(listops.generate(), 22))
  assert corpus.classes == 10
  assert {split: len(found) for split, found in corpus.labels.items()} == listops.SIZES
  assert np.concatenate(list(corpus.labels.values())).tolist() == [value for _, value in expected]
  assert corpus.labels['train'].dtype == np.int32
  # 15 symbols, and <unk> and <eos>, which the word tokenizer always has.
  assert corpus.tokenizer.vocab_size == 17
  first = corpus.splits['train'][: corpus.ends['train'][0]]
  assert corpus.tokenizer.decode(first).strip() == expected[0][0]


def value_of(text: str) -> int:
  """The value of an example's symbols, from its text alone."""
  stack: list[tuple[str, list[int]]] = [('', [])]
  for symbol in text.split():
    if symbol in listops.OPERATORS:
      stack.append((symbol, []))
    elif symbol == listops.CLOSE:
      operator, arguments = stack.pop()
      stack[-1][1].append(listops.evaluate(operator, arguments))
    else:
      stack[-1][1].append(int(symbol))
  return stack[0][1][0]


def test_list_ops_distribution_and_values():
  found = list(itertools.islice(listops.generate(3), 300))
  assert found == list(itertools.islice(listops.generate(3), 300))
  assert len({text for text, _ in found}) == 300
  lengths, children = [], []
  for text, value in found:
    assert value_of(text) == value
    words = text.split()
    lengths.append(len(words))
    depth = deepest = 1
    for word in words:
      depth += word in listops.OPERATORS
      deepest = max(deepest, depth)
      depth -= word == listops.CLOSE
    assert deepest <= 10
    counts = [0]
    for word in words:
      counts[-1] += word != listops.CLOSE
      if word in listops.OPERATORS:
        counts.append(0)
      elif word == listops.CLOSE:
        children.append(counts.pop())
  assert 500 < min(lengths) < max(lengths) < 2000
  assert set(children) == set(range(2, 10))
  assert len({value for _, value in found}) == 10


@pytest.mark.parametrize(('text', 'value'), [
  ('[MIN 3 2 9 ]', 2), ('[MAX 3 [SM 9 9 8 ] ]', 6), ('[MED 1 2 ]', 1), ('[MED 9 1 4 ]', 4),
  ('[MED 1 4 6 9 ]', 5), ('[SM 5 5 ]', 0), ('7', 7),
])  # fmt: skip
def test_list_ops_operators(text, value):
  assert value_of(text) == value


@pytest.mark.usefixtures('no_network')
def test_released_list_ops(tmp_path):
  rows = 'Source\tTarget\n( ( ( [MAX 2 ) 9 ) ] )\t9\n( ( ( [SM 7 ) 5 ) ] )\t2\n'
  for part in ('train', 'val', 'test'):
    (manual(tmp_path) / f'basic_{part}.tsv').write_text(rows)
  by_tfds = sources.load(config('list_ops/released', tmp_path))
  plain = sources.load(config('list_ops', tmp_path, path=str(manual(tmp_path))))
  for source in (by_tfds, plain):
    assert list(source.splits['validation'].read()) == [('[MAX 2 9 ]', 9), ('[SM 7 5 ]', 2)]
    assert source.classes == 10
  assert ListOps(config='released', data_dir=tmp_path).needed() == [
    'basic_train.tsv',
    'basic_val.tsv',
    'basic_test.tsv',
  ]


@pytest.mark.usefixtures('no_network')
@pytest.mark.parametrize(('name', 'file'), [
  ('wikitext103', 'https://wikitext.smerity.com/wikitext-103-v1.zip'),
  ('wikitext103/raw', 'wikitext-103-raw-v1.zip'),
  ('ptb', 'ptb.train.txt'),
  ('imdb_reviews', 'aclImdb_v1.tar.gz'),
  ('glue/sst2', 'SST-2.zip'),
  ('lm1b', '1-billion-word'),
  ('c4', 'Apache Beam'),
  ('list_ops/released', 'basic_train.tsv'),
  ('text_folder', 'text_folder'),
])  # fmt: skip
def test_what_is_not_there_is_said_at_once(tmp_path, name, file):
  start = time.perf_counter()
  with pytest.raises(UserError) as error:
    sources.load(config(name, tmp_path))
  assert time.perf_counter() - start < 5
  said = str(error.value)
  assert file in said
  assert str(tmp_path) in said
  assert name == 'c4' or f'--job=prepare --config.data.name={name} ' in said
  assert said.count('\n') == 1


def test_preparing_without_a_network_gives_up_in_time(tmp_path, monkeypatch):
  given_up = threading.Event()

  def hangs(*_, **__):
    given_up.wait(60)
    raise OSError

  monkeypatch.setattr('socket.getaddrinfo', hangs)
  monkeypatch.setattr(prepared, 'PATIENCE', 0.2)
  monkeypatch.setattr('urllib.request.getproxies', dict)
  start = time.perf_counter()
  with pytest.raises(UserError, match=r'wikitext\.smerity\.com does not answer'):
    prepared.prepare('wikitext2', str(tmp_path))
  assert time.perf_counter() - start < 5
  given_up.set()


def test_builders_are_registered_by_name(tmp_path):
  import tensorflow_datasets as tfds

  import sgnjax.data.builders  # noqa: F401

  for name in ('wikitext2/raw', 'wikitext103', 'ptb/char', 'list_ops', 'text_folder'):
    builder = tfds.builder(name, data_dir=tmp_path)
    assert builder.info.full_name.startswith(name)
    assert builder.info.full_name.endswith('/1.0.0')
    if name != 'text_folder':
      assert builder.info.citation
      assert builder.info.as_proto.redistribution_info.license


def prepare_as(folder, name, version, features, rows):
  """Prepares examples under the name, config and version of one of TFDS's sets."""
  import tensorflow_datasets as tfds

  base_name, _, variant = name.partition('/')

  class Stand(tfds.core.GeneratorBasedBuilder, skip_registration=True):
    VERSION = tfds.core.Version(version)
    BUILDER_CONFIGS = [tfds.core.BuilderConfig(name=variant)] if variant else []

    def _info(self):
      return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))

    def _split_generators(self, dl_manager):
      return {split: self._generate_examples(found) for split, found in rows.items()}

    def _generate_examples(self, found):
      yield from enumerate(found)

  Stand.name = base_name
  Stand(data_dir=folder, file_format='array_record').download_and_prepare()


@pytest.mark.usefixtures('no_network')
@pytest.mark.parametrize(('name', 'splits', 'test', 'expected'), [
  ('imdb_reviews/plain_text', ['train', 'test'], 20, 'text 0'),
  ('glue/sst2', ['train', 'validation', 'test'], None, 'sentence 0'),
  ('glue/mnli', ['train', 'validation_matched', 'test_matched'], None,
   'premise 0\nhypothesis 0'),
  ('glue/stsb', ['train', 'validation', 'test'], None, 'sentence1 0\nsentence2 0'),
])  # fmt: skip
def test_sets_of_tfds_by_their_features(tmp_path, name, splits, test, expected):
  """TFDS's own builders read what lies there, without TensorFlow."""
  real = prepared.builder(name, str(tmp_path))

  def row(i):
    filled = {'label': (i % 5) / 2 if name == 'glue/stsb' else i % 2, 'idx': i}
    return {f: filled.get(f, f'{f} {i}') for f in real.info.features}

  rows = {split: [row(i) for i in range(20)] for split in splits}
  prepare_as(tmp_path, name, str(real.version), dict(real.info.features), rows)
  source = sources.load(config(name.removesuffix('/plain_text'), tmp_path))
  sizes = {split: len(list(found.read())) for split, found in source.splits.items()}
  if test:
    assert sizes == {'train': 18, 'validation': 2, 'test': test}
  else:
    assert sizes == {'train': 20, 'validation': 20}
  examples = dict(source.splits['train'].read())
  assert expected in examples
  if name == 'glue/stsb':
    assert source.classes is None
    assert set(examples.values()) == {0.0, 0.5, 1.0, 1.5, 2.0}
  else:
    assert source.classes == (3 if name == 'glue/mnli' else 2)
    assert set(examples.values()) == {0, 1}


def tar_of(files):
  out = io.BytesIO()
  with tarfile.open(fileobj=out, mode='w:gz') as archive:
    for name, content in files.items():
      info = tarfile.TarInfo(name)
      info.size = len(content)
      archive.addfile(info, io.BytesIO(content))
  return out.getvalue()


def zip_of(files):
  out = io.BytesIO()
  with zipfile.ZipFile(out, 'w') as archive:
    for name, content in files.items():
      archive.writestr(name, content)
  return out.getvalue()


ARCHIVES = {
  'imdb_reviews': tar_of({
    f'aclImdb/{split}/{kind}/{i}_1.txt': f'{kind} {i}'.encode()
    for split in ('train', 'test') for kind in ('neg', 'pos', 'unsup') for i in range(10)
  }),
  'glue/sst2': zip_of({
    f'SST-2/{split}.tsv': 'sentence\tlabel\n' + ''.join(f'pos {i}\t1\n' for i in range(18))
    for split in ('train', 'dev')
  } | {'SST-2/test.tsv': 'index\tsentence\n0\ta\n'}),
}  # fmt: skip


@pytest.mark.usefixtures('no_network')
@pytest.mark.parametrize('name', ARCHIVES)
def test_archives_of_tfds_are_prepared_without_tensorflow(tmp_path, monkeypatch, name):
  builder = prepared.builder(name, str(tmp_path))
  ((file, url),) = prepared.needed(builder).items()
  from tensorflow_datasets.core.download.checksums import UrlInfo

  content = ARCHIVES[name]
  (manual(tmp_path) / file).write_bytes(content)
  info = UrlInfo(len(content), hashlib.sha256(content).hexdigest(), file)
  monkeypatch.setattr(type(builder), 'url_infos', {url: info})
  source = sources.load(config(name, tmp_path))
  examples = list(source.splits['train'].read())
  assert len(examples) == 18
  assert all(label == text.startswith('pos') for text, label in examples)


@pytest.mark.usefixtures('no_network')
def test_a_set_whose_builder_needs_tensorflow_is_read_from_the_disk(tmp_path):
  import tensorflow_datasets as tfds

  with pytest.raises(UserError, match=r"sgnjax\[tensorflow\]'"):
    sources.load(config('super_glue/boolq', tmp_path))
  features = {f: tfds.features.Text() for f in ('question', 'passage')}
  features |= {'label': tfds.features.ClassLabel(num_classes=2)}
  rows = {s: [{'question': f'{s}?', 'passage': 'so', 'label': 1}] * 3 for s in PARTS}
  prepare_as(tmp_path, 'super_glue/boolq', '1.0.2', features, rows)
  source = sources.load(config('super_glue/boolq', tmp_path))
  assert list(source.splits['validation'].read()) == [('validation?\nso', 1)] * 3


@pytest.mark.usefixtures('no_network')
def test_a_slice_of_the_train_split(tmp_path, monkeypatch):
  monkeypatch.setattr(listops, 'SIZES', {'train': 10, 'validation': 2, 'test': 2})
  source = sources.load(config('list_ops', tmp_path, slice=':30%'))
  assert len(list(source.splits['train'].read())) == 3
  assert len(list(source.splits['validation'].read())) == 2
  with pytest.raises(UserError, match=r'data\.slice=few'):
    sources.load(config('list_ops', tmp_path, slice='few'))
