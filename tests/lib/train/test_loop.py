"""Tests of lib.train.loop."""

import os
import pathlib
import shutil
import signal
import tempfile
import unittest
from collections.abc import Iterator
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import absltest, parameterized
from jax.experimental.compilation_cache import compilation_cache

from lib.train import checkpoint, console, loop, metrics, signals
from tests.lib.train import toys

KEYS = jax.random.split(jax.random.key(1), 2)


def setUpModule():
  """Lets the many runs below share the machine code of their few programs."""
  directory = tempfile.TemporaryDirectory()
  unittest.addModuleCleanup(directory.cleanup)
  options = {'compilation_cache_dir': directory.name, 'persistent_cache_min_compile_time_secs': 0}
  for name, value in ((f'jax_{name}', value) for name, value in options.items()):
    unittest.addModuleCleanup(jax.config.update, name, getattr(jax.config, name))
    jax.config.update(name, value)
  unittest.addModuleCleanup(compilation_cache.reset_cache)
  compilation_cache.reset_cache()


def make_state(keys):
  return (jax.vmap(toys.init) if keys.ndim else toys.init)(keys)


def bits(tree) -> list:
  return [(x.dtype, x.shape, x.tobytes()) for x in map(np.asarray, jax.tree.leaves(tree))]


def assert_close(found, expected, **tolerance):
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **tolerance), found, expected)


class ChunksTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    directory = tempfile.TemporaryDirectory()
    self.addCleanup(directory.cleanup)
    self.workdir = pathlib.Path(directory.name)
    self.enter_context(mock.patch.object(console, 'say'))

  def chunks(self, workdir=None, state=None, keys=KEYS, step=toys.step, writer=None, **kwargs):
    """Yields what `loop.chunks` yields, with the state copied to the host."""
    saves = checkpoint.Checkpoints(workdir) if workdir else None
    kwargs = {'num_steps': 7, 'chunk_steps': 2, 'checkpoint_every': 4, **kwargs}
    state = make_state(keys) if state is None else state
    with writer or metrics.Writer(workdir) as writer:
      for done, now in loop.chunks(
        step, toys.sample, toys.DATA, state, keys, writer=writer, checkpoints=saves, **kwargs
      ):
        now = jax.device_get(now)
        writer.write(done, 'eval', w=now.params['w'][..., 0])
        yield done, now

  def finish(self, run: Iterator) -> toys.State:
    return list(run)[-1][1]

  def records(self, workdir) -> list:
    """Returns the records without their times."""
    records = metrics.read(workdir / 'metrics.jsonl')
    return [{k: v for k, v in r.items() if k != 'steps_per_second'} for r in records]

  @parameterized.parameters(1, 3, 9)
  def test_is_a_python_loop_of_steps(self, chunk_steps):
    key = KEYS[0]
    state, seen = toys.init(key), [toys.init(key)]
    step, losses = jax.jit(toys.step), []
    for index in range(7):
      for_sample, for_step = jax.random.split(jax.random.fold_in(key, index))
      state, values = step(state, toys.sample(toys.DATA, for_sample), for_step)
      seen.append(state)
      losses.append(float(values['loss']))
    run = self.chunks(
      self.workdir, keys=key, chunk_steps=chunk_steps, checkpoint_every=chunk_steps * 2
    )
    for expected_done in [*range(0, 7, chunk_steps), 7]:  # the last chunk may be shorter
      done, found = next(run)
      self.assertEqual(done, expected_done)
      assert_close(found, seen[done], rtol=1e-5, atol=1e-6)
    self.assertEmpty(list(run))
    first = 0
    for record in self.records(self.workdir):
      if record['kind'] == 'train':
        mean = np.mean(losses[first : record['step']])
        np.testing.assert_allclose(record['loss'], mean, rtol=1e-5)
        first = record['step']
    self.assertEqual(first, 7)

  def test_first_yield_is_the_given_state(self):
    state = make_state(KEYS)
    done, found = next(self.chunks(state=state))
    self.assertEqual(done, 0)
    self.assertEqual(bits(found), bits(state))

  def test_no_steps(self):
    ((done, _),) = self.chunks(self.workdir, num_steps=0)
    self.assertEqual(done, 0)
    self.assertEmpty(checkpoint.Checkpoints(self.workdir).steps())

  def test_the_callers_state_stays_valid(self):
    state = toys.init(KEYS[0])
    state = state._replace(momentum=state.params)  # two leaves share a buffer
    before = bits(state)
    found = self.finish(self.chunks(state=state, keys=KEYS[0]))
    self.assertEqual(bits(state), before)
    self.assertFalse(np.array_equal(found.params['w'], state.params['w']))

  def test_resumes_at_any_chunk_with_the_same_bits(self):
    whole, part = self.workdir / 'whole', self.workdir / 'part'
    seen = dict(self.chunks(whole))
    self.assertEqual(checkpoint.Checkpoints(whole).steps(), [4, 7])
    for stop in seen:
      with self.subTest(stop=stop):
        shutil.rmtree(part, ignore_errors=True)
        # Killed before the chunk's end is saved: the run goes on from what was due before.
        for done, _ in self.chunks(part):
          if done == stop:
            break
        resumed = list(self.chunks(part))
        self.assertEqual(resumed[0][0], {0: 0, 2: 0, 4: 4, 6: 4, 7: 7}[stop])
        for done, found in resumed:
          self.assertEqual(bits(found), bits(seen[done]))
        self.assertEqual(self.records(part), self.records(whole))
        self.assertEqual(checkpoint.Checkpoints(part).steps()[-1], 7)

  def test_a_signal_saves_first(self):
    whole = self.workdir / 'whole'
    seen = dict(self.chunks(whole))
    for stop, who in ((2, 'loop'), (6, 'caller'), (0, 'loop')):
      with self.subTest(stop=stop, who=who):
        part = self.workdir / f'{stop}'
        with self.assertRaises(signals.Stopped), signals.handled():
          for done, _ in self.chunks(part):
            if done == stop:
              os.kill(os.getpid(), signal.SIGTERM)
              if who == 'caller':
                signals.check()
        steps = checkpoint.Checkpoints(part).steps()
        self.assertEqual(steps, {0: [], 2: [2], 6: [4, 6]}[stop])
        resumed = list(self.chunks(part))
        self.assertEqual(resumed[0][0], stop)
        self.assertEqual(bits(resumed[-1][1]), bits(seen[7]))
        self.assertEqual(self.records(part), self.records(whole))

  def test_a_signal_in_a_chunk_stops_before_the_evaluation(self):
    class Interrupted(metrics.Writer):
      def train(self, step, means):
        super().train(step, means)
        os.kill(os.getpid(), signal.SIGINT)

    with self.assertRaises(signals.Stopped), signals.handled():
      for done, _ in self.chunks(self.workdir, writer=Interrupted(self.workdir)):
        self.assertEqual(done, 0)
    self.assertEqual(checkpoint.Checkpoints(self.workdir).steps(), [2])

  def test_without_signal_leaving_saves_nothing(self):
    for done, _ in self.chunks(self.workdir):
      if done == 2:
        break
    self.assertEmpty(checkpoint.Checkpoints(self.workdir).steps())

  def test_damaged_checkpoint_goes_back_to_the_older(self):
    whole, part = self.workdir / 'whole', self.workdir / 'part'
    expected = self.finish(self.chunks(whole))
    list(self.chunks(part))
    (part / 'checkpoints' / '7' / 'sha256').unlink()
    resumed = list(self.chunks(part))
    self.assertEqual(resumed[0][0], 4)
    self.assertEqual(bits(resumed[-1][1]), bits(expected))
    self.assertEqual(self.records(part), self.records(whole))

  def test_more_steps_go_on_from_the_end(self):
    list(self.chunks(self.workdir))
    longer = list(self.chunks(self.workdir, num_steps=9))
    self.assertEqual([done for done, _ in longer], [7, 8, 9])  # back to whole chunks at 8
    assert_close(longer[-1][1], self.finish(self.chunks(num_steps=9)), rtol=1e-5, atol=1e-6)
    with self.assertRaisesRegex(ValueError, '9 steps, more than num_steps=7'):
      next(self.chunks(self.workdir))

  def test_checkpoint_of_another_state(self):
    list(self.chunks(self.workdir))
    before = (self.workdir / 'metrics.jsonl').read_bytes()
    with self.assertRaises(checkpoint.CheckpointError):
      next(self.chunks(self.workdir, keys=jax.random.split(KEYS[0], 3)))
    self.assertEqual((self.workdir / 'metrics.jsonl').read_bytes(), before)

  def test_seeds_equal_single_runs(self):
    together = self.finish(self.chunks(self.workdir))
    records = self.records(self.workdir)
    for seed, key in enumerate(KEYS):
      alone = self.finish(self.chunks(self.workdir / 'alone' / str(seed), keys=key))
      assert_close(jax.tree.map(lambda x, s=seed: x[s], together), alone, rtol=1e-5, atol=1e-6)
      for one, both in zip(self.records(self.workdir / 'alone' / str(seed)), records, strict=True):
        self.assertEqual(one['step'], both['step'])
        names = {'w', 'loss', 'noise'} & set(one)
        for name in names:
          np.testing.assert_allclose(one[name], both[name][seed], rtol=1e-4, atol=1e-6)

  def test_no_seed_depends_on_another(self):
    both = self.finish(self.chunks())
    state = jax.tree.map(lambda x: x.at[1].multiply(2), make_state(KEYS))
    other = self.finish(self.chunks(state=state, keys=KEYS.at[1].set(jax.random.key(9))))
    first, second = (lambda tree, s=s: jax.tree.map(lambda x: x[s], tree) for s in (0, 1))
    self.assertEqual(bits(first(other)), bits(first(both)))
    self.assertNotEqual(bits(second(other)), bits(second(both)))

  @parameterized.parameters((0, 4), (-2, 4), (2, 0), (2, -2), (2, 3), (4, 2))
  def test_refuses_steps_that_do_not_fit(self, chunk_steps, checkpoint_every):
    run = self.chunks(self.workdir, chunk_steps=chunk_steps, checkpoint_every=checkpoint_every)
    with self.assertRaisesRegex(ValueError, 'chunk_steps='):
      next(run)
    self.assertEmpty(os.listdir(self.workdir))


class DivergedTest(parameterized.TestCase):
  """A run whose metrics and state break where `breaks` says: name -> (step, seed, value)."""

  def setUp(self):
    super().setUp()
    directory = tempfile.TemporaryDirectory()
    self.addCleanup(directory.cleanup)
    self.workdir = pathlib.Path(directory.name)
    self.enter_context(mock.patch.object(console, 'say'))

  def run_it(self, breaks, num_seeds=3, fn=lambda done: None):
    def step(state, batch, key):
      steps, seed = state['steps'] + 1, state['seed']

      def value(name):
        at, who, broken = breaks.get(name, (0, 0, 0.0))
        return jnp.where((steps == at) & (seed == who), broken, 1.0)

      state = {'steps': steps, 'seed': seed, 'weights': state['weights'] * value('state')}
      return state, {'loss': value('loss'), 'grad': value('grad'), 'count': steps}

    keys = jax.random.split(jax.random.key(0), num_seeds) if num_seeds else jax.random.key(0)
    zeros = jnp.zeros(keys.shape, jnp.int32)
    seed = jnp.arange(keys.size).reshape(keys.shape)
    state = {'steps': zeros, 'seed': seed, 'weights': jnp.ones((*keys.shape, 2))}
    with metrics.Writer(self.workdir) as writer:
      for done, _ in loop.chunks(
        step, lambda data, key: data, {'x': np.ones(2)}, state, keys,
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
