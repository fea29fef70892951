"""Darcy's flow through random rock around wells: the unit square with holes (0, 1 -> 1).

For random permeability κ and outflows q_i of the holes, the output is the flux F = -κ ∇p with

  div F = f        the flux out of the hole i = q_i, p constant on it        p = 0 on the rim

f is fixed. Lowest-order mixed elements: F_e is the flux through the edge e, from its left to its
right, and F minimises ∫ |F|²/κ among the fluxes with d1 F = ∫ f on faces and those outflows, which
it keeps exactly; 1/κ is constant on faces, the mean of its values at the corners. They are one such
flux plus d0 s, a rotated gradient, so that only s depends on κ; `uniform` is the flux for κ = 1.
"""

import numpy as np

from experiments.hsd.tasks import domains, random_fields, record
from lib.hodge import matrices, stars, whitney

DEFAULTS = {
  'holes': 2,  # 1, 2 or 3
  'size': 20,  # edges along a side of the square
  'contrast': 1.0,  # standard deviation of log κ
  'length': 0.2,  # of its correlation
  'source': 1.0,  # f
  'outflow': 0.5,  # standard deviation of q_i
}


def make(options, refine: int = 0) -> record.Task:
  """Makes the task from `DEFAULTS` or other values of their fields."""
  c, points, diagonals, weights = domains.plane_with_holes(
    options['holes'], options['size'], refine
  )
  cycles = domains.boundary_loops(c, points)
  mass = domains.exact(lambda x: whitney.surface_masses(c, stars.edge_lengths(c, x))[1], points)
  d0, d1 = (matrices.incidence(c, k).astype(float) for k in (0, 1))
  supplied = options['source'] / diagonals[2]
  particular = domains.particular_flux(c, 1, diagonals[1], cycles)

  def least_energy(flux, resistance):
    """The flux with these outflows that minimises Σ_f resistance_f ∫_f |F|²."""
    local = np.einsum('fij,fj->fi', mass.local, flux[c.face_edges])
    momentum = domains.edge_sums(c, resistance[:, None] * local)
    stiffness = domains.stiffness(c, domains.edge_sums(c, resistance[:, None] * weights))
    return flux - d0 @ domains.grounded(stiffness)(d0.T @ momentum)

  def sample(rng):
    field = random_fields.draw(rng, 2, options['length'])
    log_permeability = options['contrast'] * field(points)
    given = options['outflow'] * rng.normal(size=len(cycles))
    resistance = np.exp(-log_permeability)[c.faces].mean(axis=1)
    uniform = least_energy(particular(supplied, given), np.ones(len(c.faces)))
    return {
      'log_permeability': log_permeability,
      'uniform': uniform,
      'given': given,
      'flux': least_energy(uniform, resistance),
    }

  balance = record.linear_invariant('divergence', d1, lambda samples: supplied)
  return record.Task(
    name='darcy',
    complex=c,
    points=points,
    stars=diagonals,
    inputs=(record.Field('log_permeability', 0), record.Field('uniform', 1)),
    output=record.Field('flux', 1),
    start='uniform',
    keeps_harmonic=True,
    cycles=cycles,
    invariants=(balance, record.periods_kept(cycles)),
    sample=sample,
  )
