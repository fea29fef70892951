"""Tests of lib.io.safetensors."""

import json
import pathlib
import struct
import tempfile

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
from absl.testing import absltest, parameterized
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.io import safetensors as model_files

CONFIG = {'model_type': 'llama', 'hidden_size': 4}
TENSORS = {
  'embed.weight': np.arange(12, dtype=np.float32).reshape(3, 4),
  'layer.bias': np.arange(4).astype(ml_dtypes.bfloat16),
  'layer.scale': np.float16(0.5) * np.ones((2, 1, 2), np.float16),
  'steps': np.array(7),
  'mask': np.array([True, False]),
}
SHARDS = ('model-00001-of-00002.safetensors', 'model-00002-of-00002.safetensors')


def _raw(header: dict | bytes, data: bytes = b'') -> bytes:
  raw = header if isinstance(header, bytes) else json.dumps(header).encode()
  return struct.pack('<Q', len(raw)) + raw + data


def _one(dtype: str, shape: list[int], size: int) -> bytes:
  return _raw({'x': {'dtype': dtype, 'shape': shape, 'data_offsets': [0, size]}}, bytes(size))


class _InDirectory(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    directory = tempfile.TemporaryDirectory()
    self.addCleanup(directory.cleanup)
    self.path = pathlib.Path(directory.name)
    (self.path / 'config.json').write_text(json.dumps(CONFIG))

  def write_single(self, content: bytes | None = None) -> None:
    content = safetensors.numpy.save(TENSORS) if content is None else content
    (self.path / 'model.safetensors').write_bytes(content)

  def write_shards(self, where=None) -> None:
    names = list(TENSORS)
    parts = (names[:2], names[2:])
    for shard, part in zip(SHARDS, parts, strict=True):
      safetensors.numpy.save_file({name: TENSORS[name] for name in part}, self.path / shard)
    if where is None:
      where = {name: shard for shard, part in zip(SHARDS, parts, strict=True) for name in part}
    index = {'metadata': {'total_size': 1}, 'weight_map': where}
    (self.path / 'model.safetensors.index.json').write_text(json.dumps(index))

  def where(self) -> dict[str, str]:
    return {name: SHARDS[i >= 2] for i, name in enumerate(TENSORS)}


class RoundTripTest(_InDirectory):
  @parameterized.parameters(True, False)
  def test_reads_what_was_written(self, sharded):
    self.write_shards() if sharded else self.write_single()
    directory = model_files.open_directory(str(self.path))
    self.assertEqual(directory.config, CONFIG)
    self.assertEqual(set(directory.tensors), set(TENSORS))
    for name, expected in TENSORS.items():
      array = model_files.read_tensor(directory, name)
      np.testing.assert_array_equal(array, expected)
      self.assertEqual(array.dtype, expected.dtype)
      self.assertEqual(directory.tensors[name].shape, expected.shape)
    self.assertEqual(directory.tensors['layer.bias'].kind, 'BF16')

  def test_links_to_a_store_of_files_are_followed(self):
    self.write_single()
    with tempfile.TemporaryDirectory() as store:
      blob = (self.path / 'model.safetensors').rename(pathlib.Path(store) / '0123')
      (self.path / 'model.safetensors').symlink_to(blob)
      directory = model_files.open_directory(self.path)
      self.assertEqual(model_files.read_tensor(directory, 'steps'), 7)

  def test_what_the_index_does_not_list_is_not_there(self):
    where = self.where()
    del where['mask']
    self.write_shards(where)
    self.assertNotIn('mask', model_files.open_directory(self.path).tensors)


class RefusalTest(_InDirectory):
  @parameterized.parameters(
    '../model.safetensors', '/etc/model.safetensors', 'a/b.safetensors', '..', '.', '',
    'a\0.safetensors', 'a\\b.safetensors', 'model.bin', 'model.safetensors.bin', 3, None,
    (['a.safetensors'],),
  )  # fmt: skip
  def test_index_that_points_elsewhere(self, file_name):
    self.write_shards(self.where() | {'mask': file_name})
    message = r"index\.json: tensor 'mask': .* is (no \.safetensors file|in another directory)"
    with self.assertRaisesRegex(ValueError, message):
      model_files.open_directory(self.path)

  @parameterized.parameters((None,), ({},), ([],), ('model.safetensors',))
  def test_index_without_tensors(self, where):
    self.write_shards()
    index = json.dumps({'weight_map': where})
    (self.path / 'model.safetensors.index.json').write_text(index)
    with self.assertRaisesRegex(ValueError, r"index\.json: 'weight_map' is no object"):
      model_files.open_directory(self.path)

  def test_index_with_two_places_for_a_name(self):
    self.write_shards()
    first, second = SHARDS
    index = f'{{"weight_map": {{"mask": "{first}", "mask": "{second}"}}}}'
    (self.path / 'model.safetensors.index.json').write_text(index)
    with self.assertRaisesRegex(ValueError, r"index\.json: not JSON: key 'mask' has two values"):
      model_files.open_directory(self.path)

  def test_shard_that_is_missing(self):
    self.write_shards()
    (self.path / SHARDS[1]).unlink()
    with self.assertRaisesRegex(ValueError, rf'{SHARDS[1]}: is missing'):
      model_files.open_directory(self.path)

  def test_tensor_that_is_missing(self):
    self.write_shards(self.where() | {'more': SHARDS[1]})
    with self.assertRaisesRegex(ValueError, rf"{SHARDS[1]}: tensor 'more' is missing"):
      model_files.open_directory(self.path)

  def test_tensor_in_two_shards(self):
    self.write_shards()
    safetensors.numpy.save_file(TENSORS, self.path / SHARDS[0])
    with self.assertRaisesRegex(ValueError, rf"{SHARDS[0]}: also holds tensor '.*{SHARDS[1]}"):
      model_files.open_directory(self.path)

  def test_pickles_are_never_read(self):
    (self.path / 'pytorch_model.bin').write_bytes(b'cos\nsystem\n(S"false"\ntR.')
    with self.assertRaisesRegex(ValueError, 'neither model.safetensors nor .*never pickles'):
      model_files.open_directory(self.path)

  @parameterized.parameters('', '[]', '{"a": ')
  def test_malformed_config(self, text):
    self.write_single()
    (self.path / 'config.json').write_text(text)
    with self.assertRaisesRegex(ValueError, r'config\.json: '):
      model_files.open_directory(self.path)

  def test_missing_config_is_missing(self):
    (self.path / 'config.json').unlink()
    with self.assertRaises(FileNotFoundError):
      model_files.open_directory(self.path)

  @parameterized.parameters(
    b'',
    struct.pack('<Q', 2**63) + bytes(100),
    struct.pack('<Q', 2**32) + bytes(100),
    _raw(b'[' * 100_000),
    _raw({'x': 3}),
    _raw({'x': {'dtype': 'F99', 'shape': [1], 'data_offsets': [0, 4]}}, bytes(4)),
    _one('F32', [2**32, 2**32, 2], 0),
    _one('F32', [2], 4),
    _raw({'x': {'dtype': 'U8', 'shape': [4], 'data_offsets': [0, 2**40]}}, bytes(4)),
    _raw({'x': {'dtype': 'U8', 'shape': [2], 'data_offsets': [2, 4]}}, bytes(4)),
  )
  def test_malformed_weights(self, content):
    self.write_single(content)
    with self.assertRaisesRegex(ValueError, r'model\.safetensors: not a whole safetensors file'):
      model_files.open_directory(self.path)

  def test_every_truncation_is_refused(self):
    content = safetensors.numpy.save(TENSORS)
    for size in range(0, len(content), 3):
      self.write_single(content[:size])
      with self.assertRaisesRegex(ValueError, r'model\.safetensors: not a whole'):
        model_files.open_directory(self.path)

  @parameterized.parameters(('F8_E4M3', 4), ('C64', 32))
  def test_other_kinds_are_refused_by_name(self, kind, size):
    self.write_single(_one(kind, [4], size))
    directory = model_files.open_directory(self.path)
    with self.assertRaisesRegex(ValueError, rf"tensor 'x' is {kind}; only F64, F32"):
      model_files.read_tensor(directory, 'x')

  @parameterized.parameters(([0, 2**62], 0), ([1] * 100, 4))
  def test_shapes_that_numpy_has_not(self, shape, size):
    self.write_single(_one('F32', shape, size))
    directory = model_files.open_directory(self.path)
    with self.assertRaisesRegex(ValueError, r"model\.safetensors: tensor 'x': "):
      model_files.read_tensor(directory, 'x')

  def test_unknown_name(self):
    self.write_single()
    with self.assertRaisesRegex(ValueError, "there is no tensor 'none'; there are 5"):
      model_files.read_tensor(model_files.open_directory(self.path), 'none')

  def test_file_that_changes_after_it_was_opened(self):
    self.write_single()
    directory = model_files.open_directory(self.path)
    self.write_single(safetensors.numpy.save({'steps': np.arange(3)}))
    with self.assertRaisesRegex(ValueError, r"safetensors: tensor 'steps' has changed"):
      model_files.read_tensor(directory, 'steps')
    with self.assertRaisesRegex(ValueError, r"safetensors: tensor 'mask': .*mask"):
      model_files.read_tensor(directory, 'mask')
    self.write_single(b'')
    with self.assertRaisesRegex(ValueError, r"safetensors: tensor 'steps': "):
      model_files.read_tensor(directory, 'steps')


class FuzzTest(absltest.TestCase):
  def check(self, num_files):
    content = safetensors.numpy.save(TENSORS)
    flips = st.lists(
      st.tuples(st.integers(0, len(content) - 1), st.integers(1, 255)), min_size=1, max_size=4
    )
    directory = tempfile.TemporaryDirectory()
    self.addCleanup(directory.cleanup)
    path = pathlib.Path(directory.name)
    (path / 'config.json').write_text('{}')

    @settings(max_examples=num_files, database=None)
    @given(flips)
    def run(changes):
      changed = bytearray(content)
      for place, bits in changes:
        changed[place] ^= bits
      (path / 'model.safetensors').write_bytes(changed)
      try:
        opened = model_files.open_directory(path)
        for name in opened.tensors:
          model_files.read_tensor(opened, name)
      except ValueError as error:
        self.assertIn('model.safetensors: ', str(error))

    run()

  def test_changed_bytes_are_refused_or_harmless(self):
    self.check(100)

  @pytest.mark.slow
  def test_many_changed_bytes_are_refused_or_harmless(self):
    self.check(2_000)


if __name__ == '__main__':
  absltest.main()
