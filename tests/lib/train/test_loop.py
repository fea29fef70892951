"""Tests of lib.train.loop."""

import contextlib
import os
import pathlib
import shutil
import signal
import tempfile
from unittest import mock

import chex
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import absltest, parameterized

from lib.train import checkpoint, console, loop, metrics, signals
from tests.lib.train import toys

KEYS = jax.random.split(jax.random.key(1), 2)


def make_state(keys):
  return (jax.vmap(toys.init) if keys.ndim else toys.init)(keys)


def bits(tree) -> list:
  return [(x.dtype, x.shape, x.tobytes()) for x in map(np.asarray, jax.tree.leaves(tree))]


def assert_close(found, expected, **tolerance):
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **tolerance), found, expected)


def chunks(workdir=None, state=None, keys=KEYS, writer=None, **kwargs):
  """Yields what `loop.chunks` yields, with the state copied to the host."""
  saves = checkpoint.Checkpoints(workdir) if workdir else None
  kwargs = {'num_steps': 7, 'chunk_steps': 2, 'checkpoint_every': 4, **kwargs}
  state = make_state(keys) if state is None else state
  with writer or metrics.Writer(workdir) as writer:
    for done, now in loop.chunks(
      toys.step, toys.sample, toys.DATA, state, keys, writer=writer, checkpoints=saves, **kwargs
    ):
      now = jax.device_get(now)
      writer.write(done, 'eval', w=now.params['w'][..., 0])
      yield done, now


def read_records(workdir) -> list:
  """Returns the records without their times."""
  records = metrics.read(workdir / 'metrics.jsonl')
  return [{k: v for k, v in r.items() if k != 'steps_per_second'} for r in records]


class ChunksTest(parameterized.TestCase):
  whole: pathlib.Path
  seen: dict[int, toys.State]

  @classmethod
  def setUpClass(cls):
    """Makes the run that is never interrupted, and the states it yields by step."""
    super().setUpClass()
    cls.whole = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
    cls.seen = dict(chunks(cls.whole))

  def setUp(self):
    super().setUp()
    self.workdir = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
    self.enterContext(mock.patch.object(console, 'say'))

  @parameterized.parameters(1, 2)
  def test_is_a_python_loop_of_steps(self, chunk_steps):
    key = KEYS[0]
    state, seen = toys.init(key), [toys.init(key)]
    step, losses = jax.jit(toys.step), []
    for index in range(7):
      for_sample, for_step = jax.random.split(jax.random.fold_in(key, index))
      state, values = step(state, toys.sample(toys.DATA, for_sample), for_step)
      seen.append(state)
      losses.append(float(values['loss']))
    run = chunks(self.workdir, keys=key, chunk_steps=chunk_steps, checkpoint_every=chunk_steps * 2)
    for expected_done in [*range(0, 7, chunk_steps), 7]:  # the last chunk may be shorter
      done, found = next(run)
      self.assertEqual(done, expected_done)
      assert_close(found, seen[done], rtol=1e-5, atol=1e-6)
    self.assertEmpty(list(run))
    first = 0
    for record in read_records(self.workdir):
      if record['kind'] == 'train':
        mean = np.mean(losses[first : record['step']])
        np.testing.assert_allclose(record['loss'], mean, rtol=1e-5)
        first = record['step']
    self.assertEqual(first, 7)

  def test_first_yield_is_the_given_state(self):
    state = make_state(KEYS)
    done, found = next(chunks(state=state))
    self.assertEqual(done, 0)
    self.assertEqual(bits(found), bits(state))

  def test_no_steps(self):
    ((done, _),) = chunks(self.workdir, num_steps=0)
    self.assertEqual(done, 0)
    self.assertEmpty(checkpoint.Checkpoints(self.workdir).steps())

  def test_the_callers_state_stays_valid(self):
    state = toys.init(KEYS[0])
    state = state._replace(momentum=state.params)  # two leaves share a buffer
    before = bits(state)
    found = dict(chunks(state=state, keys=KEYS[0]))[7]
    self.assertEqual(bits(state), before)
    self.assertFalse(np.array_equal(found.params['w'], state.params['w']))

  @parameterized.parameters((2, 0), (4, 4), (6, 4))
  def test_killed_run_goes_on_with_the_same_bits(self, stop, saved):
    for done, _ in chunks(self.workdir):
      if done == stop:
        break
    resumed = dict(chunks(self.workdir))
    self.assertEqual(min(resumed), saved)
    self.check_is_whole(resumed)

  @parameterized.parameters((2, 'loop'), (6, 'caller'))
  def test_a_signal_saves_first(self, stop, who):
    with self.assertRaises(signals.Stopped), signals.handled():
      for done, _ in chunks(self.workdir):
        if done == stop:
          os.kill(os.getpid(), signal.SIGTERM)
          if who == 'caller':
            signals.check()
    self.assertEqual(checkpoint.Checkpoints(self.workdir).steps()[-1], stop)
    resumed = dict(chunks(self.workdir))
    self.assertEqual(min(resumed), stop)
    self.check_is_whole(resumed)

  def check_is_whole(self, resumed):
    """Checks that a run that went on left what the one that was never interrupted did."""
    for done, state in resumed.items():
      self.assertEqual(bits(state), bits(self.seen[done]))
    self.assertEqual(max(resumed), 7)
    self.assertEqual(read_records(self.workdir), read_records(self.whole))
    self.assertEqual(checkpoint.Checkpoints(self.workdir).steps()[-1], 7)

  def test_a_signal_in_a_chunk_stops_before_the_evaluation(self):
    class Interrupted(metrics.Writer):
      def train(self, step, means):
        super().train(step, means)
        os.kill(os.getpid(), signal.SIGINT)

    with self.assertRaises(signals.Stopped), signals.handled():
      for done, _ in chunks(self.workdir, writer=Interrupted(self.workdir)):
        self.assertEqual(done, 0)
    self.assertEqual(checkpoint.Checkpoints(self.workdir).steps(), [2])

  def test_without_signal_leaving_saves_nothing(self):
    for done, _ in chunks(self.workdir):
      if done == 2:
        break
    self.assertEmpty(checkpoint.Checkpoints(self.workdir).steps())

  def test_damaged_checkpoint_goes_back_to_the_older(self):
    shutil.copytree(self.whole, self.workdir, dirs_exist_ok=True)
    (self.workdir / 'checkpoints' / '7' / 'sha256').unlink()
    resumed = dict(chunks(self.workdir))
    self.assertEqual(list(resumed), [4, 6, 7])
    self.check_is_whole(resumed)

  def test_finished_run_is_evaluated_again(self):
    shutil.copytree(self.whole, self.workdir, dirs_exist_ok=True)
    resumed = dict(chunks(self.workdir))
    self.assertEqual(list(resumed), [7])
    self.check_is_whole(resumed)

  def test_more_steps_go_on_from_the_end(self):
    shutil.copytree(self.whole, self.workdir, dirs_exist_ok=True)
    longer = dict(chunks(self.workdir, num_steps=9))
    self.assertEqual(list(longer), [7, 8, 9])  # back to whole chunks at 8
    assert_close(longer[9], dict(chunks(num_steps=9))[9], rtol=1e-5, atol=1e-6)
    with self.assertRaisesRegex(ValueError, '9 steps, more than num_steps=7'):
      next(chunks(self.workdir))

  def test_checkpoint_of_another_state(self):
    shutil.copytree(self.whole, self.workdir, dirs_exist_ok=True)
    with self.assertRaises(checkpoint.CheckpointError):
      next(chunks(self.workdir, keys=KEYS[0]))
    self.assertEqual(read_records(self.workdir), read_records(self.whole))

  @parameterized.parameters(0, 1)
  def test_seeds_equal_single_runs(self, seed):
    alone = dict(chunks(self.workdir, keys=KEYS[seed]))
    for done, state in alone.items():
      of_seed = jax.tree.map(lambda x: x[seed], self.seen[done])
      assert_close(state, of_seed, rtol=1e-5, atol=1e-6)
    for one, both in zip(read_records(self.workdir), read_records(self.whole), strict=True):
      self.assertEqual((one.pop('step'), one.pop('kind')), (both.pop('step'), both.pop('kind')))
      of_seed = {name: values[seed] for name, values in both.items()}
      chex.assert_trees_all_close(one, of_seed, rtol=1e-5, atol=1e-6)

  def test_seeds_one_after_another_end_alike(self):
    for done, state in chunks(self.workdir, vmapped=False):
      assert_close(state, self.seen[done], rtol=1e-5, atol=1e-6)

  def test_no_seed_depends_on_another(self):
    state = jax.tree.map(lambda x: x.at[1].multiply(2), make_state(KEYS))
    other = dict(chunks(state=state, keys=KEYS.at[1].set(jax.random.key(9))))[7]
    for seed, alike in ((0, True), (1, False)):
      found, expected = (jax.tree.map(lambda x, s=seed: x[s], t) for t in (other, self.seen[7]))
      self.assertEqual(bits(found) == bits(expected), alike)

  @parameterized.parameters((0, 4), (-2, 4), (2, 0), (2, -2), (2, 3), (4, 2))
  def test_refuses_steps_that_do_not_fit(self, chunk_steps, checkpoint_every):
    run = chunks(self.workdir, chunk_steps=chunk_steps, checkpoint_every=checkpoint_every)
    with self.assertRaisesRegex(ValueError, 'chunk_steps='):
      next(run)
    self.assertEmpty(os.listdir(self.workdir))


class SendTest(parameterized.TestCase):
  """A caller that adds 100 to the number of steps, and 1 to the weights, before every chunk."""

  def setUp(self):
    super().setUp()
    self.workdir = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
    self.enterContext(mock.patch.object(console, 'say'))

  def run_it(self, workdir, fn=lambda done: None, sends=lambda done: True):
    """Returns what is yielded by step; `fn(done)` comes between the yield and what is sent."""
    seen = {}
    with metrics.Writer(workdir) as writer:
      run = loop.chunks(
        toys.step, toys.sample, toys.DATA, make_state(KEYS), KEYS,
        num_steps=6, chunk_steps=2, checkpoint_every=4, writer=writer,
        checkpoints=checkpoint.Checkpoints(workdir),
      )  # fmt: skip
      with contextlib.closing(run):
        done, state = next(run)
        while True:
          seen[done] = jax.device_get(state)
          fn(done)
          if done == 6:
            return seen
          params = jax.tree.map(lambda x: x + 1, state.params)
          sent = state._replace(params=params, steps=state.steps + 100)
          done, state = run.send(sent if sends(done) else None)

  def test_what_is_sent_is_trained(self):
    seen = self.run_it(self.workdir, sends=lambda done: done != 2)
    steps = {done: state.steps.tolist() for done, state in seen.items()}
    self.assertEqual(steps, {0: [0, 0], 2: [102, 102], 4: [104, 104], 6: [206, 206]})
    plain = dict(chunks(num_steps=6))
    self.assertFalse(np.allclose(seen[2].params['w'], plain[2].params['w'], atol=0.1))

  @parameterized.parameters('leaves', 'is killed', 'is told')
  def test_run_that_goes_on_ends_with_the_same_bits(self, how):
    whole = self.run_it(self.workdir / 'whole')

    def stop(done):
      if done == 2 and how == 'is told':  # saves what was yielded, to which the caller adds again
        os.kill(os.getpid(), signal.SIGTERM)
      if done == 6 and how != 'is told':
        raise KeyError('stop')

    workdir = self.workdir / 'stopped'
    error = signals.Stopped if how == 'is told' else KeyError
    with self.assertRaises(error), signals.handled():
      self.run_it(workdir, stop)
    if how == 'is killed':  # and the last checkpoint was not written
      shutil.rmtree(workdir / 'checkpoints' / '6')
    resumed = self.run_it(workdir)
    self.assertEqual(min(resumed), {'leaves': 6, 'is killed': 4, 'is told': 2}[how])
    for done, state in resumed.items():
      self.assertEqual(bits(state), bits(whole[done]))
    records = [read_records(path) for path in (workdir, self.workdir / 'whole')]
    self.assertEqual(*records)


class DivergedTest(parameterized.TestCase):
  """A run whose metrics and state break where `breaks` says: name -> (step, seed, value).

  It learns of that from its data, so that there is one program to compile.
  """

  def setUp(self):
    super().setUp()
    self.workdir = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
    self.enterContext(mock.patch.object(console, 'say'))

  def run_it(self, breaks, num_seeds=3, fn=lambda done: None):
    def step(state, batch, key):
      steps, seed = state['steps'] + 1, state['seed']

      def value(name):
        at, who, broken = batch[name]
        return jnp.where((steps == at) & (seed == who), broken, 1.0)

      state = {'steps': steps, 'seed': seed, 'weights': state['weights'] * value('state')}
      return state, {'loss': value('loss'), 'grad': value('grad'), 'count': steps}

    keys = jax.random.split(jax.random.key(0), num_seeds) if num_seeds else jax.random.key(0)
    zeros = jnp.zeros(keys.shape, jnp.int32)
    seed = jnp.arange(keys.size).reshape(keys.shape)
    state = {'steps': zeros, 'seed': seed, 'weights': jnp.ones((*keys.shape, 2))}
    nowhere = (0, 0, np.nan)
    data = {name: np.float32(breaks.get(name, nowhere)) for name in ('loss', 'grad', 'state')}
    with metrics.Writer(self.workdir) as writer:
      for done, _ in loop.chunks(
        step, lambda data, key: data, data, state, keys,
        num_steps=9, chunk_steps=3, checkpoint_every=3, writer=writer,
        checkpoints=checkpoint.Checkpoints(self.workdir),
      ):  # fmt: skip
        fn(done)

  @parameterized.parameters(
    ({'loss': (5, 1, np.nan)}, 5, 'loss', 1),
    ({'loss': (6, 2, np.inf)}, 6, 'loss', 2),
    ({'grad': (4, 0, -np.inf), 'loss': (5, 1, np.nan)}, 4, 'grad', 0),
    ({'loss': (5, 2, np.nan), 'state': (5, 2, np.nan)}, 5, 'loss', 2),
    ({'state': (6, 1, np.nan)}, 6, 'state', 1),
  )
  def test_names_what_came_first(self, breaks, step, metric, seed):
    for _ in range(2):  # the second run goes on from the checkpoint, into the same end
      with self.assertRaisesRegex(loop.Diverged, f'{metric} .*step {step}.*seed {seed}') as caught:
        self.run_it(breaks)
      error = caught.exception
      self.assertEqual((error.step, error.metric, error.seed), (step, metric, seed))
      self.assertEqual(checkpoint.Checkpoints(self.workdir).steps(), [3])
      _, state = checkpoint.Checkpoints(self.workdir).restore()
      np.testing.assert_array_equal(state['weights'], np.ones((3, 2)))
      self.assertEqual([r['step'] for r in metrics.read(self.workdir / 'metrics.jsonl')], [3])

  def test_both_metrics_of_one_step_are_named(self):
    with self.assertRaises(loop.Diverged) as caught:
      self.run_it({'loss': (2, 0, np.nan), 'grad': (2, 0, np.nan)}, num_seeds=0)
    self.assertCountEqual(caught.exception.metric.split(', '), ['loss', 'grad'])
    self.assertEqual(caught.exception.seed, 0)
    self.assertEmpty(metrics.read(self.workdir / 'metrics.jsonl'))

  def test_nothing_breaks(self):
    seen: list[int] = []
    self.run_it({}, fn=seen.append)
    self.assertEqual(seen, [0, 3, 6, 9])
    for record in metrics.read(self.workdir / 'metrics.jsonl'):
      self.assertEqual(record['count'], [record['step'] - 1.0] * 3)  # mean of three steps


if __name__ == '__main__':
  absltest.main()
