"""AlphaZero: search by upper confidence bounds, moves and targets by visits.

Silver et al. (2018), Science 362.
"""

import functools

from experiments.klent.methods import learner, searched
from lib.games import search


def make(problem: learner.Problem) -> learner.Method:
  """Builds the method."""
  agent = problem.agent
  look = functools.partial(
    search.alphazero,
    problem.env,
    dirichlet_fraction=agent.dirichlet_fraction,
    dirichlet_alpha=agent.dirichlet_alpha,
  )
  return searched.make(problem, look)
