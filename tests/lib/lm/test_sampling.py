import chex
import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import parameterized
from hypothesis import strategies as st

from lib.lm import sampling

LOGITS = jnp.log(jnp.array([0.05, 0.4, 0.15, 0.3, 0.1]))


def kept(logits):
  return set(np.flatnonzero(np.isfinite(logits)).tolist())


class CutsTest(chex.TestCase):
  @chex.variants(with_jit=True, without_jit=True)
  def test_known_sets(self):
    cut = lambda fn, value: kept(self.variant(lambda x: fn(x, value))(LOGITS))
    self.assertEqual(cut(sampling.keep_top_k, 2), {1, 3})
    self.assertEqual(cut(sampling.keep_top_k, 0), {0, 1, 2, 3, 4})
    self.assertEqual(cut(sampling.keep_top_k, 9), {0, 1, 2, 3, 4})
    self.assertEqual(cut(sampling.keep_top_p, 0.5), {1, 3})  # the token that crosses stays
    self.assertEqual(cut(sampling.keep_top_p, 0.39), {1})
    self.assertEqual(cut(sampling.keep_top_p, 1e-9), {1})
    self.assertEqual(cut(sampling.keep_top_p, 1.0), {0, 1, 2, 3, 4})
    self.assertEqual(cut(sampling.keep_min_p, 0.3), {1, 2, 3})
    self.assertEqual(cut(sampling.keep_min_p, 1.0), {1})
    self.assertEqual(cut(sampling.keep_min_p, 0.0), {0, 1, 2, 3, 4})

  @hypothesis.given(st.lists(st.floats(-20, 20, width=32), min_size=5, max_size=5),
                    st.floats(0.05, 0.999))  # fmt: skip
  def test_nucleus_is_the_smallest_set(self, logits, p):
    x = jnp.array(logits)
    inside = kept(sampling.keep_top_p(x, p))
    probabilities = np.asarray(jax.nn.softmax(x), np.float64)
    mass = sum(probabilities[i] for i in inside)
    self.assertGreaterEqual(mass, p - 1e-5)
    least = min(inside, key=lambda i: probabilities[i])
    ties = sum(probabilities[i] for i in inside if logits[i] == logits[least])
    self.assertLess(mass - ties, p + 1e-5)

  @parameterized.parameters(
    {'temperature': -1.0}, {'top_k': -1}, {'top_p': 0.0}, {'top_p': 1.1}, {'min_p': -0.1},
    {'min_p': 2.0}, {'temperature': float('nan')},
  )  # fmt: skip
  def test_refuses(self, **setting):
    with self.assertRaisesRegex(ValueError, next(iter(setting))):
      sampling.check(sampling.Sampling(**setting))


class SampleTest(chex.TestCase):
  @chex.variants(with_jit=True, without_jit=True)
  def test_frequencies_are_the_tempered_probabilities(self):
    settings = sampling.Sampling(temperature=0.5)
    keys = jax.random.split(jax.random.key(0), 4000)
    draw = self.variant(jax.vmap(lambda key: sampling.sample(key, LOGITS, settings)))
    counts = np.bincount(draw(keys), minlength=5) / 4000
    expected = np.asarray(jax.nn.softmax(LOGITS / 0.5))
    np.testing.assert_array_less(
      np.abs(counts - expected), 5 * np.sqrt(expected * (1 - expected) / 4000)
    )

  def test_no_temperature_takes_the_largest(self):
    self.assertEqual(int(sampling.sample(jax.random.key(0), LOGITS, sampling.GREEDY)), 1)

  def test_cuts_follow_the_temperature(self):
    settings = sampling.Sampling(temperature=0.1, top_p=0.9)  # now the first has 0.94
    keys = jax.random.split(jax.random.key(0), 200)
    drawn = jax.vmap(lambda key: sampling.sample(key, LOGITS, settings))(keys)
    self.assertEqual(set(np.unique(drawn).tolist()), {1})
