"""Tests of Rényi divergences, against closed forms, quadrature and identities."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import parameterized
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import integrate, optimize, special, stats

from lib.diffusion import sde as sdes
from lib.diffusion.renyi import divergences


def beside_a_standard_normal(mean, var):
  """A law on the line, and a second coordinate that all share, which adds nothing."""
  return np.array([mean, 0.0]), np.diag([var, 1.0])


NARROW, WIDE = beside_a_standard_normal(0, 1), beside_a_standard_normal(1, 4)
LEFT = (np.zeros(2), np.array([[1.0, 0.3], [0.3, 0.5]]))
RIGHT = (np.array([1.0, -0.5]), np.array([[2.0, -0.2], [-0.2, 1.0]]))
P, Q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.3, 0.5])
NUM_POINTS = 20_000
LEVELS = (np.arange(NUM_POINTS) + 0.5) / NUM_POINTS
ORDERS = np.array([0.0, 0.05, 0.3, 0.5, 0.9, 1.0, 1.1, 1.5, 2.0, 3.0, 7.0, 40.0, np.inf])

# Values and gradients at many orders, in one program for each shape.
_grad = lambda f, n: jax.value_and_grad(f, tuple(range(n)))
gaussian = jax.jit(jax.vmap(_grad(divergences.gaussian, 5), (0, None, None, None, None)))
gaussian_escorts = jax.jit(jax.vmap(divergences.escort_gaussian, (0, None, None, None, None)))
discrete = jax.jit(jax.vmap(_grad(divergences.discrete, 3), (0, None, None)))
escorts = jax.jit(jax.vmap(divergences.escort_discrete, (0, None, None)))
from_log_ratios = jax.jit(jax.vmap(_grad(divergences.from_log_ratios, 2), (0, None)))


def at(function, alphas, *args, dtype=np.float64):
  """The function at many orders, whose number is padded so that programs are shared."""
  args = [np.asarray(a, dtype) for a in (np.resize(alphas, 16), *args)]
  with jax.enable_x64(dtype == np.float64):
    return jax.tree.map(lambda a: np.asarray(a)[: len(alphas)], function(*args))


def values(function, alphas, *args, dtype=np.float64):
  return at(function, alphas, *args, dtype=dtype)[0]


def five(law):
  """The law on five outcomes, the last of them impossible."""
  return np.append(law, np.zeros(5 - len(law)))


def laws(size):
  masses = hnp.arrays(np.float64, size, elements=st.floats(0.01, 1))
  return masses.map(lambda m: m / m.sum())


def covariance(rng, dim):
  root = rng.normal(size=(dim, dim))
  return root @ root.T + 0.3 * np.eye(dim)


class GaussianTest(chex.TestCase):
  def test_known_numbers(self):
    forward = values(gaussian, [0.25, 0.5, 1.5, 2.0, 3.0, 1.0], *NARROW, *WIDE)
    np.testing.assert_allclose(
      forward,
      [0.2134567032, 0.3231435513, 0.5110570858, 0.5561964295, 0.6140744976, 0.4431471806],
      atol=1e-10,
    )
    back = values(gaussian, [0.25, 0.5, 1.2, 1.3, 4 / 3, 1.4, 50.0], *WIDE, *NARROW)
    np.testing.assert_allclose(
      back[:4], [0.1310843555, 0.3231435513, 3.0975796491, 9.6444946411], atol=1e-10
    )
    np.testing.assert_array_equal(back[4:], np.inf)
    plane = values(gaussian, [0.5, 1.5, 2.0], *LEFT, *RIGHT)
    np.testing.assert_allclose(plane, [0.4865777940, 0.7484735322, 0.8108815781], atol=1e-10)

  def test_agrees_with_quadrature(self):
    alphas = np.array([0.3, 0.999, 1.001, 1.25])
    x, step = np.linspace(-40, 40, 4001, retstep=True)
    p, q = stats.norm(1, 2).logpdf(x), stats.norm(0, 1).logpdf(x)
    tilted = alphas[:, None] * p + (1 - alphas[:, None]) * q
    expected = (special.logsumexp(tilted, axis=1) + np.log(step)) / (alphas - 1)
    np.testing.assert_allclose(values(gaussian, alphas, *WIDE, *NARROW), expected, rtol=1e-9)

  def test_skew_symmetry(self):
    alphas = np.array([0.25, 0.5, 0.75])
    rng = np.random.default_rng(0)
    pairs = [[(rng.normal(size=2), covariance(rng, 2)) for _ in range(2)] for _ in range(3)]
    for p, q in (*pairs, (NARROW, WIDE)):
      forward, back = values(gaussian, alphas, *p, *q), values(gaussian, 1 - alphas, *q, *p)
      np.testing.assert_allclose(forward, alphas / (1 - alphas) * back, rtol=1e-11)
    np.testing.assert_allclose([forward[0], back[0] / 3], 0.2134567032, atol=1e-10)

  def test_half_is_the_bhattacharyya_distance(self):
    (half,) = values(gaussian, [0.5], *LEFT, *RIGHT)
    mean, gap = (LEFT[1] + RIGHT[1]) / 2, LEFT[0] - RIGHT[0]
    dets = [np.linalg.det(c) for c in (mean, LEFT[1], RIGHT[1])]
    coefficient = np.exp(-gap @ np.linalg.solve(mean, gap) / 8) * np.sqrt(
      np.sqrt(dets[1] * dets[2]) / dets[0]
    )
    np.testing.assert_allclose(half, -2 * np.log(coefficient), rtol=1e-12)

  def test_does_not_fall_with_the_order(self):
    for p, q in ((NARROW, WIDE), (WIDE, NARROW), (LEFT, RIGHT), (RIGHT, LEFT)):
      found = values(gaussian, ORDERS, *p, *q)
      np.testing.assert_allclose(found[0], 0, atol=1e-15)
      self.assertTrue((found[1:] >= found[:-1]).all(), found)
    # The last of them is log ess sup, where the log ratio is a concave function.
    p, q = (stats.multivariate_normal(*law).logpdf for law in (LEFT, RIGHT))
    peak = optimize.minimize(lambda x: q(x) - p(x), np.zeros(2))
    np.testing.assert_allclose(values(gaussian, ORDERS, *LEFT, *RIGHT)[-1], -peak.fun, rtol=1e-8)

  def test_invariant_to_affine_maps(self):
    rng = np.random.default_rng(0)
    map_, shift = rng.normal(size=(2, 2)), rng.normal(size=2)
    moved = [(map_ @ m + shift, map_ @ c @ map_.T) for m, c in (LEFT, RIGHT)]
    here = values(gaussian, ORDERS[:-1], *LEFT, *RIGHT)
    there = values(gaussian, ORDERS[:-1], *moved[0], *moved[1])
    np.testing.assert_allclose(here, there, rtol=1e-10, atol=1e-14)

  def test_gradients_are_those_of_the_escort_law(self):
    # ∇ D = -E_r[∇ log q] by r's mean and covariance.
    alphas = np.array([0.3, 1.0, 2.0])
    _, grads = at(gaussian, alphas, *LEFT, *RIGHT)
    means, covs = at(gaussian_escorts, alphas, *LEFT, *RIGHT)
    precision = np.linalg.inv(RIGHT[1])
    for mean, cov, in_mean, in_cov in zip(means, covs, *grads[3:], strict=True):
      gap = mean - RIGHT[0]
      np.testing.assert_allclose(in_mean, -precision @ gap, atol=1e-12)
      second = cov + np.outer(gap, gap)
      np.testing.assert_allclose(
        in_cov, -(precision @ second @ precision - precision) / 2, atol=1e-12
      )
    # At α = 1 the escort law is P.
    np.testing.assert_allclose(means[1], LEFT[0], atol=1e-14)
    np.testing.assert_allclose(covs[1], LEFT[1], atol=1e-14)

  def test_escort_is_the_geometric_mixture(self):
    alphas = np.array([0.4, 1.7])
    divergence = values(gaussian, alphas, *LEFT, *RIGHT)
    x = np.random.default_rng(0).normal(size=(20, 2))
    p, q = (stats.multivariate_normal(*law).logpdf(x) for law in (LEFT, RIGHT))
    for i, (mean, cov) in enumerate(zip(*at(gaussian_escorts, alphas, *LEFT, *RIGHT), strict=True)):
      # The normaliser is the same at every point.
      r = stats.multivariate_normal(mean, cov).logpdf(x)
      normaliser = alphas[i] * p + (1 - alphas[i]) * q - r
      np.testing.assert_allclose(normaliser, (alphas[i] - 1) * divergence[i], rtol=1e-11)

  def test_smooth_in_the_order_at_one(self):
    around, grads = at(gaussian, 1 + np.array([-1e-4, 0, 1e-4]), *LEFT, *RIGHT)
    # d/dα at α = 1 is half the variance of log p/q under P.
    x, w = np.polynomial.hermite_e.hermegauss(8)
    points = np.stack(np.meshgrid(x, x), -1).reshape(-1, 2) @ np.linalg.cholesky(LEFT[1]).T
    weights = np.outer(w, w).ravel() / (2 * np.pi)
    log_ratios = stats.multivariate_normal(*LEFT).logpdf(points)
    log_ratios -= stats.multivariate_normal(*RIGHT).logpdf(points)
    kl = weights @ log_ratios
    np.testing.assert_allclose(around[1], kl, rtol=1e-12)
    np.testing.assert_allclose(grads[0][1], weights @ (log_ratios - kl) ** 2 / 2, rtol=1e-12)
    np.testing.assert_allclose((around[2] - around[0]) / 2e-4, grads[0][1], rtol=1e-6)

  def test_finite_gradients_beyond_the_threshold_and_between_equal_laws(self):
    alphas = [1.4, 2.0, 1e6, np.inf]
    for law in ((LEFT[0], 9 * RIGHT[1]), (LEFT[0], np.diag([20.0, 0.1]))):
      found, grads = at(gaussian, alphas, *law, *RIGHT, dtype=np.float32)
      np.testing.assert_array_equal(found, np.inf)
      for grad in grads:
        np.testing.assert_array_equal(grad, 0)
    # All eigenvalues alike.
    for law in ((np.zeros(2), np.eye(2)), LEFT):
      found, grads = at(gaussian, [0, 0.5, 1, 3], *law, *law, dtype=np.float32)
      np.testing.assert_allclose(found, 0, atol=1e-6)
      for grad in grads:
        # The divergence is of second order in what differs.
        np.testing.assert_allclose(grad, 0, atol=1e-5)

  def test_single_precision(self):
    alphas = np.float32([0.1, 0.5, 0.999, 1.0, 1.0001, 1.01, 1.5])
    for p, q in ((LEFT, RIGHT), ((LEFT[0], 1e-9 * LEFT[1]), RIGHT)):
      single = at(gaussian, alphas, *p, *q, dtype=np.float32)
      double = at(gaussian, alphas, *p, *q)
      np.testing.assert_allclose(single[0], double[0], rtol=3e-5)
      np.testing.assert_allclose(single[1][0], double[1][0], rtol=3e-4, atol=3e-5)

  def test_not_a_number_stays_one(self):
    for law in ((np.full(2, np.nan), LEFT[1]), (LEFT[0], np.full((2, 2), np.nan))):
      self.assertTrue(np.isnan(values(gaussian, [0.5, 3.0], *law, *RIGHT)).all())

  def test_refuses_shapes_that_do_not_fit(self):
    for args in ((np.zeros(1), np.eye(1), *LEFT), (*LEFT, LEFT[0], np.ones(2)), (0.0, 1.0) * 2):
      for function in (divergences.gaussian, divergences.escort_gaussian):
        with self.assertRaises(AssertionError):
          function(2.0, *map(np.asarray, args))

  def test_no_escort_law_beyond_the_threshold(self):
    for part in at(gaussian_escorts, [2.0, 5.0], *LEFT, LEFT[0], LEFT[1] / 3):
      self.assertTrue(np.isnan(part).all())


class DiscreteTest(chex.TestCase):
  def test_known_numbers(self):
    found = values(discrete, [0.5, 1.0, 2.0, np.inf, 0.0], five(P), five(Q))
    np.testing.assert_allclose(
      found, [0.1398676305, 0.2748872196, 0.4885800149, 0.9162907319, 0], atol=1e-10
    )
    np.testing.assert_allclose(found[2], np.log1p(np.sum((P - Q) ** 2 / Q)), rtol=1e-12)

  @settings(max_examples=25, deadline=None)
  @given(p=laws(5), q=laws(5))
  def test_laws_of_divergences(self, p, q):
    found = values(discrete, ORDERS, p, q)
    slack = 1e-12 * (1 + found[-1])
    self.assertTrue((np.diff(found) >= -slack).all(), found)
    self.assertGreaterEqual(found[0], -slack)
    np.testing.assert_allclose(found[ORDERS == 1], special.rel_entr(p, q).sum(), atol=1e-12)
    np.testing.assert_allclose(found[-1], np.log((p / q).max()), atol=1e-12)
    alphas = np.array([0.1, 0.5, 0.9])
    forward, back = values(discrete, alphas, p, q), values(discrete, 1 - alphas, q, p)
    np.testing.assert_allclose(forward, alphas / (1 - alphas) * back, atol=1e-11)
    # Merging outcomes loses information.
    merged = [five([*law[:3], law[3:].sum()]) for law in (p, q)]
    self.assertTrue((values(discrete, ORDERS, *merged) <= found + slack).all())

  def test_zeros(self):
    alphas = np.array([0.0, 0.5, 0.999, 1.0, 1.001, 2.0, np.inf])
    found, grads = at(discrete, alphas, five([0.5, 0.5, 0.0]), five([0.0, 0.25, 0.75]))
    # Σ p^α q^{1-α} has one term, and D_0 is -log Q(p > 0).
    below = alphas[:3]
    np.testing.assert_allclose(
      found[:3], (below * np.log(0.5) + (1 - below) * np.log(0.25)) / (below - 1), rtol=1e-10
    )
    np.testing.assert_allclose(found[0], -np.log(0.25), rtol=1e-12)
    np.testing.assert_array_equal(found[3:], np.inf)
    for grad in grads:
      np.testing.assert_array_equal(grad[3:], 0)
      self.assertTrue(np.isfinite(grad).all(), grad)
    # Zeros that both share, and zeros of p alone, cost nothing.
    found, grads = at(discrete, alphas, five([0.25, 0.75, 0.0]), five([0.5, 0.25, 0.25]))
    np.testing.assert_allclose(found[[0, -1]], [-np.log(0.75), np.log(3)], rtol=1e-12)
    np.testing.assert_allclose(found[5], np.log(0.25**2 / 0.5 + 0.75**2 / 0.25), rtol=1e-12)
    for grad in (found, *grads):
      self.assertTrue(np.isfinite(grad).all(), grad)
    # Nothing in common.
    found, grads = at(discrete, alphas, np.eye(5)[0], np.eye(5)[1])
    np.testing.assert_array_equal(found, np.inf)
    for grad in grads:
      np.testing.assert_array_equal(grad, 0)
    # One law.
    for law in (five(P), np.eye(5)[2]):
      found, grads = at(discrete, alphas, law, law)
      np.testing.assert_array_equal(found, 0)
      np.testing.assert_allclose(grads[0], 0, atol=1e-15)

  def test_gradients_are_those_of_the_escort_law(self):
    alphas = np.array([0.2, 0.8, 1.3, 4.0, 1.0])
    logits = np.random.default_rng(0).normal(size=5)
    p, q = special.softmax(logits[::-1]), special.softmax(logits)
    _, grads = at(discrete, alphas, p, q)
    r = at(escorts, alphas, p, q)
    powers = p ** alphas[:, None] * q ** (1 - alphas[:, None])
    np.testing.assert_allclose(r, powers / powers.sum(axis=1, keepdims=True), rtol=1e-12)
    # Through q = softmax(θ), -E_r[∇ log q] = q - r.
    in_theta = q * (grads[2] - (grads[2] @ q)[:, None])
    np.testing.assert_allclose(in_theta, q - r, atol=1e-12)
    # In p, α/(α - 1) r/p along moves that keep the sum.
    move, off = np.array([1.0, -2.0, 0.5, 0.5, 0.0]), alphas[:-1]
    np.testing.assert_allclose(
      (grads[1] @ move)[:-1], off / (off - 1) * ((r / p) @ move)[:-1], rtol=1e-10
    )
    np.testing.assert_allclose(grads[1][-1] @ move, np.log(p / q) @ move, rtol=1e-10)

  def test_escort_at_the_ends(self):
    alphas = np.array([0.0, 0.5, 1.0, 2.0, np.inf])
    found = at(escorts, alphas, five(P), five(Q))
    np.testing.assert_allclose(found[[0, 2, 4]], [five(Q), five(P), np.eye(5)[0]], atol=1e-12)
    # On the set where p/q is largest, as p.
    found = at(escorts, alphas, five([0.3, 0.3, 0.4]), five([0.1, 0.1, 0.8]))
    np.testing.assert_allclose(found[-1], five([0.5, 0.5]), atol=1e-12)
    found = at(escorts, alphas, five([0.5, 0.5, 0.0]), five([0.0, 0.25, 0.75]))
    np.testing.assert_allclose(
      found[:3], [five([0, 1]), five([0, 1]), five([0.5, 0.5])], atol=1e-12
    )
    self.assertTrue(np.isnan(found[3:]).all())

  def test_smooth_in_the_order_at_one_in_single_precision(self):
    alphas = np.float32([1 - 1e-3, 1 - 1e-5, 1, 1 + 1e-6, 1 + 1e-4, 1 + 1e-2])
    found, grads = at(discrete, alphas, five(P), five(Q), dtype=np.float32)
    kl, log_ratios = special.rel_entr(P, Q).sum(), np.log(P / Q)
    slope = P @ (log_ratios - kl) ** 2 / 2
    third = P @ (log_ratios - kl) ** 3 / 6
    c = alphas - 1
    np.testing.assert_allclose(found, kl + c * slope + c**2 * third, atol=1e-6)
    np.testing.assert_allclose(grads[0], slope + 2 * c * third, atol=1e-4)

  def test_refuses_shapes_that_do_not_fit(self):
    for function in (divergences.discrete, divergences.escort_discrete):
      for p, q in ((P, Q[:2]), (P[None], Q[None])):
        with self.assertRaises(AssertionError):
          function(2.0, p, q)


class FromLogRatiosTest(chex.TestCase):
  @settings(max_examples=20, deadline=None)
  @given(logs=hnp.arrays(np.float64, 6, elements=st.floats(-60, 60, allow_subnormal=False)))
  def test_log_mean_exp(self, logs):
    found, (slopes, weights) = at(from_log_ratios, ORDERS, logs)
    self.assertTrue((np.diff(found) >= -1e-12 * (1 + np.abs(logs).max())).all())
    np.testing.assert_allclose(found[[5, -1]], [logs.mean(), logs.max()], rtol=1e-9, atol=1e-9)
    c = np.delete(ORDERS[:-1], 5)[:, None] - 1
    expected = (special.logsumexp(c * logs, axis=1) - np.log(6)) / c[:, 0]
    np.testing.assert_allclose(np.delete(found[:-1], 5), expected, rtol=1e-9, atol=1e-9)
    softmax = special.softmax((ORDERS[:-1, None] - 1) * logs, axis=1)
    np.testing.assert_allclose(weights[:-1], softmax, rtol=1e-8, atol=1e-9)
    self.assertTrue((slopes >= -1e-9).all())
    np.testing.assert_allclose(slopes[5], logs.var() / 2, rtol=1e-9, atol=1e-9)

  def test_where_q_vanishes(self):
    logs = np.array([0.0, 0, 0, np.inf, np.inf, np.inf])
    found, grads = at(from_log_ratios, np.array([0.5, 1.0, 2.0]), logs)
    np.testing.assert_allclose(found, [2 * np.log(2), np.inf, np.inf], rtol=1e-12)
    for grad in grads:
      self.assertTrue(np.isfinite(grad).all())

  def test_where_p_vanishes(self):
    logs = np.array([0.0, 0, 0, -np.inf, -np.inf, -np.inf])
    found, grads = at(from_log_ratios, np.array([0.5, 1.0, 2.0, 3.0]), logs)
    np.testing.assert_allclose(found, [-np.inf, -np.inf, -np.log(2), -np.log(2) / 2], rtol=1e-12)
    for grad in grads:
      self.assertTrue(np.isfinite(grad).all())
    found, _ = at(from_log_ratios, np.array([0.5, 2.0]), np.array([0.0, np.inf, -np.inf]))
    np.testing.assert_array_equal(found, [-np.inf, np.inf])
    for one in (np.inf, -np.inf):
      found, _ = at(from_log_ratios, np.array([0.5, 1.0, 2.0]), np.full(3, one))
      np.testing.assert_array_equal(found, one)

  def test_refuses_what_is_no_sample(self):
    for logs in (np.zeros(0), np.zeros((2, 2))):
      with self.assertRaises(AssertionError):
        divergences.from_log_ratios(2.0, logs)

  def test_points_of_a_gaussian(self):
    # Equal quantiles of N(0, 1), whose ratio to N(1, 4) is bounded.
    x = stats.norm.ppf(LEVELS)
    logs = stats.norm(0, 1).logpdf(x) - stats.norm(1, 2).logpdf(x)
    alphas = np.array([0.5, 0.8, 1.0, 2.0, 3.0])
    found = values(from_log_ratios, alphas, logs)
    np.testing.assert_allclose(found, values(gaussian, alphas, *NARROW, *WIDE), atol=1e-3)


class BestGaussianTest(chex.TestCase):
  """The normal law closest to a mixture: from one mode to all of them as the order grows."""

  def test_covers_above_and_seeks_a_mode_below(self):
    # Order, mean, standard deviation, divergence.
    table = np.array(
      [
        [0.1, -2.0, 0.5, 0.0396],
        [0.3, -2.0, 0.5, 0.1528],
        [0.5, -1.9995, 0.5011, 0.3565],
        [0.9, -0.804, 1.892, 0.6976],
        [1.0, -0.800, 1.900, 0.7242],
        [2.0, -0.785, 1.937, 0.8771],
        [5.0, -0.776, 1.958, 1.0222],
      ]
    )
    x, step = np.linspace(-16, 16, 801, retstep=True)
    log_p_at = lambda x: np.logaddexp(
      np.log(0.7) + stats.norm(-2, 0.5).logpdf(x), np.log(0.3) + stats.norm(2, 0.5).logpdf(x)
    )
    log_p = log_p_at(x)

    def log_q(mean, std, x=x):
      return -((x - mean) ** 2) / (2 * std**2) - np.log(std) - 0.5 * np.log(2 * np.pi)

    def divergence(v, alpha):
      gap = log_q(v[0], np.exp(v[1])) - log_p
      if alpha == 1:
        return -step * np.exp(log_p) @ gap
      terms = log_p + (1 - alpha) * gap
      top = terms.max()
      return (top + np.log(step * np.exp(terms - top).sum())) / (alpha - 1)

    best = []
    for alpha in table[:, 0]:
      starts = [(-2, np.log(0.5)), (2, np.log(0.5)), (-0.8, np.log(1.9))]
      fits = [optimize.minimize(divergence, start, alpha, method='BFGS') for start in starts]
      fit = min(fits, key=lambda fit: fit.fun)
      best.append([alpha, fit.x[0], np.exp(fit.x[1]), fit.fun])
    best = np.array(best)
    np.testing.assert_allclose(best[:, 1:3], table[:, 1:3], atol=1e-3)
    np.testing.assert_allclose(best[:, 3], table[:, 3], atol=6e-5)

    # The same numbers from masses on the grid, where the escort law has the moments of the fit.
    alphas, means, stds = best[:, 0], best[:, 1], best[:, 2]
    log_qs = np.array([log_q(m, s) for m, s in zip(means, stds, strict=True)])
    p, qs = np.exp(log_p) * step, np.exp(log_qs) * step
    both = lambda *args: (divergences.discrete(*args), divergences.escort_discrete(*args))
    with jax.enable_x64(True):
      found, r = map(np.asarray, jax.jit(jax.vmap(both, (0, None, 0)))(alphas, p, qs))
    np.testing.assert_allclose(found, best[:, 3], rtol=1e-7)
    np.testing.assert_allclose(r @ x, means, atol=1e-4)
    variances = np.sum(r * (x - means[:, None]) ** 2, axis=1)
    np.testing.assert_allclose(np.sqrt(variances), stds, atol=1e-4)

    # And from equal quantiles of the mixture, a sample without noise.
    fine = np.linspace(-6, 6, 20_001)
    cdf = 0.7 * special.ndtr(2 * (fine + 2)) + 0.3 * special.ndtr(2 * (fine - 2))
    points = np.interp(LEVELS, cdf, fine)
    for alpha, mean, std, divergence in best[3:]:
      log_ratios = log_p_at(points) - log_q(mean, std, points)
      found = values(from_log_ratios, [alpha], log_ratios)
      np.testing.assert_allclose(found, divergence, atol=1e-4)


class DiffusionTest(chex.TestCase):
  """P = N(0, 1) and Q = N(1, 4), both through the VP diffusion."""

  sde = sdes.vp(0.1, 20.0)
  alphas = np.array([0.5, 1.0, 2.0])

  def laws(self, times):
    m, s = np.asarray(self.sde.mean(times)), np.asarray(self.sde.std(times))
    return 0 * m, m**2 + s**2, m, 4 * m**2 + s**2

  def test_integral_of_the_rate(self):
    nodes, weights = np.polynomial.legendre.leggauss(80)
    times = np.concatenate([[0.0], (nodes + 1) / 2, [1.0]])

    def both(alpha, *laws):
      return divergences.gaussian(alpha, *laws), divergences.escort_gaussian(alpha, *laws)

    with jax.enable_x64(True):
      mean_p, var_p, mean_q, var_q = self.laws(times)
      diffusion_sq = np.asarray(self.sde.diffusion_sq(times))
      columns = mean_p[:, None], var_p[:, None, None], mean_q[:, None], var_q[:, None, None]
      over_times = jax.vmap(both, (None, 0, 0, 0, 0))
      over_orders = jax.jit(jax.vmap(over_times, (0, None, None, None, None)))
      found, (mean, var) = jax.tree.map(np.asarray, over_orders(self.alphas, *columns))
    # The gap of the scores is a + b x.
    a, b = -mean_q / var_q, 1 / var_q - 1 / var_p
    gap_sq = (a + b * mean[..., 0]) ** 2 + b**2 * var[..., 0, 0]
    rates = 0.5 * self.alphas[:, None] * diffusion_sq * gap_sq
    np.testing.assert_allclose(found[:, -1], [1.0798e-5, 2.1595e-5, 4.3183e-5], rtol=5e-5)
    integral = rates[:, 1:-1] @ weights / 2
    np.testing.assert_allclose(found[:, 0], found[:, -1] + integral, rtol=0, atol=1e-9)
    # Data processing: noise only brings laws together.
    self.assertTrue((np.diff(found, axis=1) <= 0).all())

  @chex.variants(with_jit=True, without_jit=True)
  def test_rate_from_points(self):
    mean_p, var_p, mean_q, var_q = self.laws(np.float64(0.3))
    # By the trapezoid rule under the escort law's density.
    x = np.linspace(-12, 12, 2001)
    p, q = stats.norm(mean_p, np.sqrt(var_p)), stats.norm(mean_q, np.sqrt(var_q))
    gaps = lambda x: ((x - mean_q) / var_q - (x - mean_p) / var_p) ** 2
    points = p.ppf(LEVELS)
    log_ratios = p.logpdf(points) - q.logpdf(points)
    rate = self.variant(divergences.fisher_rate)
    for alpha in self.alphas:
      r = special.softmax(alpha * p.logpdf(x) + (1 - alpha) * q.logpdf(x))
      expected = 0.5 * alpha * 7.0 * r @ gaps(x)
      # Ratios matter up to a constant.
      args = np.float32(7.0), np.float32(gaps(points)), np.float32(log_ratios + 100.0)
      np.testing.assert_allclose(rate(np.float32(alpha), *args), expected, rtol=5e-3)

  def test_refuses_gaps_and_ratios_that_do_not_fit(self):
    for gaps, ratios in ((np.zeros(3), np.zeros(2)), (np.zeros((2, 2)), np.zeros((2, 2)))):
      with self.assertRaises(AssertionError):
        divergences.fisher_rate(2.0, 1.0, gaps, ratios)


def riccati(alpha, v, beta, horizon):
  """D_α of the paths of data N(0, 1) and the model score -x/v, by Girsanov and Feynman–Kac."""
  k = 1 - 1 / v
  a, c = 2 * (alpha + (1 - alpha) / v) - 1, alpha * (alpha - 1) * beta * k**2 / 2

  def flow(_, state):
    return [2 * beta * state[0] ** 2 - beta * a * state[0] + c, beta * state[0]]

  end = integrate.solve_ivp(flow, (0, horizon), [0.0, 0.0], rtol=1e-10, atol=1e-12).y[:, -1]
  return (end[1] - np.log(1 - 2 * end[0]) / 2) / (alpha - 1)


@functools.partial(jax.jit, static_argnames='shape')
def path_log_ratios(shape, v, shift, start_log_ratio, times):
  """Of N(0, 1), for which VP stands still, against a score that is too flat, steep or shifted."""
  start_key, key = jax.random.split(jax.random.key(0))
  return divergences.path_log_ratios(
    lambda x, t: -x,
    lambda x, t: -x / v + shift,
    sdes.vp(1.0, 1.0, 3.0),
    jax.random.normal(start_key, shape),
    jnp.full(shape[0], start_log_ratio),
    key,
    times,
  )


class PathTest(chex.TestCase):
  alphas = np.array([0.5, 1.5, 2.0])
  horizon = 3.0

  def sample(self, v, shift=0.0, start=0.0, steps=100, dim=1):
    times = np.linspace(0, self.horizon, steps + 1)
    return np.asarray(path_log_ratios((NUM_POINTS, dim), v, shift, start, times), float)

  @parameterized.parameters(
    (1.25, (0.0343625, 0.0803934, 0.0973528), 1.556468, (0.0242698, 0.0567466, 0.0683798)),
    (0.8, (0.0396212, 0.1767664, 0.3400000), 0.670370, (0.0198608, 0.0822105, 0.1383928)),
  )
  def test_closed_form(self, v, of_paths, variance, of_ends):
    paths = np.array([riccati(alpha, v, 1.0, self.horizon) for alpha in self.alphas])
    np.testing.assert_allclose(paths, of_paths, atol=1e-7)
    limit = v / (2 - v)
    found = limit + (1 - limit) * np.exp(-(2 / v - 1) * self.horizon)
    np.testing.assert_allclose(found, variance, atol=1e-6)
    ends = values(gaussian, self.alphas, *NARROW, *beside_a_standard_normal(0, found))
    np.testing.assert_allclose(ends, of_ends, atol=1e-7)
    # Data processing.
    self.assertTrue((ends < paths).all())

  # Of the narrow model, α = 2 has weights without a useful variance.
  @parameterized.parameters((1.25, 3), (0.8, 2))
  def test_monte_carlo(self, v, num_orders):
    ratios = self.sample(v)
    kl = 0.5 * self.horizon * (1 - 1 / v) ** 2
    self.assertAlmostEqual(kl, {1.25: 0.06, 0.8: 0.09375}[v], places=12)
    standard_error = ratios.std() / np.sqrt(NUM_POINTS)
    np.testing.assert_allclose(ratios.mean(), kl, atol=5 * standard_error)
    alphas = self.alphas[:num_orders]
    for alpha, found in zip(alphas, values(from_log_ratios, alphas, ratios), strict=True):
      weights = np.exp((alpha - 1) * ratios)
      standard_error = weights.std() / weights.mean() / np.sqrt(NUM_POINTS) / abs(alpha - 1)
      expected = riccati(alpha, v, 1.0, self.horizon)
      np.testing.assert_allclose(found, expected, atol=5 * standard_error)

  def test_ratio_of_densities_of_the_chains(self):
    # E_P[dQ/dP] = 1 on any grid, for the ratio is exact for the chains.
    weights = np.exp(-self.sample(1.1, shift=0.1, steps=3, dim=2))
    standard_error = weights.std() / np.sqrt(NUM_POINTS)
    np.testing.assert_allclose(weights.mean(), 1, atol=5 * standard_error)

  def test_constant_gap(self):
    # Where the scores differ by a constant, log dP/dQ is normal and its variance twice its mean.
    ratios = self.sample(1.0, shift=0.2, start=0.7)
    kl = 0.5 * self.horizon * 0.2**2
    np.testing.assert_allclose(ratios.mean(), 0.7 + kl, atol=5 * np.sqrt(2 * kl / NUM_POINTS))
    np.testing.assert_allclose(ratios.var(), 2 * kl, rtol=5 * np.sqrt(2 / NUM_POINTS))
    # Hence D_α is α times the KL divergence.
    alphas = np.array([0.5, 2.0])
    found = values(from_log_ratios, alphas, ratios - 0.7)
    np.testing.assert_allclose(found, alphas * kl, atol=8 * np.sqrt(2 * kl / NUM_POINTS))

  def test_nothing_to_tell_where_the_scores_agree(self):
    np.testing.assert_array_equal(self.sample(1.0), 0)

  def test_refuses_shapes_that_do_not_fit(self):
    score = lambda x, t: -x
    for start, ratios in ((np.zeros(3), np.zeros(3)), (np.zeros((3, 1)), np.zeros(2))):
      with self.assertRaises(AssertionError):
        divergences.path_log_ratios(
          score, score, sdes.vp(), start, ratios, jax.random.key(0), np.linspace(0, 1, 3)
        )
