"""Tests of padded complexes: each behaves as it does alone."""

import chex
import jax
import numpy as np
from absl.testing import parameterized

from lib.hodge import batching, complexes, matrices, operators
from tests.lib.hodge import toys

SINGLE = complexes.tet_complex(np.array([[0, 1, 2, 3]]), 4)
RIM = np.arange(1, 31)
FAN = complexes.tri_complex(np.column_stack([np.zeros(30, int), RIM, np.roll(RIM, -1)]), 31)


@toys.exact
def batched_laplacians(c, stars, cochains):
  each = lambda c, stars, cochains: [
    operators.laplacian(c, stars, k, w) for k, w in enumerate(cochains)
  ]
  return jax.vmap(each)(c, stars, cochains)


class BatchingTest(chex.TestCase):
  @parameterized.named_parameters(
    ('surfaces', [toys.surface('sphere')[1], toys.surface('annulus')[1]]),
    ('one_without_table', [toys.surface('annulus')[1], FAN]),
    ('volumes', [toys.volume('ball')[1], SINGLE]),
  )
  def test_laplacians_of_a_batch(self, members):
    stars = [toys.random_stars(c, i) for i, c in enumerate(members)]
    rng = np.random.default_rng(0)
    cochains = [[rng.normal(size=(2, star.size)) for star in each] for each in stars]
    batch = batching.stack(members)
    together = lambda each: [batching.pad_cochains(w) for w in zip(*each, strict=True)]
    # What stands in the padding of cochains does not matter.
    noisy = [np.where(w == 0, 7.0, w) for w in together(cochains)]
    found = batched_laplacians(batch, together(stars), noisy)
    for i, c in enumerate(members):
      for k, (star, w) in enumerate(zip(stars[i], cochains[i], strict=True)):
        size = c.sizes[k]
        expected = w @ matrices.laplacian(c, stars[i], k) / star
        np.testing.assert_allclose(found[k][i, :, :size], expected, atol=1e-11)
        self.assertEqual(abs(found[k][i, :, size:]).max(initial=0), 0)

  def test_masks(self):
    members = [toys.surface('sphere')[1], toys.surface('annulus')[1]]
    masks = jax.vmap(operators.masks)(batching.stack(members))
    for mask, sizes in zip(masks, np.transpose([c.sizes for c in members]), strict=True):
      np.testing.assert_array_equal(mask.sum(axis=1), sizes)

  def test_a_surface_may_stand_beside_a_volume(self):
    batch = batching.stack([FAN, SINGLE])
    w = np.ones((2, batch.faces.shape[1]))
    d2 = jax.vmap(operators.d2)(batch, w)
    self.assertEqual(d2.shape, (2, 1))
    self.assertEqual(d2[0], 0)

  def test_refuses_what_has_no_room(self):
    with self.assertRaisesRegex(ValueError, 'no room'):
      batching.pad(FAN, (30, 100, 100, 0))
    with self.assertRaisesRegex(ValueError, 'no room'):
      batching.pad(toys.surface('sphere')[1], (50, 150, 150, 0), (3, 3, 3))
    with self.assertRaisesRegex(ValueError, 'no room'):
      batching.pad(FAN, FAN.sizes, (40, 2, 0))
    with self.assertRaisesRegex(ValueError, 'at least one'):
      batching.stack([])
