"""Tests of lib.io.cifar."""

import gzip
import io
import os
import pathlib
import pickle
import tarfile
import tempfile

import numpy as np
from absl.testing import absltest, parameterized
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.io import cifar

BATCHES = [f'data_batch_{i}' for i in range(1, 6)] + ['test_batch']
SIZES = [2, 1, 3, 1, 2, 2]
ROWS = np.random.default_rng(0).integers(0, 256, (sum(SIZES), 3072), np.uint8)
LABELS = [9, 0, 3, 1, 4, 1, 5, 9, 2, 6, 5]


class _Python2Pickler(pickle._Pickler):
  """Writes texts and bytes as Python 2 did, which had one type for both."""

  dispatch = pickle._Pickler.dispatch.copy()

  def _save_string(self, value):
    raw = value.encode() if isinstance(value, str) else value
    short = len(raw) < 256
    self.write((b'U' if short else b'T') + len(raw).to_bytes(1 if short else 4, 'little') + raw)
    self.memoize(value)

  dispatch[bytes] = dispatch[str] = _save_string


def _python2(value) -> bytes:
  stream = io.BytesIO()
  _Python2Pickler(stream, 2).dump(value)
  return stream.getvalue().replace(b'cnumpy._core.', b'cnumpy.core.')


def _batch(rows, labels):
  names = [f'camion_s_00{i:04}.png' for i in range(len(labels))]
  batch = {'batch_label': 'training batch 1 of 5', 'labels': labels, 'data': rows}
  return batch | {'filenames': names}


def _published(binary: bool) -> dict[str, bytes]:
  """Files of a version by their names."""
  files, start = {}, 0
  for name, size in zip(BATCHES, SIZES, strict=True):
    rows, labels = ROWS[start : start + size], LABELS[start : start + size]
    if binary:
      records = [bytes([label]) + row.tobytes() for row, label in zip(rows, labels, strict=True)]
      files[f'{name}.bin'] = b''.join(records)
    else:
      files[name] = _python2(_batch(rows, labels))
    start += size
  return files


def _tar(files: dict[str, bytes], folder: str = 'cifar-10') -> bytes:
  stream = io.BytesIO()
  with tarfile.open(fileobj=stream, mode='w', format=tarfile.GNU_FORMAT) as archive:
    directory = tarfile.TarInfo(folder)
    directory.type = tarfile.DIRTYPE
    archive.addfile(directory)
    for name, content in ({'batches.meta': b'x' * 700} | files).items():
      member = tarfile.TarInfo(f'{folder}/{name}')
      member.size = len(content)
      archive.addfile(member, io.BytesIO(content))
  return stream.getvalue()


class _Evil:
  def __init__(self, path):
    self.path = path

  def __reduce__(self):
    return os.system, (f'touch {self.path}',)


class Cifar10Test(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    self.path = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
    self.archive = self.path / 'cifar-10.tar.gz'

  def refused(self, content: bytes, message: str):
    """Asserts that a test batch of the Python version is refused."""
    (self.path / 'test_batch').write_bytes(content)
    with self.assertRaisesRegex(ValueError, rf'/test_batch: .*{message}'):
      cifar.cifar10(self.path, train=False)

  @parameterized.product(binary=[True, False], packed=[True, False])
  def test_all_versions_hold_the_same_images(self, binary, packed):
    files = _published(binary)
    if packed:
      self.archive.write_bytes(gzip.compress(_tar(files)))
    for name, content in files.items():
      if not packed:
        (self.path / name).write_bytes(content)
    for train, part in ((True, slice(0, -2)), (False, slice(-2, None))):
      read = cifar.cifar10(self.archive if packed else self.path, train)
      n, y, x, c = np.indices(read.pixels.shape)
      np.testing.assert_array_equal(read.pixels, ROWS[part][n, 1024 * c + 32 * y + x])
      np.testing.assert_array_equal(read.labels, LABELS[part])
      self.assertEqual((read.pixels.dtype, read.labels.dtype), (np.uint8, np.int32))
      self.assertTrue(read.pixels.flags.writeable)
      self.assertTrue(read.pixels.flags.c_contiguous)

  def test_pickle_reads_the_same_from_these_files(self):
    content = _python2(_batch(ROWS[:2], LABELS[:2]))
    for opcode in (b'U', b'T', b'cnumpy.core.multiarray\n_reconstruct\n', b'}q', b'(K', b'R', b'b'):
      self.assertIn(opcode, content)
    modern = content.replace(b'cnumpy.core.', b'cnumpy._core.')
    known = pickle.loads(modern, encoding='bytes')  # made above
    np.testing.assert_array_equal(known[b'data'], ROWS[:2])
    for variant in (content, modern, pickle.dumps(_batch(ROWS[:2], LABELS[:2]), 3)):
      (self.path / 'test_batch').write_bytes(variant)
      read = cifar.cifar10(self.path, train=False)
      np.testing.assert_array_equal(read.labels, known[b'labels'])
      planes = read.pixels.transpose(0, 3, 1, 2).reshape(2, 3072)
      np.testing.assert_array_equal(planes, known[b'data'])

  def test_order_in_memory_makes_no_difference(self):
    content = _python2(_batch(np.asfortranarray(ROWS), LABELS))
    self.assertNotIn(ROWS.tobytes(), content)
    (self.path / 'test_batch').write_bytes(content)
    read = cifar.cifar10(self.path, train=False)
    np.testing.assert_array_equal(read.pixels[..., 1].reshape(-1, 1024), ROWS[:, 1024:2048])

  def test_many_labels_come_in_several_lots(self):
    count = 1500  # lists are pickled a thousand at a time
    content = _python2(_batch(np.zeros((count, 3072), np.uint8), [i % 10 for i in range(count)]))
    (self.path / 'test_batch').write_bytes(content)
    np.testing.assert_array_equal(
      cifar.cifar10(self.path, train=False).labels, np.arange(count) % 10
    )

  @parameterized.product(protocol=[*range(pickle.HIGHEST_PROTOCOL + 1)], inside=[True, False])
  def test_code_is_not_run(self, protocol, inside):
    marker = self.path / 'marker'
    evil = _Evil(marker)
    content = pickle.dumps(_batch(ROWS, LABELS) | {'more': evil} if inside else evil, protocol)
    names = 'posix system' if protocol in (2, 3) and not inside else ''
    self.refused(content, f'pickle near byte .*{names}')
    self.assertFalse(marker.exists())
    self.assertIn(b'system', content)

  @parameterized.parameters(
    (b'', 'near byte 0'),
    (b'\x80\x02}', 'near byte 2: '),
    (b'\x80\x02cnumpy\nload\n.', 'near byte 2: names'),
    (b'}U\x01aNsU\x01aNs.', "near byte 10: key 'a' is given twice"),
    (b'K\x01\x85.', 'pickles a tuple, expected a dict'),
    (b']' + b']' * 20_000 + b'a' * 20_000 + b'.', 'nested deeper'),
  )
  def test_malformed_pickles_are_refused(self, content, message):
    self.refused(content, message)

  @parameterized.parameters(
    ({'data': None}, "'data' is no array"),
    ({'data': ROWS[:, :3071]}, "'data' has shape"),
    ({'data': ROWS[:0], 'labels': []}, "'data' has shape"),
    ({'data': ROWS.reshape(-1, 3, 1024)}, "'data' has shape"),
    ({'data': ROWS[0, 0]}, "'data' is no array"),
    ({'data': ROWS.astype(np.int16)}, "'data' is of int16, expected uint8"),
    ({'labels': LABELS[1:]}, "'labels' is no list of 11"),
    ({'labels': tuple(LABELS)}, "'labels' is no list of 11"),
    ({'labels': [10, *LABELS[1:]]}, "'labels' .* at 0"),
    ({'labels': [*LABELS[1:], -1]}, "'labels' .* at 10"),
    ({'labels': [*LABELS[1:], True]}, "'labels' .* at 10"),
    ({'labels': [*LABELS[1:], 'cat']}, "'labels' .* at 10"),
    ({'labels': [*LABELS[1:], []]}, "'labels' .* at 10"),
  )
  def test_other_data_are_refused(self, changes, message):
    self.refused(_python2(_batch(ROWS, LABELS) | changes), message)

  @settings(max_examples=100, deadline=None)
  @given(st.data())
  def test_damaged_pickle_is_refused_or_holds_images(self, data):
    content = bytearray(_python2(_batch(ROWS[:1], LABELS[:1])))
    pixels = content.index(ROWS[0].tobytes())
    places = [*range(pixels + 8), *range(pixels + 3072, len(content))]  # few pixels, all else
    for _ in range(data.draw(st.integers(1, 3))):
      place = data.draw(st.sampled_from(places))
      end = data.draw(st.sampled_from([place, place + 1, len(content)]))
      content[place:end] = data.draw(st.binary(max_size=2))
    with tempfile.TemporaryDirectory() as directory:
      pathlib.Path(directory, 'test_batch').write_bytes(content)
      try:
        read = cifar.cifar10(directory, train=False)
      except ValueError as error:
        self.assertIn(f'{directory}/test_batch: ', str(error))
      else:
        self.assertEqual(read.pixels.shape, (len(read.labels), 32, 32, 3))
        self.assertTrue(((read.labels >= 0) & (read.labels < 10)).all())

  @parameterized.parameters(
    (b'', 'ends at byte 0'),
    (bytes(3072), 'ends at byte 3072'),
    (bytes(2 * 3073 + 1), 'ends at byte 6147'),
    (bytes(3073) + b'\x0a' + bytes(3072), 'at byte 3073: label 10'),
  )
  def test_malformed_records_are_refused(self, content, message):
    (self.path / 'test_batch.bin').write_bytes(content)
    with self.assertRaisesRegex(ValueError, rf'test_batch\.bin: {message}'):
      cifar.cifar10(self.path, train=False)

  @parameterized.product(binary=[True, False], packed=[True, False])
  def test_more_than_the_limit_is_refused(self, binary, packed):
    files = _published(binary)
    limit = sum(len(files[name]) for name in sorted(files)[:5])
    if packed:
      limit = len(_tar(files))
      self.archive.write_bytes(gzip.compress(_tar(files)))
    for name, content in files.items():
      (self.path / name).write_bytes(content)
    path = self.archive if packed else self.path
    cifar.cifar10(path, max_bytes=limit)
    with self.assertRaisesRegex(ValueError, 'more than'):
      cifar.cifar10(path, max_bytes=limit - 1)

  def test_what_is_missing_is_named_with_its_source(self):
    for path in (self.archive, self.path):
      with self.assertRaisesRegex(FileNotFoundError, rf'{path}.*: is missing; fetch cifar-10-'):
        cifar.cifar10(path)
    files = _published(True)
    del files['data_batch_4.bin']
    self.archive.write_bytes(gzip.compress(_tar(files)))
    with self.assertRaisesRegex(ValueError, r'tar\.gz: holds no data_batch_4\.bin'):
      cifar.cifar10(self.archive)

  def test_malformed_archives_are_refused(self):
    name, content = 'test_batch.bin', _published(True)['test_batch.bin']
    plain = _tar({name: content})
    at = plain.index(b'cifar-10/test_batch.bin')

    def resized(field: bytes) -> bytes:
      """The archive with another size of the test batch, and a checksum that agrees."""
      header = bytearray(plain[at : at + 512])
      header[124:136], header[148:156] = field, b' ' * 8
      header[148:156] = b'%06o\0 ' % sum(header)
      return plain[:at] + bytes(header) + plain[at + 512 :]

    linked = bytearray(resized(b'%011o\0' % len(content)))
    self.assertEqual(linked, plain)
    for kind in b'12456SxLg':  # links, devices, a directory, sparse files, headers of other members
      linked[at + 156] = kind
      header = linked[at : at + 512]
      header[148:156] = b' ' * 8
      linked[at + 148 : at + 156] = b'%06o\0 ' % sum(header)
      self.archive.write_bytes(gzip.compress(linked))
      with self.assertRaisesRegex(ValueError, r'cifar-10\.tar\.gz: '):
        cifar.cifar10(self.archive, train=False)
    cases = {
      'claims 8589934591 bytes': resized(b'77777777777\0'),
      'claims -1 bytes': resized(b'\xff' * 12),
      'invalid header': resized(b'9' * 12),
      'bad checksum': plain[: at + 1] + b'x' + plain[at + 2 :],
      'ends too early': plain[: at + 700],
      'truncated header': plain[: at + 100],
      'ends without a mark': plain[:at],
      f'is another {name}': plain[:at] + 2 * plain[at : at + 512 + 13 * 512] + bytes(1024),
    }
    for message, case in cases.items():
      with self.subTest(message):
        self.archive.write_bytes(gzip.compress(case))
        with self.assertRaisesRegex(ValueError, rf'member at byte \d+, unpacked: .*{message}'):
          cifar.cifar10(self.archive, train=False)
    self.archive.write_bytes(plain)
    with self.assertRaisesRegex(ValueError, '(?i)not a gzipped file'):
      cifar.cifar10(self.archive, train=False)

  def test_expansion_is_bounded(self):
    bomb = _tar({'test_batch.bin': bytes(3073)}) + bytes(2**22)
    self.archive.write_bytes(gzip.compress(bomb))
    self.assertLen(cifar.cifar10(self.archive, train=False).labels, 1)
    with self.assertRaisesRegex(ValueError, 'goes on for more than 1000000'):
      cifar.cifar10(self.archive, train=False, max_bytes=1_000_000)

  @settings(max_examples=50, deadline=None)
  @given(st.data())
  def test_damaged_archive_is_refused_or_harmless(self, data):
    whole = _published(True)['test_batch.bin']
    content = bytearray(gzip.compress(_tar({'test_batch.bin': whole}), 1))
    if data.draw(st.booleans()):
      del content[data.draw(st.integers(0, len(content) - 1)) :]
    else:
      content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    with tempfile.NamedTemporaryFile(suffix='.tar.gz') as file:
      pathlib.Path(file.name).write_bytes(content)
      try:
        read = cifar.cifar10(file.name, train=False)
      except ValueError as error:
        self.assertIn(file.name, str(error))
      else:
        np.testing.assert_array_equal(read.labels, LABELS[-2:])


if __name__ == '__main__':
  absltest.main()
