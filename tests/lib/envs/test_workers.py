"""Tests of lib.envs.workers."""

import functools
import os
import signal
import subprocess
import sys
import time

from absl.testing import absltest, parameterized

from lib.envs import workers
from tests.lib.envs import toys

PARENT = """
import functools, time
from lib.envs import workers
from tests.lib.envs import toys
pool = workers.Workers([functools.partial(toys.make_worker, 60.0)] * 2)
busy = workers.Workers([toys.make_worker] * 1)
for worker in range(2):
  pool.send(worker, 'work')
busy.send(0, 'work')
busy.receive(0)
print(*(process.pid for process in pool._processes + busy._processes), flush=True)
time.sleep(60)
"""


def _is_alive(pid: int) -> bool:
  try:
    with open(f'/proc/{pid}/stat') as stat:
      return stat.read().rsplit(')', 1)[1].split()[0] != 'Z'
  except FileNotFoundError:
    return False


class WorkersTest(parameterized.TestCase):
  def test_every_request_is_answered_once(self):
    with workers.Workers([toys.make_doubler] * 2) as pool:
      answers = dict(pool.map_unordered(range(20)))
      self.assertEqual(answers, {i: 2 * i for i in range(20)})
      self.assertEmpty(list(pool.map_unordered([])))

  def test_failure_carries_the_workers_traceback_and_death_its_code(self):
    with workers.Workers([toys.make_worker] * 2) as pool:
      pool.send(0, 'fail')
      with self.assertRaisesRegex(RuntimeError, "(?s)process 0 failed:.*KeyError: 'asked to'"):
        pool.receive(0)
      pool.send(1, 'die')
      with self.assertRaisesRegex(RuntimeError, 'process 1 died with exit code -9'):
        pool.receive(1)
      with self.assertRaisesRegex(RuntimeError, 'process 1 died'):
        pool.send(1, 'work')

  def test_a_lost_request_concerns_no_other(self):
    requests = ['work', 'fail', 'work', 'die', 'work', 'stall', 'work']
    with workers.Workers([toys.make_worker] * 2) as pool:
      answers = list(pool.map_within(requests, 0.5))
    lost = {request: answer for request, answer in answers if isinstance(answer, workers.Lost)}
    self.assertCountEqual([request for request, _ in answers], requests)
    self.assertCountEqual(lost, ['fail', 'die', 'stall'])
    self.assertIn("KeyError: 'asked to'", lost['fail'].reason)
    self.assertIn('died with exit code -9', lost['die'].reason)
    self.assertEqual(lost['stall'].reason, 'took more than 0.5 s')

  def test_close_does_not_wait(self):
    start = time.monotonic()
    with workers.Workers([functools.partial(toys.make_worker, 60.0)]) as pool:
      pool.send(0, 'work')
      (process,) = pool._processes
    self.assertIsNotNone(process.exitcode)
    self.assertLess(time.monotonic() - start, 30.0)

  @parameterized.parameters(signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
  def test_no_worker_outlives_its_parent(self, signum):
    # To the whole group, as terminals and schedulers send it.
    parent = subprocess.Popen(
      [sys.executable, '-c', PARENT],
      stdout=subprocess.PIPE,
      stderr=subprocess.DEVNULL,
      start_new_session=True,
      preexec_fn=functools.partial(signal.signal, signal.SIGINT, signal.default_int_handler),
    )
    try:
      pids = [int(pid) for pid in parent.stdout.readline().split()]
      self.assertLen(pids, 3)
      if signum == signal.SIGKILL:
        parent.kill()
      else:
        os.killpg(parent.pid, signum)
      parent.wait(timeout=20)
      deadline = time.monotonic() + 10.0
      while any(map(_is_alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.02)
      self.assertEqual([pid for pid in pids if _is_alive(pid)], [])
    finally:
      parent.kill()
      parent.communicate()


if __name__ == '__main__':
  absltest.main()
