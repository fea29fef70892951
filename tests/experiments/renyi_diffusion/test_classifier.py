import chex
import jax
import numpy as np

from experiments.renyi_diffusion import classifier


def halves(count, seed):
  """Images whose bright half tells the class: left 0, right 1, top 2."""
  rng = np.random.default_rng(seed)
  labels = rng.integers(0, 3, count)
  images = -0.5 + 0.3 * rng.normal(size=(count, 8, 8, 1))
  images[labels == 0, :, :4] += 1.0
  images[labels == 1, :, 4:] += 1.0
  images[labels == 2, :4] += 1.0
  return np.clip(images, -1, 1).astype(np.float32), labels


class TrainTest(chex.TestCase):
  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.model = classifier.train(*halves(300, 0), jax.random.key(0), 60, batch_size=32)

  def test_learns_classes_that_can_be_told_apart(self):
    images, labels = halves(300, 1)
    self.assertGreater(classifier.accuracy(self.model, images, labels), 0.97)
    # After half a turn left is right and right is left.
    told = self.model.logits(images[:, ::-1, ::-1])[labels < 2].argmax(axis=-1)
    self.assertGreater(np.mean(told == 1 - labels[labels < 2]), 0.9)

  def test_logits_are_affine_in_the_features(self):
    images, _ = halves(300, 2)
    logits, features = self.model.logits(images), self.model.features(images)
    self.assertEqual((logits.shape, features.shape), ((300, 3), (300, classifier.FEATURES)))
    design = np.concatenate([features, np.ones((300, 1))], axis=1)
    solution, *_ = np.linalg.lstsq(design, logits, rcond=None)
    np.testing.assert_allclose(design @ solution, logits, atol=1e-3)

  def test_refuses_labels_that_do_not_fit(self):
    with self.assertRaises(AssertionError):
      classifier.train(np.zeros((3, 8, 8, 1)), np.zeros(2, int), jax.random.key(0), 1)


class AccuracyTest(chex.TestCase):
  def test_counts_the_greatest_logits(self):
    model = classifier.Classifier(None, lambda images: np.eye(3)[[0, 1, 1, 2]], None)
    self.assertEqual(
      classifier.accuracy(model, np.zeros((4, 8, 8, 1)), np.array([0, 1, 2, 2])), 0.75
    )


class BlocksTest(chex.TestCase):
  def test_every_row_once_and_in_order_and_few_at_a_time(self):
    seen = []
    rows = np.arange(2 * classifier._ROWS + 3)
    found = classifier._in_blocks(lambda x: seen.append(len(x)) or 2 * x, rows)
    np.testing.assert_array_equal(found, 2 * rows)
    self.assertEqual(seen, [classifier._ROWS, classifier._ROWS, 3])


class AugmentTest(chex.TestCase):
  augment = staticmethod(jax.jit(classifier.augment))

  def test_every_image_is_shifted_by_a_pixel_at_most(self):
    image = np.random.default_rng(0).normal(size=(1, 5, 5, 2)).astype(np.float32)
    found = np.asarray(self.augment(jax.random.key(0), np.repeat(image, 300, 0), 0.0))
    padded = np.pad(image, ((0, 0), (1, 1), (1, 1), (0, 0)), mode='edge')
    shifts = np.stack([padded[0, i : i + 5, j : j + 5] for i in range(3) for j in range(3)])
    which = [np.flatnonzero((shifts == one).all(axis=(1, 2, 3))) for one in found]
    self.assertEqual({len(match) for match in which}, {1})
    self.assertEqual({int(match[0]) for match in which}, set(range(9)))

  def test_noise_has_a_strength_of_each_images_own(self):
    black = np.zeros((300, 5, 5, 2), np.float32)
    found = np.asarray(self.augment(jax.random.key(0), black, 0.2)).std(axis=(1, 2, 3))
    self.assertLess(found.max(), 0.2 * 1.5)
    self.assertAlmostEqual(found.mean(), 0.1, delta=0.02)
    self.assertGreater(found.std(), 0.03)
