"""Tests of lib.train.metrics."""

import errno
import json
import math
import os
import pathlib
import resource
import struct
import tempfile

import hypothesis
import jax.numpy as jnp
import numpy as np
from absl.testing import absltest, parameterized
from hypothesis import strategies as st
from tensorboardX import record_writer
from tensorboardX.proto import event_pb2

from lib.train import metrics

FLOATS = st.floats() | st.floats(width=32).map(np.float32) | st.integers(-(2**40), 2**40)
VALUES = FLOATS | st.lists(st.floats(), min_size=1, max_size=3)
NAMES = st.text(min_size=1).filter(lambda name: name not in ('self', 'step', 'kind'))


def read_events(path: pathlib.Path) -> list[event_pb2.Event]:
  """Reads a file of TensorBoard: length, its checksum, an event, its checksum, and so on."""
  data, events = path.read_bytes(), []
  while data:
    (length,) = struct.unpack('<Q', data[:8])
    header, body, data = data[:12], data[12 : 16 + length], data[16 + length :]
    for checked in (header, body):
      (checksum,) = struct.unpack('<I', checked[-4:])
      assert checksum == record_writer.masked_crc32c(checked[:-4])
    events.append(event_pb2.Event.FromString(body[:-4]))
  return events


def or_nan(x) -> float:
  return float(x) if math.isfinite(x) else math.nan


class MetricsTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    directory = tempfile.TemporaryDirectory()
    self.addCleanup(directory.cleanup)
    self.workdir = pathlib.Path(directory.name) / 'run'
    self.path = self.workdir / 'metrics.jsonl'

  def events(self) -> list[list[event_pb2.Event]]:
    """Returns the events of each file, in the order of their making."""
    paths = sorted(self.workdir.glob('*tfevents*'), key=lambda path: int(path.suffix[1:]))
    return [read_events(path) for path in paths]

  def test_round_trip(self):
    values = {
      'loss': jnp.float32(0.1),
      'per_seed': jnp.array([1.5, -2.0]),
      'half': jnp.bfloat16(0.5),
      'count': 3,
      'big': np.int64(2**60 + 1),
      'yes': np.array(True),
    }
    with metrics.Writer(self.workdir) as writer:
      writer.write(1, 'eval', **values)
      (first,) = metrics.read(self.path)  # at once, for who looks on
      writer.write(2, 'train')
    expected = {'step': 1, 'kind': 'eval', 'loss': float(np.float32(0.1)), 'per_seed': [1.5, -2.0],
                'half': 0.5, 'count': 3, 'big': 2**60 + 1, 'yes': True}  # fmt: skip
    self.assertEqual(first, expected)
    self.assertIsInstance(first['count'], int)
    self.assertIs(first['yes'], True)
    self.assertEqual(metrics.read(self.path), [expected, {'step': 2, 'kind': 'train'}])

  @hypothesis.settings(max_examples=15, deadline=None)
  @hypothesis.given(st.lists(st.dictionaries(NAMES, VALUES, max_size=3), max_size=3))
  def test_any_numbers_survive(self, records):
    self.path.unlink(missing_ok=True)
    with np.errstate(all='ignore'), metrics.Writer(self.workdir) as writer:
      writer.start(0, len(records))
      for step, record in enumerate(records, 1):
        writer.write(step, 'train', **record)
    for step, (record, found) in enumerate(zip(records, metrics.read(self.path), strict=True), 1):
      self.assertEqual((found.pop('step'), found.pop('kind')), (step, 'train'))
      self.assertEqual(found.keys(), record.keys())
      for name, value in record.items():
        expected = [or_nan(x) for x in value] if isinstance(value, list) else or_nan(value)
        np.testing.assert_array_equal(found[name], expected)

  def test_what_is_not_finite_is_null_and_reads_as_nan(self):
    with metrics.Writer(self.workdir) as writer:
      writer.write(1, 'eval', a=np.nan, b=[1.0, -np.inf])
    record = json.loads(self.path.read_text(), parse_constant=self.fail)  # of NaN and Infinity
    self.assertEqual((record['a'], record['b']), (None, [1.0, None]))
    (record,) = metrics.read(self.path)
    np.testing.assert_array_equal(record['a'], np.nan)
    np.testing.assert_array_equal(record['b'], [1.0, np.nan])

  def test_refuses_matrices_and_writes_nothing(self):
    for workdir in (self.workdir, None):
      with metrics.Writer(workdir) as writer, self.assertRaisesRegex(ValueError, r'm .*\(2, 2\)'):
        writer.write(1, 'eval', a=1.0, m=np.zeros((2, 2)))
    self.assertFalse(self.path.exists())

  @parameterized.parameters('{"step": 2, "ki', '{"step": 2, "kind": "train"}', '\0\xff')
  def test_torn_last_line_is_no_record(self, torn):
    with metrics.Writer(self.workdir) as writer:
      writer.write(1, 'train', loss=1.0)
    with open(self.path, 'a') as stream:
      stream.write(torn)
    self.assertLen(metrics.read(self.path), 1)
    with metrics.Writer(self.workdir) as writer:  # and the next line does not join it
      writer.write(3, 'train', loss=3.0)
    self.assertEqual([record['step'] for record in metrics.read(self.path)], [1, 3])

  @parameterized.parameters(
    '',
    '{',
    '[1]',
    'null',
    '"step"',
    '{"kind": "train"}',
    '{"step": 1}',
    '{"step": null, "kind": "train"}',
    '{"step": Infinity, "kind": "train"}',
    '{"step": "one", "kind": "train"}',
    '\xff',
    'a\rb',
    '[' * 100_000,
  )
  def test_malformed_line_is_named(self, line):
    good = '{"step": 1, "kind": "train"}\n'
    self.workdir.mkdir()
    self.path.write_bytes(f'{good}{line}\n{good}'.encode('latin1'))
    with self.assertRaisesRegex(ValueError, 'metrics.jsonl:2: '):
      metrics.read(self.path)
    before = self.path.read_bytes()
    with metrics.Writer(self.workdir) as writer, self.assertRaisesRegex(ValueError, ':2: '):
      writer.start(1, 2)
    self.assertEqual(self.path.read_bytes(), before)

  def test_missing_file(self):
    with self.assertRaises(OSError):
      metrics.read(self.path)

  def test_start_drops_what_comes_again(self):
    with metrics.Writer(self.workdir) as writer:
      for step in (0, 2, 4, 6):
        if step:
          writer.train(step, {'loss': step})
        writer.write(step, 'eval', score=step)
    with metrics.Writer(self.workdir) as writer:
      writer.start(4, 6)
      kept = [(r['step'], r['kind']) for r in metrics.read(self.path)]
      self.assertEqual(kept, [(0, 'eval'), (2, 'train'), (2, 'eval'), (4, 'train')])
      writer.write(4, 'eval', score=-4)
    self.assertEqual(metrics.read(self.path)[-1], {'step': 4, 'kind': 'eval', 'score': -4})
    with metrics.Writer(self.workdir) as writer:
      writer.start(0, 6)
    self.assertEmpty(metrics.read(self.path))

  def test_without_start_records_are_added(self):
    for step in (1, 2):
      with metrics.Writer(self.workdir) as writer:
        writer.write(step, 'eval')
    self.assertEqual([record['step'] for record in metrics.read(self.path)], [1, 2])

  def test_series_by_metric_and_step(self):
    self.assertEqual(metrics.series(self.path, 'eval'), {})
    with metrics.Writer(self.workdir) as writer:
      writer.write(2, 'eval', score=[1.0, 2.0])
      writer.write(2, 'train', loss=3.0)
      writer.write(4, 'eval', score=[3.0, 4.0], other=5.0)
      writer.write(2, 'eval', score=[6.0, 7.0])
    found = metrics.series(self.path, 'eval')
    self.assertEqual(
      {name: sorted(xs) for name, xs in found.items()}, {'score': [2, 4], 'other': [4]}
    )
    np.testing.assert_array_equal(found['score'][2], [6.0, 7.0])  # the later one

  def test_without_workdir_nothing_is_written(self):
    before = os.getcwd()
    self.workdir.mkdir()
    os.chdir(self.workdir)
    self.addCleanup(os.chdir, before)
    with metrics.Writer(None) as writer:
      writer.start(0, 2)
      writer.train(1, {'loss': 1.0})
      writer.train(2, {})
      writer.write(2, 'eval', score=1.0)
    self.assertEmpty(os.listdir(self.workdir))

  def test_events_are_readable(self):
    with metrics.Writer(self.workdir) as writer:
      writer.start(0, 4)
      writer.train(2, {'loss': np.array([1.0, 2.0])})
      (events,) = self.events()  # at once, for who looks on
      writer.write(4, 'eval', score=0.25)
    with metrics.Writer(self.workdir) as writer:
      writer.start(2, 4)
    events, again = self.events()
    scalars = [(e.step, v.tag, v.simple_value) for e in events for v in e.summary.value]
    self.assertEqual(scalars, [(2, 'train/loss', 1.5), (4, 'eval/score', 0.25)])
    self.assertEqual(events[0].file_version, 'brain.Event:2')
    # TensorBoard hides what is at the step of this event or later, of the files before.
    (start,) = (e for e in again if e.HasField('session_log'))
    self.assertEqual(start.session_log.status, event_pb2.SessionLog.START)
    self.assertEqual(start.step, 3)

  def test_disk_that_fails(self):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with self.assertRaises(OSError) as caught, metrics.Writer(self.workdir) as writer:
      writer.write(0, 'train', loss=0.0)
      resource.setrlimit(resource.RLIMIT_FSIZE, (self.path.stat().st_size + 100, limits[1]))
      try:
        for step in range(1, 10):
          writer.write(step, 'train', loss=step)
      finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    self.assertEqual(caught.exception.errno, errno.EFBIG)
    steps = [record['step'] for record in metrics.read(self.path)]
    self.assertEqual(steps, list(range(len(steps))))
    self.assertBetween(len(steps), 1, 9)


if __name__ == '__main__':
  absltest.main()
