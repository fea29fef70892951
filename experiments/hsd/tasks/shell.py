"""Electric displacement between two spheres in a random dielectric (0, 0, 2 -> 2).

For random permittivity ε, charge density ρ and charge Q of the inner sphere, the output is the
flux D = -ε ∇φ with

  div D = ρ        the flux out of the inner sphere = Q, φ constant on it        φ = 0 on the outer

both spheres being conductors. Lowest-order mixed elements: D_f is the flux through the face f, and
D minimises ∫ |D|²/ε among the fluxes with d2 D = ∫ ρ on tetrahedra and that Q, which it keeps
exactly; ρ is linear on tetrahedra, and 1/ε constant, the mean of its values at the corners. They
are one such flux plus d1 a, a on the edges that are not in a spanning tree, so that only a depends
on ε; `uniform` is the flux for ε = 1.
"""

import numpy as np
from scipy import sparse

from experiments.hsd.tasks import domains, random_fields, record
from lib.hodge import complexes, matrices, stars, whitney

DEFAULTS = {
  'inner': 0.4,  # radii of the spheres
  'outer': 2.0,
  'size': 4,  # edges from one sphere to the other
  'contrast': 1.0,  # standard deviation of log ε
  'length': 0.8,  # of correlation, of log ε and ρ
  'source': 0.2,  # standard deviation of ρ
  'charge': 2.0,  # of Q
}


def make(options, refine: int = 0) -> record.Task:
  """Makes the task from `DEFAULTS` or other values of their fields."""
  inner, outer = options['inner'], options['outer']
  points, tets = domains.shell(inner, outer, options['size'], refine)
  c = complexes.tet_complex(tets, len(points))
  diagonals = domains.exact(lambda x: stars.barycentric_tets(c, x), points)
  stars.check_positive(diagonals)
  cycles = domains.boundary_loops(c, points)
  mass = domains.exact(lambda x: whitney.tet_masses(c, x)[2], points)
  particular = domains.particular_flux(c, 2, diagonals[2], cycles)
  d2 = matrices.incidence(c, 2)
  d1 = matrices.incidence(c, 1).astype(float)[:, ~_spanning_tree(c)]
  charges = lambda density: density[..., c.tets].mean(axis=-1) / diagonals[3]

  def energy(resistance):
    """The matrix of Σ_t resistance_t ∫_t |D|²."""
    local = resistance[:, None, None] * mass.local
    return matrices.mass(whitney.Mass(mass.cells, local), len(c.faces))

  vacuum = energy(np.ones(len(c.tets)))
  in_vacuum = matrices.factor(d1.T @ vacuum @ d1).solve

  def sample(rng):
    draw = lambda: random_fields.draw(rng, 3, options['length'])(points)
    log_permittivity = options['contrast'] * draw()
    density = options['source'] * draw()
    given = options['charge'] * rng.normal(size=1)
    uniform = particular(charges(density), given)
    uniform -= d1 @ in_vacuum(d1.T @ (vacuum @ uniform))
    filled = energy(np.exp(-log_permittivity)[c.tets].mean(axis=1))
    change = matrices.factor(d1.T @ filled @ d1).solve(d1.T @ (filled @ uniform))
    return {
      'log_permittivity': log_permittivity,
      'density': density,
      'uniform': uniform,
      'given': given,
      'flux': uniform - d1 @ change,
    }

  balance = record.linear_invariant('divergence', d2, lambda samples: charges(samples['density']))
  return record.Task(
    name='shell',
    complex=c,
    points=points,
    stars=diagonals,
    inputs=(
      record.Field('log_permittivity', 0),
      record.Field('density', 0),
      record.Field('uniform', 2),
    ),
    output=record.Field('flux', 2),
    start='uniform',
    keeps_harmonic=True,
    cycles=cycles,
    invariants=(balance, record.periods_kept(cycles)),
    sample=sample,
  )


def _spanning_tree(c: complexes.Complex) -> np.ndarray:
  """Which edges (E,) are in a tree that joins all vertices."""
  numbers = np.arange(1, len(c.edges) + 1)  # as weights, none of them zero
  graph = sparse.coo_array((numbers, tuple(c.edges.T)), (int(c.sizes[0]),) * 2)
  tree = sparse.csgraph.minimum_spanning_tree(graph.tocsr())
  return np.isin(numbers, tree.data)
