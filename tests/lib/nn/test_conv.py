import chex
import jax
import jax.numpy as jnp
import numpy as np

from lib.nn import conv


class ConvTest(chex.TestCase):
  def test_derivatives_that_are_written_out_are_those_of_jax(self):
    rng = np.random.default_rng(0)
    x, kernel, g = (
      rng.normal(size=shape).astype(np.float32)
      for shape in ((2, 4, 6, 3), (3, 3, 3, 5), (2, 4, 6, 5))
    )
    found = jax.jit(conv._backward_cpu)(x, kernel, g)
    expected = jax.jit(conv._backward_default)(x, kernel, g)
    for a, b in zip(found, expected, strict=True):
      np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)

  def test_training_changes_no_number_and_forward_mode_is_open_elsewhere(self):
    layer = conv.Conv(3)
    x, other = (
      np.random.default_rng(seed).normal(size=(4, 6, 6, 2)).astype(np.float32) for seed in (0, 2)
    )
    kernel = np.random.default_rng(1).normal(size=(3, 3, 2, 3)).astype(np.float32)
    params = {'params': {'kernel': kernel, 'bias': np.arange(3, dtype=np.float32)}}

    def loss(x, params, deterministic):
      return jnp.sum(jnp.sin(layer.apply(params, x, deterministic)))

    both = jax.jit(lambda: [jax.grad(loss, (0, 1))(x, params, on) for on in (True, False)])()
    chex.assert_trees_all_close(*both, rtol=1e-4, atol=1e-4)
    tangent = jax.jit(lambda: jax.jvp(lambda y: loss(y, params, True), (x,), (other,))[1])()
    np.testing.assert_allclose(tangent, np.sum(both[0][0] * other), rtol=1e-4)
