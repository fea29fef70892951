import chex
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import parameterized

from lib.nn import embeddings

TIMES = np.linspace(0.0, 1.0, 33, dtype=np.float32)


class SinusoidalTest(chex.TestCase):
  @chex.variants(with_jit=True, without_jit=True)
  def test_frequencies_fall_geometrically_from_one_to_the_longest_period(self):
    t = np.array([[0.0, 0.3], [2.0, 40.0]], np.float32)
    found = self.variant(lambda t: embeddings.sinusoidal(t, 6, 100.0))(t)
    angles = t[..., None] * np.array([1.0, 0.1, 0.01])
    np.testing.assert_allclose(found, np.concatenate([np.sin(angles), np.cos(angles)], -1), 1e-5)

  def test_inner_product_depends_on_the_difference_alone(self):
    # Σ_k cos(ω_k (s - t)), which is K where s = t.
    embedded = embeddings.sinusoidal(jnp.array([3.0, 10.0, 53.0, 60.0]), 32)
    products = embedded @ embedded.T
    np.testing.assert_allclose(jnp.diag(products), 16.0, rtol=1e-5)
    np.testing.assert_allclose(products[0, 1], products[2, 3], rtol=1e-4)

  @parameterized.parameters((3, 10.0), (2, 10.0), (8, 1.0), (8, np.inf))
  def test_refuses_bad_numbers(self, dim, max_period):
    with self.assertRaisesRegex(ValueError, 'must be'):
      embeddings.sinusoidal(TIMES, dim, max_period)


class FourierTest(chex.TestCase):
  @chex.variants(with_jit=True, without_jit=True)
  def test_pairs_are_powers_of_the_slowest(self):
    # e^{iπt 2^{k+1}} is the square of e^{iπt 2^k}.
    found = self.variant(lambda t: embeddings.fourier(t, 4))(TIMES)
    self.assertEqual(found.shape, (33, 8))
    waves = np.asarray(found[:, 4:] + 1j * found[:, :4])
    np.testing.assert_allclose(waves[:, 0], np.exp(1j * np.pi * TIMES), atol=1e-6)
    np.testing.assert_allclose(waves[:, 1:], waves[:, :-1] ** 2, atol=1e-5)

  def test_no_two_times_share_an_embedding(self):
    embedded = np.asarray(embeddings.fourier(TIMES, 1))
    gaps = np.linalg.norm(embedded[:, None] - embedded, axis=-1) + 2 * np.eye(33)
    np.testing.assert_allclose(gaps.min(), 2 * np.sin(np.pi / 64), rtol=1e-4)

  def test_no_frequencies_embed_nothing(self):
    self.assertEqual(jax.eval_shape(lambda t: embeddings.fourier(t, 0), TIMES).shape, (33, 0))

  def test_refuses_a_negative_number(self):
    with self.assertRaisesRegex(ValueError, 'negative'):
      embeddings.fourier(TIMES, -1)
