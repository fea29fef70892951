"""What the methods share: their signature, and a task's data as they see it."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import chex

from experiments.hsd import space as spaces

Params = Any
Inputs = Mapping[str, chex.Array]


class Prediction(NamedTuple):
  """Changes (B, n) from the start, and what training adds to their loss ()."""

  output: chex.Array
  penalty: chex.Array


class Problem(NamedTuple):
  """What a method is made for.

  Attributes:
    degrees: of the inputs' cochains, by name.
    channels: numbers that each input has at a vertex, by name.
    degree: of the output.
    written: the degree that networks write, of the change or, where it is known to be exact, of a
      potential, one less.
    channels_written: numbers that this has at a vertex.
    start: the input, of the output's degree and in its units, from which changes are counted.
    keeps_harmonic: whether changes have no harmonic part.
    space: of the mesh that is trained on.
    train: inputs by name (R, n) and `output` (R, n), the change that there is to predict; scaled
      to be of order 1.
    valid: as `train`, to choose by.
  """

  degrees: Mapping[str, int]
  channels: Mapping[str, int]
  degree: int
  written: int
  channels_written: int
  start: str
  keeps_harmonic: bool
  space: spaces.Space
  train: Inputs
  valid: Inputs


class Network(NamedTuple):
  """A method that is trained by gradients.

  Attributes:
    init: `init(key) -> params`.
    apply: `apply(params, space, inputs) -> Prediction`, for inputs (B, n); on another mesh as well
      where `transfers`.
    transfers: whether it knows other meshes than that of its training.
  """

  init: Callable[[chex.PRNGKey], Params]
  apply: Callable[[Params, spaces.Space, Inputs], Prediction]
  transfers: bool = True


class Solver(NamedTuple):
  """A method in closed form.

  Attributes:
    fit: `fit() -> params`, by the problem's training data and, for its own choices, its valid ones.
    apply: as a network's.
    transfers: likewise.
  """

  fit: Callable[[], Params]
  apply: Callable[[Params, spaces.Space, Inputs], Prediction]
  transfers: bool = False


Method = Network | Solver
