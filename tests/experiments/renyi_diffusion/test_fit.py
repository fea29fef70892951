"""Tests of the single Gaussians that are fitted to two modes."""

from unittest import mock

import chex
import numpy as np
from absl.testing import parameterized
from scipy import integrate

from experiments.renyi_diffusion import fit

# Found by quadrature and a global search, in float64.
BEST = {
  0.1: (-2.0, 0.5, 0.0396),
  0.3: (-2.0, 0.5, 0.1528),
  0.5: (-1.9995, 0.5011, 0.3565),
  0.9: (-0.804, 1.892, 0.6976),
  1.0: (-0.8, 1.9, 0.7242),
  2.0: (-0.785, 1.937, 0.8771),
  5.0: (-0.776, 1.958, 1.0222),
}


class BestGaussianTest(chex.TestCase):
  @parameterized.parameters(*BEST)
  def test_is_the_known_one(self, alpha):
    mean, std, divergence = BEST[alpha]
    found = fit.best_gaussian(alpha)
    # To the digits that are written there.
    self.assertAlmostEqual(found.mean, mean, delta=6e-4)
    self.assertAlmostEqual(found.std, std, delta=6e-4)
    self.assertAlmostEqual(found.divergence, divergence, delta=6e-5)

  def test_likelihood_matches_moments(self):
    found = fit.best_gaussian(1.0)
    weights, means, stds = map(np.array, zip(*fit.MODES, strict=True))
    mean = weights @ means
    self.assertAlmostEqual(found.mean, mean, delta=1e-4)
    variance = weights @ (stds**2 + (means - mean) ** 2)
    self.assertAlmostEqual(found.std, np.sqrt(variance), delta=1e-4)

  def test_density_is_one(self):
    x = np.linspace(-8, 8, 4001)
    density = np.exp(fit.log_density(x))
    self.assertAlmostEqual(integrate.simpson(density, x=x), 1.0, delta=1e-5)

  def test_every_order_is_drawn(self):
    fits = {alpha: fit.Fit(0.2 * alpha - 1.0, 0.5 + 0.1 * alpha, 0.0) for alpha in fit.ALPHAS}
    with mock.patch.object(fit, 'best_gaussian', fits.__getitem__):
      left, right = fit.figure_of_fits().axes
    self.assertEqual([line.get_label() for line in left.lines], [f'α = {a:g}' for a in fit.SHOWN])
    for line in left.lines:
      x, y = line.get_data()
      self.assertAlmostEqual(integrate.simpson(y, x=x), 1.0, delta=1e-3)
    for line, name in zip(right.lines, ('mean', 'std'), strict=True):
      expected = [getattr(fits[a], name) for a in fit.ALPHAS]
      np.testing.assert_array_equal(line.get_data(), [fit.ALPHAS, expected])
