"""Tests of what a run is judged by."""

import pathlib
import tempfile

import chex
import ml_collections
import numpy as np
from absl.testing import parameterized

from experiments.pql import online, report
from lib.train import app, metrics

STEPS = 40


class ReportTest(chex.TestCase):
  def setUp(self):
    super().setUp()
    self.workdir = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

  def make_run(self, online_steps=0, score_last=3, methods=('fql', 'iql')):
    config = {
      'methods': methods,
      'steps': STEPS,
      'score_last': score_last,
      'online': {'steps': online_steps},
    }
    return app.Run(ml_collections.FrozenConfigDict(config), 'pql', 'c.py', self.workdir)

  def write(self, name, *steps, **values):
    with metrics.Writer(self.workdir / name) as writer:
      for step in steps:
        writer.write(step, 'eval', **(values or {'success': [0.5]}))

  def test_success_is_the_mean_of_the_last_scores_and_the_rest_the_last(self):
    rng = np.random.default_rng(0)
    success, length, loss = rng.random((3, 7, 2))  # seven scores of two seeds
    by_metric = {
      name: {10 * i: values[i] for i in rng.permutation(7).tolist()}  # the order is not the steps'
      for name, values in (('success', success), ('episode_length', length), ('flow_loss', loss))
    }
    for last in (1, 3, 7, 100):
      found = report.final(self.make_run(score_last=last), by_metric)
      expected = lambda x, last=last: [np.mean(x[-last:, seed]) for seed in range(2)]
      np.testing.assert_allclose(found['success'], expected(success), rtol=1e-12)
      np.testing.assert_allclose(found['episode_length'], expected(length), rtol=1e-12)
      np.testing.assert_array_equal(found['flow_loss'], loss[-1])
      # The best score is of no account, unless it is one of the last.
      self.assertTrue((found['success'] <= success[-last:].max(axis=0)).all())

  @parameterized.parameters((4, False), (5, True), (9, True))
  def test_success_varies_over_the_last_five(self, count, there):
    success = np.random.default_rng(1).random((count, 3))
    found = report.final(self.make_run(), {'success': dict(enumerate(success))})
    self.assertEqual('success_std' in found, there)
    if there:
      last = success[-5:]
      variance = ((last - last.mean(axis=0)) ** 2).sum(axis=0) / 4
      np.testing.assert_allclose(found['success_std'], np.sqrt(variance), rtol=1e-12)

  def test_without_success_nothing_is_made_up(self):
    found = report.final(self.make_run(), {'reward': {3: np.array([1.0]), 5: np.array([2.0])}})
    self.assertEqual({name: value.tolist() for name, value in found.items()}, {'reward': [2.0]})
    self.assertEqual(report.final(self.make_run(), {}), {})

  def test_scores_read_the_later_of_two_and_one_kind_alone(self):
    self.write('fql', 20, success=[0.1, 0.2])
    self.write('fql', 20, success=[0.3, 0.4])
    with metrics.Writer(self.workdir / 'fql') as writer:
      writer.write(20, 'train', loss=[7.0, 8.0])
    for kind, expected in (('eval', {'success': [0.3, 0.4]}), ('train', {'loss': [7.0, 8.0]})):
      found = report.scores(self.make_run(), 'fql', kind)
      self.assertEqual({m: {s: v.tolist() for s, v in by.items()} for m, by in found.items()},
                       {m: {20: v} for m, v in expected.items()})  # fmt: skip
    self.assertEqual(report.scores(self.make_run(), 'nobody'), {})

  def test_steps_of_fine_tuning_count_from_the_start(self):
    name = online.phase('fql')
    self.write('fql', 20, STEPS)
    self.write(name, 5, 10)
    run = self.make_run(online_steps=10)
    self.assertEqual(list(report.scores(run, 'fql')['success']), [20, STEPS])
    self.assertEqual(list(report.scores(run, name)['success']), [STEPS + 5, STEPS + 10])

  def test_is_finished_at_its_last_score(self):
    run, tuned = self.make_run(), self.make_run(online_steps=10)
    finished = lambda: (report.is_finished(run, 'fql'), report.is_finished(tuned, 'fql'))
    self.assertEqual(finished(), (False, False))
    self.write('fql', 20)
    self.assertEqual(finished(), (False, False))
    self.write('fql', STEPS)
    self.assertEqual(finished(), (True, False))
    self.write(online.phase('fql'), 5)
    self.assertEqual(finished(), (True, False))
    self.write(online.phase('fql'), 10)
    self.assertEqual(finished(), (True, True))
    self.assertFalse(report.is_finished(run, 'iql'))

  def test_losses_alone_do_not_finish_a_run(self):
    with metrics.Writer(self.workdir / 'fql') as writer:
      writer.write(STEPS, 'train', loss=[1.0])
    self.assertFalse(report.is_finished(self.make_run(), 'fql'))

  def test_phases_are_those_that_were_scored(self):
    self.assertEqual(report.phases(self.make_run(online_steps=10)), [])
    self.write('iql', STEPS)
    self.write('fql', STEPS)
    self.write(online.phase('fql'), 10)
    tuned = report.phases(self.make_run(online_steps=10))
    self.assertEqual(tuned, ['fql', online.phase('fql'), 'iql'])
    self.assertEqual(report.phases(self.make_run()), ['fql', 'iql'])
