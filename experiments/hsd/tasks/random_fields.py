"""Gaussian random fields as functions of space, so that all meshes see the same ones."""

from collections.abc import Callable

import numpy as np


def draw(
  rng: np.random.Generator, dimension: int, length: float, features: int = 128
) -> Callable[[np.ndarray], np.ndarray]:
  """Draws a smooth field of mean 0 and variance 1 by random Fourier features.

    g(x) = √(2/M) Σ_j cos(ω_j · x + b_j),    ω_j ~ N(0, 1/ℓ²),  b_j uniform

  whose covariance is exp(-|x - y|²/(2ℓ²)); it is Gaussian as M grows. Rahimi and Recht (2007).

  Args:
    rng: where it comes from.
    dimension: D of space.
    length: ℓ, > 0, of the correlation.
    features: M.

  Returns:
    g, from points (..., D) to values (...).
  """
  frequencies = rng.normal(size=(features, dimension)) / length
  phases = rng.uniform(0, 2 * np.pi, features)
  return lambda x: np.sqrt(2 / features) * np.cos(x @ frequencies.T + phases).sum(axis=-1)
