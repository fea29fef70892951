"""Tests of the scores, against networks whose law is known."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import parameterized

from configs.renyi_diffusion import digits, quick
from experiments.renyi_diffusion import classifier, data, evaluate, methods, networks
from lib.io import images
from lib.stats import neighbors

SIGMAS = 5.0
PROCESS = methods.process(quick.get_config())


def ring_noise(params, x, t, key=None):
  """The noise that the ring's own score predicts."""
  mean, std = PROCESS.mean(t), PROCESS.std(t)
  variance = mean**2 * data.RING_STD**2 + std**2

  def log_density(x):
    squares = jnp.sum((x[:, None] - mean[..., None] * data.ring_centres()) ** 2, axis=-1)
    return jnp.sum(
      jax.nn.logsumexp(jnp.log(jnp.array(data.RING_WEIGHTS)) - 0.5 * squares / variance, axis=1)
    )

  return -std * jax.grad(log_density)(x)


RING = networks.Network(init=None, noise=ring_noise)
PARAMS = {'seeds': jnp.zeros(2)}


class RingTest(chex.TestCase):
  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.config = quick.get_config()
    cls.config.data.test = cls.size = 1000
    cls.config.eval.samples = cls.config.eval.compared = cls.size
    cls.config.eval.rtol = cls.config.eval.atol = 1e-3
    cls.dataset = data.load(cls.config.data, 2000, 0)
    cls.scores, cls.samples = evaluate.score(cls.config, cls.dataset, RING, PARAMS, None)

  def test_likelihood_of_the_true_score_is_the_density(self):
    exact = -data.ring_log_density(self.dataset.test)
    rare = np.isin(self.dataset.labels, self.dataset.rare)
    for name, expected in (
      ('nll', exact.mean()),
      ('rare_nll', exact[rare].mean()),
      ('q99_nll', np.quantile(exact, 0.99)),
    ):
      chex.assert_shape(self.scores[name], (2,))
      np.testing.assert_allclose(self.scores[name], expected, atol=0.02)

  def test_samples_of_the_true_score_are_as_good_as_other_data(self):
    chex.assert_shape(self.samples, (2, self.size, 2))
    self.assertFalse((self.samples[0] == self.samples[1]).any())
    other = np.asarray(self.dataset.sample(self.dataset.train, jax.random.key(5)))[: self.size]
    expected = neighbors.prdc(self.dataset.test, other, self.config.eval.neighbors)
    for name, value in expected._asdict().items():
      # Shares of a thousand points, here and there, of which neighbours are not independent.
      np.testing.assert_allclose(self.scores[name], value, atol=0.08)
    # Within three standard deviations of a centre lies all but e^{-9/2} of a plane's Gaussian.
    near, error = 1 - np.exp(-4.5), SIGMAS / np.sqrt(self.size)
    np.testing.assert_allclose(self.scores['near'], near, atol=error * np.sqrt(near * (1 - near)))
    np.testing.assert_allclose(
      self.scores['rare_mass'], 0.08, atol=error * np.sqrt(0.08 * 0.92) + 0.005
    )

  def test_only_so_many_points_are_compared(self):
    config = quick.get_config()
    config.eval.compared = 100
    found = evaluate._sample_scores(config, self.dataset, self.samples[0], None)
    expected = neighbors.prdc(self.dataset.test[:100], self.samples[0][:100], config.eval.neighbors)
    for name, value in expected._asdict().items():
      self.assertAlmostEqual(found[name], float(value), places=6)
    self.assertAlmostEqual(found['rare_mass'], self.scores['rare_mass'][0])  # of all samples


class SamplersTest(chex.TestCase):
  @parameterized.parameters(*evaluate.SAMPLERS)
  def test_a_gaussian_is_sampled(self, name):
    centre, std, dim = 0.5, 0.3, 8

    def noise(params, x, t, key=None):
      mean, spread = PROCESS.mean(t), PROCESS.std(t)
      return spread * (x - mean * centre) / (mean**2 * std**2 + spread**2)

    config = quick.get_config()
    config.start = 1e-3
    config.eval.sampler, config.eval.sampler_steps = name, 200
    config.eval.rtol = config.eval.atol = 1e-3
    dataset = data.load(config.data, 2, 0)._replace(shape=(dim,))
    draw = evaluate._sampler(config, dataset, networks.Network(None, noise), PROCESS)
    found = np.asarray(draw({}, jax.random.key(0)))
    chex.assert_shape(found, (evaluate.SAMPLE_BLOCK, dim))
    m, v = float(PROCESS.mean(1e-3)), float(PROCESS.std(1e-3)) ** 2
    variance = m**2 * std**2 + v  # at the first time
    self.assertAlmostEqual(
      found.mean(), m * centre, delta=SIGMAS * np.sqrt(variance / found.size) + 0.005
    )
    bias = 0.1 if name == 'predictor_corrector' else 0.02
    self.assertAlmostEqual(
      found.var() / variance, 1.0, delta=SIGMAS * np.sqrt(2 / found.size) + bias
    )

  @parameterized.parameters((5, 5), (1000, 1000), (1001, 2000))
  def test_blocks_hold_as_many_as_are_wanted(self, wanted, drawn):
    config = quick.get_config()
    config.eval.samples = wanted
    size = min(evaluate.SAMPLE_BLOCK, wanted)
    self.assertEqual(evaluate._blocks(config) * size, drawn)


class SharesTest(chex.TestCase):
  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    config = digits.get_config().data
    # Every image has a number of its own.
    cls.labels = np.repeat(np.arange(4), (400, 300, 200, 100)).astype(np.int32)
    numbers = np.random.default_rng(0).permutation(1000)
    pixels = np.stack([numbers // 256, numbers % 256], axis=1).astype(np.uint8)
    cls.number = lambda _, images: images.reshape(-1, 2).astype(int) @ [256, 1]
    whole = images.Images(pixels.reshape(-1, 1, 2, 1), cls.labels)
    cls.label_of = dict(zip(numbers.tolist(), cls.labels.tolist(), strict=True))
    config.imbalance = 8.0
    cls.dataset = data._split(config, 2, whole, whole, 256)

  @parameterized.parameters(10, 150, 700, 10**6)
  def test_no_image_comes_twice_and_classes_have_their_shares(self, wanted):
    found = self.number(evaluate._by_shares(self.dataset, wanted)).tolist()
    self.assertLen(set(found), len(found))
    self.assertLessEqual(len(found), wanted)
    counts = np.bincount([self.label_of[n] for n in found], minlength=4)
    np.testing.assert_allclose(self.dataset.shares, np.array([8, 4, 2, 1]) / 15)
    # The commonest class sets the most that there can be: 400 of 8/15.
    expected = np.floor(min(wanted, 750) * self.dataset.shares + 1e-6)
    np.testing.assert_array_equal(counts, expected)

  def test_classes_weigh_as_in_training(self):
    values = np.arange(4.0)[self.labels]  # bits of the classes
    log_p = -(values + np.log2(256 / 2)) * 2 * np.log(2)
    found = evaluate._test_scores(self.dataset, log_p)
    self.assertAlmostEqual(found['bpd'], (4 + 2 * 2 + 3) / 15 + 14, places=5)
    for k in range(4):
      self.assertAlmostEqual(found[f'bpd_class_{k}'], k + 14, places=5)
    self.assertAlmostEqual(found['rare_bpd'], 2 + 14, places=5)

  def test_training_images_score_best(self):
    features = lambda x: np.asarray(x).reshape(len(x), -1)
    told = functools.partial(self.told, self.number)
    model = classifier.Classifier(None, told, features)
    config = digits.get_config()
    config.eval.compared, config.eval.neighbors = 150, 5
    own = evaluate._by_shares(self.dataset, 150)
    samples = data.scaled(self.dataset, own).reshape(len(own), -1)
    evaluate.check(config, self.dataset)
    found = evaluate._sample_scores(config, self.dataset, samples, model)
    for name in ('precision', 'recall', 'coverage'):
      self.assertEqual(found[name], 1.0)
    self.assertAlmostEqual(found['fd_cnn'], 0.0, delta=1e-5)
    self.assertLess(found['class_kl'], 1e-3)
    self.assertAlmostEqual(found['rare_mass'], 7 / 15, delta=0.01)
    # Beyond white and black is white and black.
    far = evaluate._sample_scores(config, self.dataset, np.full_like(samples, 9.0), model)
    self.assertGreater(far['fd_cnn'], 0.1)
    self.assertEqual(far['precision'], 0.0)

  def test_refuses_more_neighbours_than_images_to_compare(self):
    config = digits.get_config()
    config.eval.compared = 150
    config.eval.neighbors = count = len(evaluate._by_shares(self.dataset, 150))
    with self.assertRaisesRegex(ValueError, f'eval.neighbors must be below the {count} images'):
      evaluate.check(config, self.dataset)

  def told(self, number, pixels):
    levels = np.rint((np.asarray(pixels) + 1.0) * 128 - 0.5).astype(int)
    labels = [self.label_of.get(n, 0) for n in number(levels).tolist()]
    return np.eye(4)[labels]

  def test_without_classes_there_is_nothing_to_compare(self):
    dataset = self.dataset._replace(known=None, shares=None, labels=None)
    self.assertEqual(
      evaluate._sample_scores(None or digits.get_config(), dataset, np.zeros((5, 2)), None), {}
    )
    found = evaluate._test_scores(dataset, np.zeros(7))
    self.assertEqual(list(found), ['bpd'])
    self.assertIsNone(evaluate.prepare_features(digits.get_config(), dataset))
