"""Traced. Votes of a judge whose self-preference is known, to see what a test makes of them."""

from typing import NamedTuple

import chex
import jax


class Votes(NamedTuple):
  """Votes of one judge.

  Attributes:
    judge: (items,) for its own answers.
    proxy: (proxies, items) for those of each proxy.
  """

  judge: chex.Array
  proxy: chex.Array


def simulate_votes(
  key: chex.PRNGKey,
  num_items: int,
  num_proxies: int,
  difficulty: chex.Numeric = 0.8,
  noise: chex.Numeric = 0.4,
  self_bonus: chex.Numeric = 0.0,
) -> Votes:
  """Draws votes with a difficulty that all answers to an item share.

    s_J(e) = σ(u_e + noise · ε_e + b),   s_K(e) = σ(u_e + noise · ε_{K,e})

  where u_e ~ N(0, difficulty²) and ε are standard normal.
  With b = 0 the vote for oneself and that for any proxy have one law: the null hypothesis. The
  excesses over several proxies still share ε_e, so that pairs of one item are not independent.

  Args:
    key: typed PRNG key.
    num_items: items, > 0.
    num_proxies: proxies, > 0.
    difficulty: standard deviation of an item's logit, >= 0.
    noise: standard deviation of an answer's logit about that of its item, >= 0.
    self_bonus: b, what the judge adds to the logit of its own answer.

  Returns:
    The votes, in (0, 1).

  Raises:
    ValueError: if a number of items or proxies is not positive.
  """
  if num_items < 1 or num_proxies < 1:
    raise ValueError(f'There must be items and proxies, got {num_items=} and {num_proxies=}.')
  item_key, answer_key = jax.random.split(key)
  items = difficulty * jax.random.normal(item_key, (num_items,))
  answers = noise * jax.random.normal(answer_key, (1 + num_proxies, num_items))
  judge = jax.nn.sigmoid(items + answers[0] + self_bonus)
  return Votes(judge, jax.nn.sigmoid(items + answers[1:]))
