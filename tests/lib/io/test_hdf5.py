"""Tests of lib.io.hdf5."""

import pathlib
import tempfile

import h5py
import numpy as np
from absl.testing import absltest, parameterized

from lib.io import hdf5

N = 50


def _columns() -> dict[str, np.ndarray]:
  rng = np.random.default_rng(0)
  return {
    'observations': rng.normal(size=(N, 4)).astype(np.float32),
    'actions': rng.uniform(-1, 1, size=(N, 2)).astype(np.float32),
    'rewards': rng.normal(size=N).astype(np.float32),
    'terminals': np.arange(N) == 20,
    'timeouts': np.arange(N) % 25 == 24,
  }


class D4rlTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    directory = tempfile.TemporaryDirectory()
    self.addCleanup(directory.cleanup)
    self.path = pathlib.Path(directory.name) / 'set.hdf5'

  def write(self, columns, **kwargs):
    with h5py.File(self.path, 'w') as file:
      for name, column in columns.items():
        file.create_dataset(name, data=column, **kwargs)
      file['infos/qpos'] = np.zeros((N, 3))  # what D4RL keeps beside, and nobody asks for

  @parameterized.parameters({}, {'compression': 'gzip'})
  def test_reads_what_was_written(self, **kwargs):
    self.write(_columns(), **kwargs)
    loaded = hdf5.load_d4rl(self.path)
    self.assertEqual(set(loaded), set(_columns()))
    for name, column in _columns().items():
      np.testing.assert_array_equal(loaded[name], column)
      self.assertEqual(loaded[name].dtype, column.dtype)

  @parameterized.parameters(0.0, 0.01, 0.3, 0.6, 0.95)
  def test_truncated_file_is_refused_by_name(self, fraction):
    self.write(_columns())
    content = self.path.read_bytes()
    self.path.write_bytes(content[: int(fraction * len(content))])
    with self.assertRaisesRegex(ValueError, r'set\.hdf5: not a whole HDF5 file of \d+ bytes'):
      hdf5.load_d4rl(self.path)

  @parameterized.parameters(*_columns())
  def test_missing_array_is_refused_by_name(self, name):
    columns = _columns()
    del columns[name]
    self.write(columns)
    with self.assertRaisesRegex(ValueError, f"array '{name}': is missing"):
      hdf5.load_d4rl(self.path)

  @parameterized.parameters(
    ('observations', np.zeros(N), r'shape \(50,\)'),
    ('actions', np.zeros((N - 1, 2)), r'shape \(49, 2\), expected \(50, '),
    ('rewards', np.zeros((N, 1)), r'shape \(50, 1\)'),
    ('rewards', np.full(N, np.inf), r'holds inf at index \(0,\)'),
    ('actions', np.array([['text'] * 2] * N, 'S4'), 'not numeric'),
    ('timeouts', np.zeros((0,)), r'shape \(0,\)'),
  )
  def test_other_contents_are_refused_by_name(self, name, column, message):
    self.write(_columns() | {name: column})
    with self.assertRaisesRegex(ValueError, f"array '{name}'.*{message}"):
      hdf5.load_d4rl(self.path)

  def test_nothing_outside_of_the_file_is_read(self):
    columns = _columns()
    rewards = columns.pop('rewards')
    self.write(columns)
    other = self.path.with_name('other.hdf5')
    with h5py.File(other, 'w') as file:
      file['rewards'] = rewards
    with h5py.File(self.path, 'a') as file:
      file['rewards'] = h5py.ExternalLink('other.hdf5', 'rewards')
    with self.assertRaisesRegex(ValueError, "array 'rewards': is a link"):
      hdf5.load_d4rl(self.path)
    other.write_bytes(rewards.tobytes())
    with h5py.File(self.path, 'a') as file:
      del file['rewards']
      file.create_dataset('rewards', (N,), 'f4', external=[(str(other), 0, 4 * N)])
    with self.assertRaisesRegex(ValueError, "array 'rewards': is kept in other files"):
      hdf5.load_d4rl(self.path)

  def test_unwritten_array_of_any_size_is_refused_before_allocation(self):
    columns = _columns()
    del columns['observations']
    self.write(columns)
    with h5py.File(self.path, 'a') as file:
      file.create_dataset('observations', (10**12, 4), 'f4', chunks=(1024, 4))
    with self.assertRaisesRegex(ValueError, "array 'observations': claims shape"):
      hdf5.load_d4rl(self.path)

  def test_group_in_the_place_of_an_array_is_refused(self):
    columns = _columns()
    del columns['actions']
    self.write(columns)
    with h5py.File(self.path, 'a') as file:
      file.create_group('actions')
    with self.assertRaisesRegex(ValueError, "array 'actions': is a group"):
      hdf5.load_d4rl(self.path)

  def test_missing_file_is_missing(self):
    with self.assertRaises(FileNotFoundError):
      hdf5.load_d4rl(self.path)


if __name__ == '__main__':
  absltest.main()
