"""Traced. The multilayer perceptron that policies, critics and velocity fields share."""

from collections.abc import Callable, Sequence

import chex
import flax.linen as nn
import jax


class MLP(nn.Module):
  """Dense layers with an activation, and optionally LayerNorm, after each hidden one.

  The output layer is linear. Kernels start from Glorot's uniform law and biases from zero.

  Attributes:
    hidden: widths of the hidden layers.
    features: width of the output.
    layer_norm: whether each hidden activation is normalised (Ba et al., 2016, arXiv:1607.06450).
    activation: elementwise nonlinearity. A field whose Jacobian is penalised needs a smooth one:
      ReLU's is piecewise constant.
    output_scale: factor on the variance of the output layer's first kernel; small values start a
      policy near the centre of its box.
  """

  hidden: Sequence[int]
  features: int
  layer_norm: bool = False
  activation: Callable[[chex.Array], chex.Array] = jax.nn.gelu
  output_scale: float = 1.0

  @nn.compact
  def __call__(self, x: chex.Array) -> chex.Array:
    """Maps inputs (..., d) to outputs (..., features)."""
    init = nn.initializers.variance_scaling(1.0, 'fan_avg', 'uniform')
    for width in self.hidden:
      x = self.activation(nn.Dense(width, kernel_init=init)(x))
      if self.layer_norm:
        x = nn.LayerNorm()(x)
    last = nn.initializers.variance_scaling(self.output_scale, 'fan_avg', 'uniform')
    return nn.Dense(self.features, kernel_init=last)(x)
