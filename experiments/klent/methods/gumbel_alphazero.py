"""Gumbel AlphaZero: sequential halving over a few actions that Gumbel noise picks.

Danihelka et al. (2022), ICLR, as in the example of pgx.
"""

import functools

from experiments.klent.methods import learner, searched
from lib.games import search


def make(problem: learner.Problem) -> learner.Method:
  """Builds the method."""
  look = functools.partial(
    search.gumbel_alphazero, problem.env, rescale_values=problem.agent.rescale_values
  )
  return searched.make(problem, look)
