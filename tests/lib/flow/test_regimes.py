"""Tests of the regimes of series, against exact recovery, least squares and invariances."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import parameterized
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import optimize, stats

from lib.flow import regimes

LENGTH, HORIZON = 16, 40
TIMES = np.arange(1, LENGTH + HORIZON + 1) / LENGTH
FREQUENCIES = (1.0, 1.5, 2.0, 3.0)
FAMILIES = regimes.bases(LENGTH, HORIZON, frequencies=FREQUENCIES)
SHARP = regimes.bases(LENGTH, HORIZON, ridge=1e-12, frequencies=FREQUENCIES)

_fit = jax.jit(regimes.fit)
fit_basis = jax.jit(regimes.fit_basis, static_argnames='ridge')
choose = jax.jit(regimes.choose)
_features = jax.jit(regimes.features)
labels = jax.jit(jax.vmap(regimes.label))
posterior = jax.jit(regimes.posterior, static_argnums=2)
autocorrelation = jax.jit(regimes.autocorrelation)

contexts = hnp.arrays(np.float32, (6, LENGTH), elements=st.floats(-3, 3, width=32))


def fit(context, families=FAMILIES, limit=12.0, blend=4.0):
  """Of any number of contexts, by one program for six."""
  count = len(context)
  batches = np.resize(context, (-(-count // 6), 6, LENGTH))
  fits = [_fit(batch, families, limit, blend) for batch in batches]
  return jax.tree.map(lambda *x: np.concatenate(x)[:count], *fits)


def features(context):
  """Of one context or of six."""
  found = _features(np.resize(context, (6, LENGTH)))
  return found if np.ndim(context) == 2 else jax.tree.map(lambda x: float(x[0]), found)


def label(trajectory):
  return int(labels(np.resize(trajectory, (6, 128)).astype(np.float32))[0])


def walks(seed, count, length=LENGTH):
  x = np.random.default_rng(seed).normal(size=(count, length)).cumsum(axis=1)
  return normalised(x).astype(np.float32)


def normalised(x):
  return (x - x.mean(axis=-1, keepdims=True)) / x.std(axis=-1, keepdims=True)


def split(curve):
  return curve[..., :LENGTH], curve[..., LENGTH:]


def functions(regime, member):
  """The functions of one basis, (L + H, K), by their definitions."""
  s = TIMES
  if regime == 'steady':
    return np.zeros((s.size, 0))
  if regime == 'saturating':
    return np.exp(-(0.25, 0.5, 1, 2, 4, 8)[member] * s)[:, None]
  if regime == 'pulse':
    decay = np.exp(-(1, 2, 4)[member] * s)
    return np.stack([decay, s * decay], axis=1)
  if regime == 'rhythm':
    turn = 2 * np.pi * FREQUENCIES[member // 3] * s
    waves = [np.sin(turn), np.cos(turn), np.sin(2 * turn), np.cos(2 * turn)]
    return np.stack(waves, axis=1) * np.exp(-(0, 0.5, 2)[member % 3] * s)[:, None]
  return np.exp((0.25, 0.5, 1, 2, 4)[member] * (s - 1))[:, None]


def members():
  return [
    (r, g) for r, f in zip(regimes.REGIMES, FAMILIES, strict=True) for g in range(len(f.means))
  ]


class FitBasisTest(chex.TestCase):
  @chex.variants(with_jit=True, without_jit=True)
  def test_is_weighted_ridge_least_squares_beside_a_free_constant(self):
    basis = functions('pulse', 1)
    weights, ridge = regimes.rising_weights(LENGTH), 1e-2
    context = walks(0, 1)[0]

    def objective(theta):
      gaps = context - theta[0] - basis[:LENGTH] @ theta[1:]
      return np.mean(weights * gaps**2) + ridge * np.sum(theta[1:] ** 2)

    best = optimize.minimize(objective, np.zeros(3), method='BFGS', options={'gtol': 1e-9}).x
    of = self.variant(lambda c: regimes.fit_basis(c, basis[:LENGTH], basis[LENGTH:], ridge))
    mean, fitted, error = of(context)
    curve = best[0] + basis @ best[1:]
    np.testing.assert_allclose(np.append(fitted, mean), curve, atol=1e-4)
    np.testing.assert_allclose(error, np.mean(weights * (context - curve[:LENGTH]) ** 2), rtol=1e-3)

  def test_of_weights_of_zero_ignores_the_points(self):
    basis, (context,) = functions('saturating', 3), walks(1, 1)
    weights = np.where(np.arange(LENGTH) < 4, 0.0, LENGTH / (LENGTH - 4))
    mean = lambda c: fit_basis(c, basis[:LENGTH], basis[LENGTH:], ridge=1e-3, weights=weights)[0]
    other = np.where(weights == 0, np.float32(7), context)
    np.testing.assert_allclose(mean(context), mean(other), atol=1e-5)

  def test_refuses_a_ridge_of_zero(self):
    with self.assertRaisesRegex(ValueError, 'ridge must be positive'):
      regimes.fit_basis(np.zeros(4), np.zeros((4, 1)), np.zeros((2, 1)), 0.0)


class FitTest(chex.TestCase):
  def test_recovers_every_basis_exactly(self):
    rng = np.random.default_rng(0)
    curves = []
    for regime, member in members():
      basis = functions(regime, member)
      curve = rng.normal() + basis @ rng.normal(size=basis.shape[1])
      curves.append(curve / max(1, np.abs(curve).max()))
    context, future = split(np.array(curves, np.float32))
    found = fit(context, SHARP)
    for i, (regime, member) in enumerate(members()):
      r = regimes.REGIMES.index(regime)
      self.assertLess(float(found.errors[i, r]), 1e-5, (regime, member))
      if regime != 'pulse':  # whose neighbours are near
        self.assertEqual(int(found.members[i, r]), member, (regime, member))
        np.testing.assert_allclose(
          found.means[i, r], future[i], atol=5e-3, err_msg=f'{regime} {member}'
        )

  def test_is_the_best_of_each_family_by_direct_fits(self):
    batch = walks(2, 6)
    found = fit(batch, limit=1e9, blend=1e9)
    for r, regime in enumerate(regimes.REGIMES):
      bases = [functions(regime, g) for one, g in members() if one == regime]
      fits = [fit_basis(batch, b[:LENGTH], b[LENGTH:], ridge=1e-4) for b in bases]
      errors = np.stack([error for *_, error in fits])
      # The best by the ridge's objective, which the errors are below by little.
      np.testing.assert_allclose(found.errors[:, r], errors.min(axis=0), rtol=0.05)
      for i, g in enumerate(np.asarray(found.members[:, r])):
        mean, fitted, error = (np.asarray(x)[i] for x in fits[g])
        np.testing.assert_allclose(found.fitted[i, r], fitted, atol=2e-3)
        np.testing.assert_allclose(found.errors[i, r], error, rtol=1e-2)
        size = 1 + np.abs(mean).max()
        np.testing.assert_allclose(found.means[i, r] / size, mean / size, atol=5e-3)

  def test_moves_and_scales_with_the_context(self):
    batch = walks(3, 6)
    found, moved = (fit(x, limit=1e9) for x in (batch, 4 * batch - 3))
    np.testing.assert_array_equal(found.members[:, 1:], moved.members[:, 1:])
    np.testing.assert_allclose(moved.errors, 16 * found.errors, rtol=1e-3)
    size = 1 + np.abs(found.means).max(axis=-1, keepdims=True)
    gap = (moved.means - (4 * found.means - 3)) / size
    np.testing.assert_allclose(gap, np.zeros_like(gap), atol=1e-4)

  @parameterized.parameters((1e3, 1e-3), (-5.0, 40.0))
  def test_label_of_a_normalised_series_knows_no_unit(self, shift, scale):
    raw = np.random.default_rng(4).normal(size=(6, LENGTH)).cumsum(axis=1)
    kind = lambda x: choose(fit(normalised(x).astype(np.float32)).errors, regimes.PENALTIES)
    np.testing.assert_array_equal(kind(raw), kind(shift + scale * raw))

  @settings(max_examples=40)
  @given(contexts, st.sampled_from([2.0, 12.0]))
  def test_rejects_what_runs_away(self, batch, limit):
    found = fit(batch, limit=limit, blend=1e9)
    weights = regimes.rising_weights(LENGTH)
    centre = (batch @ weights / LENGTH)[:, None, None]
    chex.assert_tree_all_finite((found.means, found.fitted, found.errors[:, 0]))
    far = np.abs(found.means[..., 1:] - centre).max(axis=-1)
    kept = np.isfinite(found.errors)
    self.assertTrue((far[kept] <= limit + 1e-3).all())

  def test_growth_beyond_the_limit_gives_way_to_slower_or_none(self):
    context = normalised(np.exp(2 * TIMES[:LENGTH])).astype(np.float32)
    growth = regimes.REGIMES.index('growth')
    fits = (fit(context[None], limit=x) for x in (1e9, 30.0, 1.0))
    free, limited, tight = (jax.tree.map(lambda x: x[0], one) for one in fits)
    self.assertEqual(int(free.members[growth]), 3)  # k = 2
    self.assertLess(int(limited.members[growth]), 3)
    self.assertTrue(np.isfinite(limited.errors[growth]))
    self.assertEqual(float(tight.errors[growth]), np.inf)

  def test_begins_at_the_last_observation_and_forgets_it(self):
    batch = walks(5, 6)
    kept, plain = (fit(batch, blend=b) for b in (4.0, 1e9))
    missed = batch[:, None, -1:] - plain.fitted[..., -1:]
    lead = np.arange(1, HORIZON + 1) / LENGTH
    np.testing.assert_allclose(kept.means - plain.means, missed * np.exp(-4 * lead), atol=1e-5)
    held = fit(batch, blend=0.0)
    np.testing.assert_allclose(
      held.means[:, 0], np.repeat(batch[:, -1:], HORIZON, axis=1), atol=1e-5
    )

  def test_maps_and_has_gradients(self):
    batch = walks(6, 6)

    @jax.jit
    @functools.partial(jax.grad, has_aux=True)
    def slope(batch, families):
      fits = jax.vmap(lambda c: regimes.fit(c, families))(batch)
      return fits.means.sum(), fits

    gradient, found = slope(batch, FAMILIES)
    chex.assert_trees_all_close(found, fit(batch), atol=1e-5)
    chex.assert_tree_all_finite(gradient)

  @parameterized.parameters((1, 4, 1e-4), (4, 0, 1e-4), (4, 4, 0.0))
  def test_refuses_lengths_and_ridges_out_of_range(self, length, horizon, ridge):
    with self.assertRaisesRegex(ValueError, 'Needs context_length'):
      regimes.bases(length, horizon, ridge)


class PosteriorTest(chex.TestCase):
  @chex.variants(with_jit=True, without_jit=True)
  def test_odds_are_those_of_the_criterion(self):
    errors = np.float32([0.3, 0.1, np.inf])
    posterior = self.variant(lambda e, s: regimes.posterior(e, (1, 3, 1), 20, s))
    found = posterior(errors, np.float32(0.5))
    log_odds = -20 * (0.3 - 0.1) / (2 * 0.25) + np.log(20)
    np.testing.assert_allclose(found[0] / found[1], np.exp(log_odds), rtol=1e-4)
    np.testing.assert_allclose(found.sum(), 1.0, rtol=1e-6)
    self.assertEqual(float(found[2]), 0.0)

  def test_is_the_best_fit_without_noise_and_the_simplest_with_much(self):
    errors = np.float32([[0.4, 0.2, 0.1], [0.1, 0.3, 0.2]])
    found = [posterior(errors, (1, 2, 3), 16, s) for s in (0.02, 1e3)]
    np.testing.assert_array_equal(np.argmax(found, axis=-1), [[2, 0], [0, 0]])

  def test_gradients_are_finite_beside_excluded_regimes(self):
    errors = jnp.array([0.3, 0.1, jnp.inf])
    loss = lambda s: jnp.sum(regimes.posterior(errors, (1, 2, 3), 16, s) * jnp.arange(3.0))
    chex.assert_tree_all_finite(jax.jit(jax.grad(loss))(0.3))

  def test_choice_is_penalised_and_takes_the_simplest_of_exact_fits(self):
    errors = np.float32([[1.0, 0.9, 0.6], [0.5, 1e-9, 1e-12], [0.3, np.inf, np.inf]])
    found = choose(errors, (1.0, 1.2, 1.5))
    np.testing.assert_array_equal(found, [2, 1, 0])

  def test_knows_the_curves_of_each_regime(self):
    s = TIMES
    curves = {
      'saturating': 1 - np.exp(-4 * s),
      'pulse': s * np.exp(-4 * s),
      'rhythm': np.sin(2 * np.pi * 2 * s),
      'growth': np.exp(s / 2),
    }
    contexts, _ = split(np.stack(list(curves.values())))
    errors = fit(normalised(contexts).astype(np.float32), SHARP, limit=100.0).errors
    found = choose(errors, regimes.PENALTIES)
    self.assertEqual([regimes.REGIMES[r] for r in found], list(curves))


class FeaturesTest(chex.TestCase):
  def test_of_a_sinusoid(self):
    wave = np.sin(2 * np.pi * 4 * np.arange(LENGTH) / LENGTH + 0.3)
    found = features(wave)
    np.testing.assert_allclose(found[0], 1.0, rtol=1e-4)
    self.assertAlmostEqual(found.recurrence, 1.0, places=4)
    self.assertAlmostEqual(found.late_variation, 0.5, delta=0.1)
    turns = np.mean(np.diff(np.sign(np.diff(wave))) != 0)
    self.assertAlmostEqual(found.sign_changes, turns, places=5)

  def test_of_a_line_and_of_a_constant(self):
    line = features(np.linspace(3, 5, LENGTH, dtype=np.float32))
    self.assertEqual((line.trend, line.sign_changes, line.recurrence), (1.0, 0.0, 0.0))
    self.assertAlmostEqual(line.late_variation, 0.5, places=5)
    constant = features(np.full(LENGTH, 0.1, np.float32))
    self.assertEqual(tuple(constant), (0.0, 0.0, 0.0, 0.5, 0.0))

  def test_trend_is_kendalls_tau_against_time(self):
    batch = walks(7, 6)
    expected = [stats.kendalltau(np.arange(LENGTH), x).statistic for x in batch]
    np.testing.assert_allclose(features(batch).trend, expected, rtol=1e-5)

  def test_late_variation_of_a_transient(self):
    self.assertLess(features(np.exp(-np.arange(LENGTH, dtype=np.float32))).late_variation, 0.01)

  @parameterized.parameters(1, 3, 7)
  def test_autocorrelation_about_the_mean(self, lag):
    x = walks(8, 1)[0] + 5
    a, b = x[:-lag] - x.mean(), x[lag:] - x.mean()
    expected = (a @ b) / np.sqrt((a @ a) * (b @ b))
    np.testing.assert_allclose(autocorrelation(x, np.float32(lag)), expected, rtol=1e-4)

  def test_know_no_unit_and_their_ranges(self):
    batch = walks(9, 6)
    found = features(batch)
    chex.assert_trees_all_close(features(7 * batch - 2), found, atol=1e-3)
    for name, low in (
      ('spectral_share', 0),
      ('sign_changes', 0),
      ('late_variation', 0),
      ('trend', -1),
    ):
      value = np.asarray(getattr(found, name))
      self.assertTrue((value >= low).all() and (value <= 1).all(), name)
    self.assertTrue((np.abs(found.recurrence) <= 1 + 1e-5).all())


def trajectories():
  t = np.linspace(0, 1, 128)
  noise = np.random.default_rng(0)
  wander = np.sin(2 * np.pi * 40 * t**3) + np.sin(2 * np.pi * 3 * t)
  return {
    'steady': 5 + 0.01 * np.sin(40 * t),
    'monotone': 1 / (1 + np.exp(-20 * (t - 0.5))) + 0.005 * noise.normal(size=t.size),
    'pulse': t * np.exp(-10 * t),
    'damped': np.exp(-4 * t) * np.cos(2 * np.pi * 6 * t),
    'sustained': np.sin(2 * np.pi * 6 * t) * (1 - np.exp(-8 * t)),
    'irregular': wander,
  }


class LabelTest(chex.TestCase):
  @parameterized.parameters(1.0, -1.0, 1e-6, 1e6)
  def test_of_textbook_curves_in_any_unit(self, scale):
    curves = trajectories()
    found = labels((scale * np.stack(list(curves.values()))).astype(np.float32))
    self.assertEqual([regimes.CLASSES[i] for i in found], list(curves))

  def test_relaxation_oscillations_are_regular(self):
    saw = (np.linspace(0, 5.99, 128) % 1) ** 6
    self.assertEqual(regimes.CLASSES[label(saw)], 'sustained')

  def test_constant_and_zero_are_steady(self):
    self.assertEqual([label(np.full(128, level)) for level in (0.0, 3.0)], [0, 0])

  @settings(max_examples=30)
  @given(hnp.arrays(np.float32, 32, elements=st.floats(-100, 100, width=32)))
  def test_of_sorted_series_is_monotone_or_steady(self, x):
    self.assertIn(label(np.sort(np.tile(x, 4))), (0, 1))
    self.assertIn(label(np.tile(x, 4)), range(6))
