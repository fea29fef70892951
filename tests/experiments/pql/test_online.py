"""Tests of fine-tuning: transitions of what was played, batches with them, the loop around."""

import pathlib
import tempfile
from unittest import mock

import chex
import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
from absl.testing import parameterized

from configs.pql import ogbench
from experiments.pql import online, train
from experiments.pql.methods import agent, bc_flow
from lib.envs import evaluate as rollout
from lib.rl import replay
from lib.train import app, checkpoint, console
from lib.train import metrics as records
from tests.lib.envs import toys

LENGTHS = (3, 1, 4, 2)
TERMINATED = (True, False, False, True)


def recorded(lengths=LENGTHS, terminated=TERMINATED):
  """Episodes as `run_episodes` records them, every number another one."""
  rng = np.random.default_rng(0)
  return rollout.Episodes(
    success=np.array(terminated),
    returns=np.zeros(len(lengths)),
    lengths=np.array(lengths),
    terminated=np.array(terminated),
    observations=[rng.normal(size=(n + 1, 3)).astype(np.float32) for n in lengths],
    actions=[rng.uniform(-1, 1, (n, 2)).astype(np.float32) for n in lengths],
    rewards=[rng.normal(size=n) for n in lengths],
  )


class TransitionsTest(chex.TestCase):
  @parameterized.parameters(range(4), range(1, 3), range(2, 3))
  def test_is_a_loop_over_the_steps(self, *which):
    episodes = recorded()
    expected = []
    for i in which:
      for t in range(LENGTHS[i]):
        last = t == LENGTHS[i] - 1
        expected.append(
          {
            'observations': episodes.observations[i][t],
            'actions': episodes.actions[i][t],
            'rewards': episodes.rewards[i][t],
            # The clock is no reason not to bootstrap.
            'masks': float(not (last and TERMINATED[i])),
            'next_observations': episodes.observations[i][t + 1],
            'next_actions': np.zeros(2) if last else episodes.actions[i][t + 1],
            'next_action_masks': float(not last),
          }
        )
    found = online.transitions(episodes, which)
    self.assertCountEqual(found, train.SAMPLED)
    for name, column in found.items():
      self.assertEqual(column.dtype, np.float32, name)
      np.testing.assert_array_equal(column, np.float32([row[name] for row in expected]), name)


def echo_of(state, batch, key):
  """An update of a method that learns nothing, and tells what it was given."""
  return (state, batch, jax.random.key_data(key)), {'loss': jnp.sum(batch['rewards'])}


ECHO = agent.Method(init=None, update=echo_of, act=None)


def rows_of(rewards):
  rewards = jnp.asarray(rewards, jnp.float32)
  return {'rewards': rewards, 'observations': jnp.stack([rewards, rewards], axis=1)}


class UpdateTest(chex.TestCase):
  def config(self, balanced):
    config = ogbench.get_config().online
    config.balanced = balanced
    return ml_collections.FrozenConfigDict(config)

  def buffer(self, count, capacity=100):
    buffer = replay.empty(rows_of([0.0]), capacity)
    return replay.add(buffer, rows_of(np.ones(count)), jnp.ones(count, bool))

  def test_with_nothing_played_yet_it_is_the_methods_own(self):
    spec = agent.Spec(observation_dim=2, action_dim=1)
    agent_config = ogbench.get_config().agent
    agent_config.hidden_dims = (4,)
    method = bc_flow.make(agent_config, spec)
    batch = {'observations': jnp.ones((8, 2)), 'actions': jnp.linspace(-1.0, 1.0, 8)[:, None]}
    key = jax.random.key(2)
    updates = [
      online.update_with(method, self.config(balanced), num_offline=50)
      for balanced in (False, True)
    ]
    buffer = replay.empty(batch, 10)

    @jax.jit
    def both(key):
      state = method.init(jax.random.key(0))
      own = method.update(state, batch, jax.random.split(key)[1])
      return own, [update(online.State(state, buffer), batch, key) for update in updates]

    (own, own_metrics), all_tuned = both(key)
    for tuned, metrics in all_tuned:
      chex.assert_trees_all_equal(tuned.agent, own)
      chex.assert_trees_all_equal(metrics, own_metrics)
      chex.assert_trees_all_equal(tuned.buffer, buffer)

  def test_the_key_of_the_mixing_is_not_that_of_the_update(self):
    update = online.update_with(ECHO, self.config(False), num_offline=50)
    key = jax.random.key(2)
    state = online.State((), self.buffer(50))
    batch = rows_of(np.zeros(64))
    tuned, metrics = update(state, batch, key)
    _, mixed, used = tuned.agent
    mix_key, update_key = jax.random.split(key)
    np.testing.assert_array_equal(used, jax.random.key_data(update_key))
    chex.assert_trees_all_equal(mixed, replay.mix(state.buffer, batch, 0.5, mix_key))
    self.assertEqual(float(metrics['loss']), float(mixed['rewards'].sum()))
    chex.assert_trees_all_equal(tuned.buffer, state.buffer)

  @parameterized.parameters(
    (False, 60, 240, 0.2),
    (False, 60, 20, 0.75),
    (True, 60, 240, 0.5),
    (True, 1, 10**6, 0.5),
    (False, 150, 100, 0.5),  # of the 150 that came, 100 are left
  )
  def test_the_share_of_what_was_played(self, balanced, played, num_offline, share):
    state = online.State((), replay.empty(rows_of([0.0]), 100))
    for start in range(0, played, 60):
      count = min(60, played - start)
      buffer = replay.add(state.buffer, rows_of(np.ones(60)), jnp.arange(60) < count)
      state = state._replace(buffer=buffer)
    update = online.update_with(ECHO, self.config(balanced), num_offline)
    tuned, _ = update(state, rows_of(np.zeros(10_000)), jax.random.key(1))
    _, batch, _ = tuned.agent
    self.assertAlmostEqual(
      float(batch['rewards'].mean()), share, delta=5 * np.sqrt(share * (1 - share) / 10_000)
    )
    np.testing.assert_array_equal(batch['observations'], np.stack([batch['rewards']] * 2, axis=1))


class FineTuneTest(chex.TestCase):
  """Two seeds of a behaviour flow, fine-tuned on a walk of at most 12 steps."""

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.pool = cls.enterClassContext(rollout.EnvPool(toys.make_walk, num_envs=2, num_workers=1))
    cls.enterClassContext(mock.patch.object(console, 'say'))
    cls.config = ogbench.get_config()
    cls.config.num_seeds, cls.config.batch_size = 2, 4
    cls.config.agent.hidden_dims, cls.config.agent.flow_steps = (4,), 2
    changes = {'steps': 8, 'chunk_steps': 2, 'episodes': 2, 'capacity': 40, 'eval_every': 4}
    cls.config.online.update(changes)
    cls.method = bc_flow.make(cls.config.agent, agent.Spec(observation_dim=3, action_dim=2))
    cls.data = online.transitions(recorded(), range(4))
    cls.keys = jax.random.split(jax.random.key(0), 2)
    cls.trained = jax.jit(jax.vmap(cls.method.init))(cls.keys)
    cls.directory = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
    cls.scored = cls.fine_tune(cls.directory / 'whole')

  @classmethod
  def run_in(cls, workdir):
    return app.Run(ml_collections.FrozenConfigDict(cls.config), 'pql', 'c.py', workdir)

  @classmethod
  def fine_tune(cls, workdir, fn=lambda: None):
    """Returns the parameters that were scored."""
    scored = []

    def score(method, params):
      fn()
      scored.append(jax.device_get(params))
      return {'success': np.zeros(2)}

    online.fine_tune(
      cls.run_in(workdir), 'bc_flow', cls.method, cls.data, cls.pool, score, cls.trained, cls.keys
    )
    return scored

  def read(self, workdir):
    """The last checkpoint, and the records without their times."""
    directory = workdir / online.phase('bc_flow')
    kept = records.read(directory / 'metrics.jsonl')
    kept = [{k: v for k, v in r.items() if k != 'steps_per_second'} for r in kept]
    return checkpoint.Checkpoints(directory).restore(), kept

  def play(self, step, seed=0):
    config = self.config.copy_and_resolve_references()
    config.seed = seed
    run = self.run_in(self.directory)._replace(config=ml_collections.FrozenConfigDict(config))
    return online.play(run, self.method, self.trained.params, self.pool, step)

  def test_scores_when_due_and_trains_with_what_it_played(self):
    (done, state), kept = self.read(self.directory / 'whole')
    self.assertEqual(done, 8)
    self.assertEqual([r['step'] for r in kept if r['kind'] == 'eval'], [4, 8])
    chex.assert_trees_all_equal(self.scored[-1], state['agent']['params'])
    moved = jax.tree.map(lambda a, b: bool((a != b).any()), *self.scored)
    self.assertTrue(any(jax.tree.leaves(moved)))
    # Four times two episodes a seed, of up to 12 steps each, of which 40 are kept.
    for added, rewards in zip(
      state['buffer']['added'], state['buffer']['rows']['rewards'], strict=True
    ):
      self.assertBetween(int(added), 8, 96)
      self.assertEqual(int((rewards != 0).sum()), min(int(added), 40))

  def test_stopped_fine_tuning_goes_on_with_the_same_bits(self):
    workdir, calls = self.directory / 'stopped', []

    def stop():
      calls.append(())
      if len(calls) == 2:
        raise KeyError('stop')

    with self.assertRaises(KeyError):
      self.fine_tune(workdir, stop)
    saves = workdir / online.phase('bc_flow')
    self.assertEqual(checkpoint.Checkpoints(saves).steps(), [4, 8])
    (saves / 'checkpoints' / '8' / 'sha256').unlink()  # as if killed while it was written
    scored = self.fine_tune(workdir)
    chex.assert_trees_all_equal(scored, self.scored)  # also the score of step 4, which comes again
    (_, mine), my_records = self.read(workdir)
    (_, theirs), their_records = self.read(self.directory / 'whole')
    chex.assert_trees_all_equal(mine, theirs)
    self.assertEqual(my_records, their_records)

  def test_plays_by_the_seed_and_the_step_alone(self):
    first, again, other_step, other_seed = (
      self.play(*where) for where in ((2,), (2,), (4,), (2, 1))
    )
    chex.assert_trees_all_equal(first, again)
    for other in (other_step, other_seed):
      self.assertFalse(
        np.isclose(other[0]['observations'][:, 0], first[0]['observations'][:, 0]).any()
      )
    rows, valid = first
    self.assertCountEqual(rows, self.data)
    chex.assert_shape(rows['observations'], (*valid.shape, 3))
    self.assertEqual(valid.shape[1] % 2, 0)
    for i in range(2):
      count = valid[i].sum()
      self.assertTrue(valid[i, :count].all())  # padding comes last
      ends = np.flatnonzero(rows['next_action_masks'][i, :count] == 0)
      self.assertLen(ends, 2)
      self.assertEqual(ends[-1], count - 1)
      # Where no episode ends, the next observation is that of the next row.
      inside = np.setdiff1d(np.arange(count), ends)
      np.testing.assert_array_equal(
        rows['next_observations'][i, inside], rows['observations'][i, inside + 1]
      )
    self.assertFalse(np.isclose(rows['observations'][0, 0], rows['observations'][1, 0]).any())
