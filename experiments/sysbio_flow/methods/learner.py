"""What a forecaster is: functions of contexts, learnt or not."""

from collections.abc import Callable
from typing import Any, NamedTuple

import chex

from experiments.sysbio_flow import data


class Problem(NamedTuple):
  """What is to be forecast.

  Attributes:
    context: L_c, points that are seen.
    horizon: H, points that follow.
    train: series to learn from.
  """

  context: int
  horizon: int
  train: data.Split


class Forecaster(NamedTuple):
  """A rule without parameters.

  Attributes:
    forecast: `(context (B, L_c), key, num_samples S) -> (S, B, H)`; a rule without a law of its own
      says one thing, (1, B, H).
  """

  forecast: Callable[[chex.Array, chex.PRNGKey, int], chex.Array]


class Network(NamedTuple):
  """A rule that is learnt.

  Attributes:
    init: `key -> params`.
    loss: `(params, batch, key) -> scalar`, with `context` (B, L_c) and `future` (B, H).
    forecast: `(params, context (B, L_c), key, num_samples S) -> (S, B, H)`.
  """

  init: Callable[[chex.PRNGKey], Any]
  loss: Callable[[Any, dict[str, chex.Array], chex.PRNGKey], chex.Array]
  forecast: Callable[[Any, chex.Array, chex.PRNGKey, int], chex.Array]


Method = Forecaster | Network
