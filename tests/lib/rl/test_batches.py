import chex
import jax
import jax.numpy as jnp
import numpy as np
import scipy.stats

from lib.rl import batches


class SampleBatchTest(chex.TestCase):
  @chex.variants(with_jit=True, without_jit=True)
  def test_rows_stay_together(self):
    data = {'a': jnp.arange(50.0), 'b': jnp.stack([jnp.arange(50.0), -jnp.arange(50.0)], 1)}
    sample = self.variant(lambda d, k: batches.sample_batch(d, k, 64))
    batch = sample(data, jax.random.key(0))
    chex.assert_shape(batch['b'], (64, 2))
    np.testing.assert_array_equal(batch['b'], jnp.stack([batch['a'], -batch['a']], 1))

  def test_is_uniform(self):
    draws = batches.sample_batch(jnp.arange(10), jax.random.key(0), 20_000)
    counts = np.bincount(draws, minlength=10)
    self.assertGreater(scipy.stats.chisquare(counts).pvalue, 1e-3)

  def test_refuses_nothing_to_draw(self):
    with self.assertRaisesRegex(ValueError, '0 rows'):
      batches.sample_batch(jnp.zeros((0, 2)), jax.random.key(0), 4)
    with self.assertRaisesRegex(ValueError, 'batch_size=0'):
      batches.sample_batch(jnp.zeros((3, 2)), jax.random.key(0), 0)
