"""Tests of lib.train.signals."""

import os
import signal
import time
from unittest import mock

import jax
import numpy as np
from absl.testing import absltest, parameterized
from jax.experimental import multihost_utils

from lib.train import signals


class SignalsTest(parameterized.TestCase):
  @parameterized.parameters(signal.SIGINT, signal.SIGTERM)
  def test_first_takes_note_and_second_stops(self, signum):
    with signals.handled():
      self.assertEqual(signals.received(), 0)
      signals.check()
      signals.check_together()
      os.kill(os.getpid(), signum)
      self.assertEqual(signals.received(), signum)
      for check in (signals.check, signals.check_together):
        with self.assertRaisesRegex(signals.Stopped, signum.name) as caught:
          check()
        self.assertEqual(caught.exception.signum, signum)
      with self.assertRaises(signals.Stopped) as caught:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(1)  # the handler raises before it, or in it
      self.assertEqual(caught.exception.signum, signal.SIGTERM)

  def test_handlers_come_back(self):
    before = [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)]
    with self.assertRaises(signals.Stopped), signals.handled():
      self.assertNotEqual(signal.getsignal(signal.SIGTERM), before[1])
      os.kill(os.getpid(), signal.SIGTERM)
      signals.check()
    self.assertEqual([signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)], before)
    self.assertEqual(signals.received(), 0)
    signals.check()

  def test_passes_through_handlers_of_errors(self):
    self.assertNotIsInstance(signals.Stopped(signal.SIGINT), Exception)

  def test_hosts_stop_together_or_not_at_all(self):
    gathered = np.array([0, signal.SIGTERM], np.int32)
    with (
      signals.handled(),
      mock.patch.object(jax, 'process_count', return_value=2),
      mock.patch.object(multihost_utils, 'process_allgather', return_value=gathered),
    ):
      os.kill(os.getpid(), signal.SIGTERM)
      signals.check()
      self.assertEqual(signals.received(), signal.SIGTERM)
    with (
      signals.handled(),
      mock.patch.object(jax, 'process_count', return_value=2),
      mock.patch.object(multihost_utils, 'process_allgather', return_value=gathered),
    ):
      with self.assertRaises(signals.Stopped):  # another host's signal
        signals.check_together()
      self.assertEqual(signals.received(), signal.SIGTERM)


if __name__ == '__main__':
  absltest.main()
