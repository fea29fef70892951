"""Tests of the geometry of profiles, and of what a change of weights does to a pool."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.special import log_softmax

from lib.pooling import pools, profiles, welfare
from tests.lib.pooling.toys import BETA, CONTEXTS, LOGITS, WEIGHTS, K, N, exact

LOGP = CONTEXTS[0, 0, 0]
FUNCTIONS = np.random.default_rng(1).normal(size=(3, K))
# In thousandths: a constant that is added must not swallow them.
VALUES = hnp.arrays(np.float64, (N, K), elements=st.integers(-5_000, 5_000).map(lambda i: i / 1000))

basis_of = exact(profiles.orthonormal_basis)
project = exact(profiles.project)


def gram(functions, logp):
  return functions @ (np.exp(logp) * functions).T


def least_squares(g, functions, logp):
  """The projection by NumPy's weighted least squares."""
  roots = np.exp(0.5 * logp)
  coefficients = np.linalg.lstsq((functions * roots).T, g * roots)[0]
  return coefficients @ functions


@exact
def reweighted(logits, beta, dbeta, event):
  """What a change of weights does to the pool, exactly and as the profiles say."""
  logp = jax.nn.log_softmax(logits)
  before, after = pools.log_pool(logp, beta), pools.log_pool(logp, beta + dbeta)
  v = profiles.centre(logp, before)
  shift, score = profiles.first_order_shift(dbeta, v), profiles.event_score(event, before)
  return {
    'change': after - before,
    'shift': shift,
    'size': profiles.norm(shift, before),
    'remainder': profiles.remainder(dbeta, v, before),
    'divergence': welfare.kl(before, after),
    'products': profiles.inner(v, jnp.ones(K), before),
    'event': jnp.sum(jnp.where(event, jnp.exp(after) - jnp.exp(before), 0.0)),
    'predicted event': profiles.inner(after - before, score, before),
    'score mean': welfare.expectation(before, score),
    'score square': profiles.norm(score, before) ** 2,
    'event before': jnp.sum(jnp.where(event, jnp.exp(before), 0.0)),
  }


class GeometryTest(chex.TestCase):
  @chex.variants(with_jit=True, without_jit=True)
  def test_agree_with_numpy_in_every_context(self):
    f, g = np.random.default_rng(2).normal(size=(2, 4, 2, N, K))
    p = np.exp(CONTEXTS)
    with jax.enable_x64(True):
      centred = self.variant(profiles.centre)(f, CONTEXTS)
      inner = self.variant(profiles.inner)(f, g, CONTEXTS)
      norm = self.variant(profiles.norm)(f, CONTEXTS)
    np.testing.assert_allclose(centred, f - np.sum(p * f, axis=-1, keepdims=True), atol=1e-14)
    np.testing.assert_allclose(inner, np.sum(p * f * g, axis=-1), atol=1e-14)
    np.testing.assert_allclose(norm, np.sqrt(np.sum(p * f * f, axis=-1)), rtol=1e-13)

  @chex.variants(with_jit=True)
  def test_impossible_outcomes_do_not_count(self):
    logp, f = np.array([np.log(0.25), np.log(0.75), -np.inf]), np.array([3.0, -1.0, -np.inf])
    g = np.array([3.0, -1.0, 7.0])
    with jax.enable_x64(True):
      for values in (f, g):
        np.testing.assert_allclose(self.variant(profiles.centre)(values, logp), [3, -1, 0])
        np.testing.assert_allclose(self.variant(profiles.norm)(values, logp), np.sqrt(3.0))
        basis = self.variant(profiles.orthonormal_basis)(values[None], logp)
        np.testing.assert_allclose(basis, [[3**0.5, -1 / 3**0.5, 0]], rtol=1e-14)

  @chex.variants(with_jit=True)
  def test_gradients_are_finite_at_zero(self):
    def size(f, logp):
      return profiles.norm(profiles.centre(f, logp), logp)

    gradient = self.variant(jax.grad(size, (0, 1)))
    for f in (np.zeros(K), np.ones(K), FUNCTIONS[1]):
      chex.assert_tree_all_finite(gradient(f, LOGP))


class ProjectionTest(chex.TestCase):
  @settings(max_examples=25)
  @given(logits=LOGITS, values=VALUES)
  def test_agrees_with_least_squares(self, logits, values):
    logp, (g, *functions) = log_softmax(logits[0]), values
    functions = np.array(functions)
    found = project(g, functions, logp)
    scale = 1 + np.abs(g).max()
    # Orthogonal to the functions, in their span, and of least distance.
    off = gram(np.stack([*functions, g - found]), logp)[-1, :-1]
    sizes = np.sqrt(np.diag(gram(functions, logp)))
    self.assertTrue((np.abs(off) <= 1e-9 * scale * sizes + 1e-12).all(), off)
    size = gram(found[None], logp)[0, 0]
    self.assertLessEqual(size, gram(g[None], logp)[0, 0] * (1 + 1e-12))
    again = project(found, functions, logp)
    np.testing.assert_allclose((again - found) @ (np.exp(logp) * (again - found)), 0, atol=1e-15)

  def test_agrees_with_least_squares_where_the_rank_is_plain(self):
    expected = least_squares(FUNCTIONS[0], FUNCTIONS[1:], LOGP)
    np.testing.assert_allclose(project(FUNCTIONS[0], FUNCTIONS[1:], LOGP), expected, atol=1e-12)
    whole = np.random.default_rng(3).normal(size=(7, K))
    np.testing.assert_allclose(project(FUNCTIONS[0], whole, LOGP), FUNCTIONS[0], atol=1e-10)

  def test_basis_is_orthonormal_with_zeros_for_what_depends(self):
    a, b, c = FUNCTIONS
    basis = basis_of(np.stack([a, 2 * a, np.zeros(K), b, a - 3 * b, c]), LOGP)
    np.testing.assert_allclose(gram(basis, LOGP), np.diag([1, 0, 0, 1, 0, 1]), atol=1e-13)
    np.testing.assert_array_equal(basis[[1, 2, 4]], 0.0)
    # A row that depends on those before it takes nothing from those after it.
    expected = least_squares(LOGP, FUNCTIONS, LOGP)
    np.testing.assert_allclose(gram(basis, LOGP) @ gram(basis, LOGP), gram(basis, LOGP), atol=1e-13)
    found = (basis @ (np.exp(LOGP) * LOGP)) @ basis
    np.testing.assert_allclose(found, expected, atol=1e-12)

  def test_nearly_dependent_functions(self):
    a, b, _ = FUNCTIONS
    # Those that differ by more than rounding count, and are told apart exactly.
    basis = basis_of(np.stack([a, a + 1e-9 * b]), LOGP)
    np.testing.assert_allclose(gram(basis, LOGP), np.eye(2), atol=1e-13)
    np.testing.assert_allclose(
      project(LOGP, np.stack([a, a + 1e-9 * b]), LOGP),
      least_squares(LOGP, FUNCTIONS[:2], LOGP),
      atol=1e-5,
    )
    coarse = exact(lambda f: profiles.orthonormal_basis(f, LOGP, 1e-6))
    np.testing.assert_array_equal(coarse(np.stack([a, a + 1e-9 * b]))[1], 0.0)

  @chex.variants(with_jit=True)
  def test_a_large_vocabulary_in_single_precision(self):
    rng = np.random.default_rng(4)
    logp = log_softmax(4 * rng.normal(size=20_000))
    functions = rng.normal(size=(3, 20_000))
    functions = np.stack([*functions, functions[0] - functions[1] / 3])
    logp, functions = np.float32(logp), np.float32(functions)
    basis = self.variant(profiles.orthonormal_basis)(functions, logp)
    products = np.asarray(basis) @ (np.exp(logp) * np.asarray(basis)).T
    np.testing.assert_allclose(products, np.diag([1, 1, 1, 0]), atol=1e-4)

  @chex.variants(with_jit=True)
  def test_contexts_one_by_one(self):
    functions = np.random.default_rng(5).normal(size=(8, 3, K))
    logp = CONTEXTS[..., 0, :].reshape(8, K)
    with jax.enable_x64(True):
      found = self.variant(jax.vmap(profiles.project, (None, 0, 0)))(LOGP, functions, logp)
    expected = [least_squares(LOGP, *one) for one in zip(functions, logp, strict=True)]
    np.testing.assert_allclose(found, expected, atol=1e-9)

  def test_refuses(self):
    for tolerance in (-0.1, 1.0, np.nan):
      with self.assertRaisesRegex(ValueError, 'rank tolerance'):
        profiles.project(LOGP, FUNCTIONS, LOGP, tolerance)
    for function in (
      lambda: profiles.orthonormal_basis(LOGP, LOGP),
      lambda: profiles.project(LOGP, FUNCTIONS[:, 1:], LOGP),
      lambda: profiles.project(LOGP[1:], FUNCTIONS, LOGP),
      lambda: profiles.inner(LOGP, np.zeros(1), LOGP),
      lambda: profiles.first_order_shift(np.zeros(2), FUNCTIONS),
    ):
      with self.assertRaises(AssertionError):
        function()


class ReweightingTest(chex.TestCase):
  event = np.array([True, False, True, False, False])

  @settings(max_examples=25)
  @given(logits=LOGITS, beta=WEIGHTS, changed=WEIGHTS)
  def test_the_remainder_is_exact_and_constant(self, logits, beta, changed):
    found = reweighted(logits, beta, changed - beta, self.event)
    np.testing.assert_allclose(found['change'], found['shift'] + found['remainder'], atol=1e-11)
    np.testing.assert_allclose(found['divergence'], -found['remainder'], atol=1e-12)
    self.assertLessEqual(found['remainder'], 1e-15)
    # Profiles are orthogonal to it.
    np.testing.assert_allclose(found['products'], 0.0, atol=1e-13)
    np.testing.assert_allclose(found['score mean'], 0.0, atol=1e-14)
    p = found['event before']
    np.testing.assert_allclose(found['score square'], p * (1 - p), atol=1e-14)

  def test_orders_of_what_is_left_out(self):
    logits, dbeta = CONTEXTS[1, 0] / 2, np.array([0.3, -0.1, -0.2])
    found = [reweighted(logits, BETA, t * dbeta, self.event) for t in (1e-2, 5e-3)]
    # -r = ½ ‖shift‖² + O(3), and the event's change is <ΔL, g_A> + O(2).
    rest = [f['remainder'] + 0.5 * f['size'] ** 2 for f in found]
    np.testing.assert_allclose(rest[0] / rest[1], 8.0, rtol=0.02)
    rest = [f['event'] - f['predicted event'] for f in found]
    np.testing.assert_allclose(rest[0] / rest[1], 4.0, rtol=0.02)

  @chex.variants(with_jit=True)
  def test_batches(self):
    v, logp = CONTEXTS, CONTEXTS[..., 0, :]
    dbeta = np.random.default_rng(6).normal(size=(4, 2, N))
    with jax.enable_x64(True):
      shift = self.variant(profiles.first_order_shift)(dbeta, v)
      remainder = self.variant(profiles.remainder)(dbeta, v, logp)
    np.testing.assert_allclose(shift, np.einsum('xyn,xynk->xyk', dbeta, v), rtol=1e-12)
    expected = -np.log(np.sum(np.exp(logp + np.asarray(shift)), axis=-1))
    np.testing.assert_allclose(remainder, expected, rtol=1e-12, atol=1e-14)
