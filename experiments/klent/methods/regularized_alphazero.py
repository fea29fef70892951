"""AlphaZero whose moves and targets are the regularised policy that its values solve for.

Grill et al. (2020), arXiv:2007.12509. It is probably what Ota et al. (2026) call TRPO AlphaZero.
"""

import functools

from experiments.klent.methods import learner, searched
from lib.games import search


def make(problem: learner.Problem) -> learner.Method:
  """Builds the method."""
  agent = problem.agent
  look = functools.partial(
    search.regularized_search,
    problem.env,
    c=agent.search_weight,
    dirichlet_fraction=agent.dirichlet_fraction,
    dirichlet_alpha=agent.dirichlet_alpha,
  )
  return searched.make(problem, look)
