"""Tests of the largest first-order reduction of an event, with one more direction and without."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.special import log_softmax

from lib.pooling import profiles, shattering
from tests.lib.pooling.toys import CONTEXTS, K, exact

# In thousandths: a constant that is added must not swallow them.
VALUES = hnp.arrays(np.float64, (5, K), elements=st.integers(-5_000, 5_000).map(lambda i: i / 1000))
EVENT = np.array([True, False, False, True, False])
UNIFORM = np.log(np.full(4, 0.25))


@exact
def report(logp, directions, w, event):
  """The largest reductions for a budget of 0.2, without w and with it, and the gain."""
  g = profiles.event_score(event, logp)
  more = jnp.concatenate([directions, w[None]])
  return (
    shattering.max_reduction(logp, directions, g, 0.2),
    shattering.max_reduction(logp, more, g, 0.2),
    shattering.shatter_gain(logp, directions, w, g, 0.2),
  )


def least_squares(g, functions, logp):
  """The projection by NumPy's weighted least squares."""
  roots = np.exp(0.5 * logp)
  coefficients = np.linalg.lstsq((functions * roots).T, g * roots)[0]
  return coefficients @ functions


class ShatteringTest(chex.TestCase):
  def test_fixture(self):
    directions, event = np.array([[-1.0, 1, -1, 1]]), np.arange(4) == 0
    w = np.array([3.0, -1, -1, -1])
    rest = w - exact(profiles.project)(w, directions, UNIFORM)
    np.testing.assert_allclose(rest, [2, 0, -2, 0], atol=1e-14)
    before, after, gain = report(UNIFORM, directions, w, event)
    np.testing.assert_allclose(before, 0.05, rtol=1e-14)
    np.testing.assert_allclose(after, 0.08660254037844387, rtol=1e-14)
    np.testing.assert_allclose(gain, 0.08660254037844387 - 0.05, rtol=1e-13)
    # No gain from a direction that S has, nor from one that is orthogonal to the event.
    for w in ([-2.0, 2, -2, 2], [0.0, 0, 0, 0], [1.0, 1, 1, 1], [0.0, 1, 0, -1], [-5.0, 6, -5, 4]):
      before, after, gain = report(UNIFORM, directions, np.array(w), event)
      np.testing.assert_allclose(gain, 0.0, atol=1e-16)
      np.testing.assert_allclose([before, after], 0.05, rtol=1e-14)

  def test_without_a_first_direction(self):
    # w is the event's score, so that all of it is reached.
    w = np.array([3.0, -1, -1, -1])
    nothing, g = np.zeros((0, 4)), w / 4
    gain = exact(shattering.shatter_gain)(UNIFORM, nothing, w, g, 0.2)
    np.testing.assert_allclose(gain, 0.2 * np.sqrt(3 / 16), rtol=1e-14)
    self.assertEqual(exact(shattering.max_reduction)(UNIFORM, nothing, g, 0.2), 0.0)

  @settings(max_examples=25)
  @given(values=VALUES, constants=hnp.arrays(np.float64, (3, 1), elements=st.floats(-5, 5)))
  def test_gain_is_the_difference_and_constants_do_not_matter(self, values, constants):
    logp, directions, w = log_softmax(values[0]), values[1:3], values[3]
    before, after, gain = report(logp, directions, w, EVENT)
    np.testing.assert_allclose(gain, after - before, atol=1e-14)
    self.assertGreaterEqual(gain, 0.0)
    moved = report(logp, directions + constants[:2], w + constants[2], EVENT)
    np.testing.assert_allclose(moved[1], after, atol=1e-9)
    order = np.array([3, 0, 4, 1, 2])
    moved = report(logp[order], directions[:, order], w[order], EVENT[order])
    np.testing.assert_allclose(moved, (before, after, gain), atol=1e-12)

  def test_closed_form_of_the_gain(self):
    rng = np.random.default_rng(0)
    logp = log_softmax(rng.normal(size=K))
    p, values = np.exp(logp), rng.normal(size=(3, K))
    values -= (values @ p)[:, None]
    g, u = EVENT - p[EVENT].sum(), values[2] - least_squares(values[2], values[:2], logp)
    share = (p @ (g * u)) ** 2 / (p @ u**2)
    base = p @ least_squares(g, values[:2], logp) ** 2
    before, after = 0.2 * np.sqrt(base), 0.2 * np.sqrt(base + share)
    found = report(logp, values[:2], values[2], EVENT)
    np.testing.assert_allclose(found, (before, after, after - before), rtol=1e-10)

  def test_no_edit_of_that_size_reduces_more(self):
    rng = np.random.default_rng(1)
    logp, directions = CONTEXTS[0, 0, 0], rng.normal(size=(3, K))
    _, after, _ = report(logp, directions[:2], directions[2], EVENT)
    p = np.exp(logp)
    edits = rng.normal(size=(2000, 3)) @ (directions - (directions @ p)[:, None])
    edits *= 0.2 / np.sqrt(edits**2 @ p)[:, None]
    reductions = -edits @ (p * (EVENT - p[EVENT].sum()))
    self.assertLessEqual(reductions.max(), after * (1 + 1e-12))
    self.assertGreater(reductions.max(), after * 0.99)

  @chex.variants(with_jit=True)
  def test_contexts_one_by_one(self):
    logp = CONTEXTS[:3, 0, 0]
    directions = np.random.default_rng(2).normal(size=(3, 3, K))
    p = np.exp(logp)
    g = EVENT - np.sum(p * EVENT, axis=-1, keepdims=True)
    with jax.enable_x64(True):
      gains = self.variant(jax.vmap(shattering.shatter_gain, (0, 0, 0, 0, None)))(
        logp, directions[:, :2], directions[:, 2], g, 0.2
      )
    for i, gain in enumerate(gains):
      expected = report(logp[i], directions[i, :2], directions[i, 2], EVENT)[2]
      np.testing.assert_allclose(gain, expected, rtol=1e-9)

  @chex.variants(with_jit=True)
  def test_gradients_are_finite_where_nothing_is_gained(self):
    def gain(w, g, again):
      directions = jnp.stack([jnp.array([-1.0, 1, -1, 1]), again * w])
      return shattering.shatter_gain(UNIFORM, directions, w, g, 0.2)

    g = np.array([0.75, -0.25, -0.25, -0.25])
    gradient = self.variant(jax.grad(gain, (0, 1)))
    for w in ([-2.0, 2, -2, 2], [0.0, 0, 0, 0], [0.0, 1, 0, -1], [3.0, -1, -1, -1]):
      for score, again in ((g, 0.0), (g, 2.0), (0 * g, 0.0)):
        chex.assert_tree_all_finite(gradient(np.array(w), score, again))

  def test_refuses(self):
    logp, g, directions = CONTEXTS[0, 0, 0], np.zeros(K), np.zeros((2, K))
    for call in (
      lambda: shattering.max_reduction(logp, np.zeros((2, K + 1)), g, 0.1),
      lambda: shattering.max_reduction(logp, directions, g[1:], 0.1),
      lambda: shattering.shatter_gain(logp, directions, g[1:], g, 0.1),
    ):
      with self.assertRaises(AssertionError):
        jax.eval_shape(call)
    with self.assertRaisesRegex(ValueError, 'rank tolerance'):
      shattering.max_reduction(logp, directions, g, 0.1, 2.0)
