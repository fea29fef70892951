"""Advection and diffusion on a surface, with mass conserved to rounding."""

from collections.abc import Callable

import numpy as np
from scipy import sparse
from scipy.sparse import linalg

from experiments.hsd.tasks import domains
from lib.hodge import matrices


def stepper(
  surface: domains.Surface, viscosity: float, speed: float, step: float
) -> Callable[[np.ndarray], np.ndarray]:
  """One step of Crank and Nicolson for u_t = ν Δu - div(u v) on vertices.

  The velocity v is rotation about z, tangent to the surface and without its gradient part, so that
  div v = 0: on a surface of revolution about z, the rotation itself. Per edge, u v flows from
  vertex to vertex by the flux of v times the mean of u; Δ has the cotangent weights.

  Args:
    surface: the surface.
    viscosity: ν.
    speed: angular velocity.
    step: of time.

  Returns:
    `advance(u) -> u` (N,).
  """
  c, (star0, star1, _) = surface.complex, surface.stars
  d0 = matrices.incidence(c, 0).astype(float)
  stiffness = domains.stiffness(c, star1)
  low, high = surface.points[c.edges].transpose(1, 0, 2)
  # Rotation is linear: the integral of z × x along an edge.
  turning = speed * (low[:, 0] * high[:, 1] - low[:, 1] * high[:, 0])
  flux = star1 * (turning - d0 @ domains.grounded(stiffness)(d0.T @ (star1 * turning)))
  change = d0.T @ sparse.diags_array(flux) @ abs(d0) / 2 - viscosity * stiffness
  mass = sparse.diags_array(star0)
  solve = linalg.splu((mass - step / 2 * change).tocsc()).solve
  forward = (mass + step / 2 * change).tocsr()
  return lambda u: solve(forward @ u)
