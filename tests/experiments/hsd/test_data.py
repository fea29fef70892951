"""Tests of experiments.hsd.data."""

import functools
import pathlib
import shutil
import tempfile
from unittest import mock

import ml_collections
import numpy as np
from absl.testing import absltest, parameterized

from experiments.hsd import data, tasks
from experiments.hsd.tasks import record
from lib.envs import collect, seeding


def make_config(directory, **changes):
  config = {'dir': str(directory), 'seed': 5, 'workers': 2}
  config |= {'train': 3, 'valid': 1, 'test': 2, 'finer': 0, **changes}
  task = {'name': 'circulation', 'size': 10}
  return ml_collections.ConfigDict({'task': task, 'data': config})


MAKE = tasks.make
CACHED = functools.cache(lambda options, refine: MAKE(dict(options), refine))


def make_cached(options, refine=0):
  return CACHED(tuple(sorted(options.items())), refine)


class InProcess:
  """Stands for worker processes; stops after `most` answers, as if killed."""

  most = 1000

  def __init__(self, makes):
    self.handle = makes[0]() if makes else None

  def __enter__(self):
    return self

  def __exit__(self, *exception):
    pass

  def map_unordered(self, requests):
    for i, request in enumerate(requests):
      if i == self.most:
        raise KeyboardInterrupt
      yield request, self.handle(request)


class DataTest(parameterized.TestCase):
  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.made = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
    cls.loaded = data.load(make_config(cls.made))

  def setUp(self):
    super().setUp()
    self.directory = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()), 'data')
    self.enterContext(mock.patch.object(tasks, 'make', make_cached))
    self.enterContext(mock.patch.object(collect.workers, 'Workers', InProcess))

  def copied(self):
    """A copy of what was made, and its config."""
    shutil.copytree(self.made, self.directory)
    (inside,) = self.directory.iterdir()
    return inside, make_config(self.directory)

  def test_samples_depend_on_nothing_but_their_seeds(self):
    task = tasks.make(make_config('').task)
    for i, (split, count) in enumerate((('test', 2), ('train', 3), ('valid', 1))):
      seeds = [seeding.seed_sequence(5, i, j) for j in range(count)]
      expected, found = record.generate(task, seeds), getattr(self.loaded, split)
      self.assertEqual(set(expected), set(found))
      for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array)
    given = np.concatenate([self.loaded.test['given'], self.loaded.train['given']])
    self.assertLen(np.unique(given, axis=0), 5)
    self.assertIsNone(self.loaded.finer)
    self.assertIn('task circulation, vertices 40, edges 120', self.loaded.summary)

  def test_second_call_reads(self):
    _, config = self.copied()
    with mock.patch.object(collect, 'collect', side_effect=AssertionError):
      loaded = data.load(config)
    for name, array in self.loaded.train.items():
      np.testing.assert_array_equal(loaded.train[name], array)

  def test_finer_samples_are_the_first_test_problems(self):
    loaded = data.load(make_config(self.directory, finer=1))
    self.assertGreater(loaded.finer_task.complex.sizes[0], loaded.task.complex.sizes[0])
    np.testing.assert_array_equal(loaded.finer['given'], loaded.test['given'][:1])
    self.assertEqual(loaded.finer['form'].shape, (1, len(loaded.finer_task.complex.edges)))

  def test_interrupted_generation_goes_on_to_the_same_samples(self):
    config = make_config(self.directory)
    with mock.patch.object(InProcess, 'most', 2), self.assertRaises(KeyboardInterrupt):
      data.load(config)
    (inside,) = self.directory.iterdir()
    self.assertFalse(list(inside.glob('*.npz')) + list(inside.glob('manifest.json')))
    self.assertLen(list(inside.glob('parts/*.npz')), 2)
    loaded = data.load(config)
    for name, array in self.loaded.train.items():
      np.testing.assert_array_equal(loaded.train[name], array)
    self.assertFalse(list(inside.glob('parts')))

  @parameterized.parameters('truncated', 'altered', 'missing')
  def test_spoilt_file_is_refused_by_name(self, how):
    inside, config = self.copied()
    content = bytearray((inside / 'train.npz').read_bytes())
    content[len(content) // 2] ^= 1
    (inside / 'train.npz').write_bytes(content[:-9] if how == 'truncated' else content)
    if how == 'missing':
      (inside / 'train.npz').unlink()
    with self.assertRaisesRegex(ValueError, 'train.npz: .*manifest.json'):
      data.load(config)

  def test_manifest_that_is_none_is_refused_by_name(self):
    inside, config = self.copied()
    (inside / 'manifest.json').write_text('{')
    with self.assertRaisesRegex(ValueError, 'manifest.json: not a manifest'):
      data.load(config)

  def test_samples_of_other_code_are_refused_by_name(self):
    inside, config = self.copied()
    generate = record.generate
    scaled = lambda task, seeds: {k: 1.01 * x for k, x in generate(task, seeds).items()}
    with (
      mock.patch.object(record, 'generate', scaled),
      self.assertRaisesRegex(ValueError, f"{inside}: '.*' of the first sample .* delete"),
    ):
      data.load(config)

  @parameterized.parameters(
    ('task', 'size', 12), ('task', 'contrast', 0.5), ('data', 'seed', 6), ('data', 'train', 4)
  )
  def test_every_number_has_its_own_directory(self, section, field, value):
    _, config = self.copied()
    config.task.contrast = 1.0
    config[section][field] = value
    loaded = data.load(config)
    self.assertLen(list(self.directory.iterdir()), 2)
    self.assertFalse(
      loaded.train['form'].shape == self.loaded.train['form'].shape
      and np.allclose(loaded.train['form'], self.loaded.train['form'])
    )

  @parameterized.parameters(
    ('train', 0, 'config.data.train must be at least 1, got 0'),
    ('seed', -1, 'config.data.seed must be at least 0, got -1'),
    ('workers', -1, 'config.data.workers must be at least 0'),
    ('finer', 3, 'config.data.finer must be at most test, got 3'),
  )
  def test_bad_field_is_refused_by_name(self, field, value, message):
    with self.assertRaisesRegex(ValueError, message):
      data.load(make_config(self.directory, **{field: value}))
    self.assertFalse(self.directory.exists())


if __name__ == '__main__':
  absltest.main()
