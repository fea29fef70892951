"""Tests of the Wasserstein bound on the bandits, against fields whose distance is known."""

import chex
import jax
import jax.numpy as jnp
import numpy as np

from experiments.pql import bandit, evaluate
from experiments.pql.methods import agent
from lib.flow import paths

ROWS = 128


def batch_of(sample, size=ROWS):
  columns = sample(size, 0)
  return {name: jnp.asarray(columns[name]) for name in ('observations', 'actions')}


def exact_and_shifted(task):
  """A method whose flow is the field of the task's law, and a constant c (A,) as parameters."""

  def flow(shift, observations, actions, times):
    centres = jnp.asarray(task.centres(observations))
    exact = paths.mixture_marginal_velocity(actions, times, centres, bandit.MODE_STD)
    return exact + shift

  return agent.Method(init=None, update=None, act=None, flow=flow)


def measure(task, batch):
  method = exact_and_shifted(task)
  key = jax.random.key(1)
  return jax.jit(lambda shift: evaluate.wasserstein(task, batch, method, shift, key))


class WassersteinTest(chex.TestCase):
  def test_eight_modes(self):
    task = bandit.BANDITS['eight_modes']
    wasserstein = measure(task, batch_of(task.sample))
    exact = wasserstein(jnp.zeros(2))
    self.assertEqual(float(exact['w2_coupled']), 0.0)
    self.assertEqual(float(exact['w2_bound']), 0.0)
    # The modes separate what begins together.
    self.assertGreater(float(exact['w2_exponent']), 0.0)
    for shift in ([1e-3, 0.0], [0.0, -0.1], [0.5, 0.5]):
      found = wasserstein(jnp.array(shift))
      self.assertGreater(float(found['w2_coupled']), 0.0)
      self.assertLessEqual(float(found['w2_coupled']), float(found['w2_bound']))
      # A constant changes no Jacobian.
      np.testing.assert_allclose(found['w2_exponent'], exact['w2_exponent'], rtol=1e-5)
    twice = wasserstein(2 * jnp.array(shift))
    np.testing.assert_allclose(twice['w2_bound'], 2 * found['w2_bound'], rtol=1e-4)

  def test_gaussian_in_closed_form(self):
    # Both fields stretch at the rate c(t) = (log σ_t)', so that a constant error e leaves
    # e ∫ exp(∫_t^1 c) dt = e σ ∫ dt / σ_t, and the bound is no bound but the distance itself.
    std, centre = bandit.MODE_STD, np.array([0.3, -0.2], np.float32)
    centres = lambda observations: np.broadcast_to(centre, (len(observations), 1, 2))
    task = bandit.Bandit(sample=None, centres=centres, reward=None)
    noise = np.random.default_rng(0).normal(size=(ROWS, 2)).astype(np.float32)
    batch = {'observations': jnp.zeros((ROWS, 1)), 'actions': jnp.asarray(centre + std * noise)}
    shift = np.array([0.3, 0.4])  # of length 1/2
    found = measure(task, batch)(jnp.asarray(shift, jnp.float32))
    times = np.linspace(0.0, 1.0, 10_001)
    closed = 0.5 * std * np.trapezoid(1 / np.sqrt((1 - times) ** 2 + (std * times) ** 2), times)
    # Steps of 1/100 against a rate that changes within σ = 1/20 of the end.
    np.testing.assert_allclose(found['w2_coupled'], closed, rtol=0.05)
    np.testing.assert_allclose(found['w2_bound'], closed, rtol=0.05)
    np.testing.assert_allclose(found['w2_exponent'], np.log(std), rtol=0.02)

  def test_centres_are_where_the_actions_are(self):
    for name, task in bandit.BANDITS.items():
      batch = batch_of(task.sample, 2_000)
      centres = np.asarray(task.centres(batch['observations']))
      gaps = np.linalg.norm(centres - np.asarray(batch['actions'])[:, None], axis=-1)
      nearest = gaps.argmin(axis=1)
      counts = np.bincount(nearest, minlength=centres.shape[1])
      share = 1 / len(counts)
      np.testing.assert_allclose(
        counts / 2_000, share, atol=5 * np.sqrt(share * (1 - share) / 2_000), err_msg=name
      )
      # The squared distance in two dimensions has the mean 2 σ², and the deviation 2 σ².
      spread = np.mean(gaps.min(axis=1) ** 2) / (2 * bandit.MODE_STD**2)
      self.assertAlmostEqual(spread, 1.0, delta=5 / np.sqrt(2_000))
