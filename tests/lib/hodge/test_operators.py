"""Tests of the operators against their matrices, under jax's transformations."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import parameterized
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.hodge import complexes, matrices, operators, topology
from tests.lib.hodge import toys


def fan():
  """A disc whose centre has too many edges for a table."""
  rim = np.arange(1, 41)
  return complexes.tri_complex(np.column_stack([np.zeros(40, int), rim, np.roll(rim, -1)]), 41)


COMPLEXES = {
  'two holes': toys.surface('two holes')[1],
  'shell': toys.volume('shell')[1],
  'fan': fan(),
}


@toys.exact
def all_derivatives(c, cochains):
  return [operators.derivative(c, k, cochains[k]) for k in range(3)], [
    operators.transpose(c, k, cochains[k + 1]) for k in range(3)
  ]


def random_cochains(c, seed=0, shape=(2,)):
  rng = np.random.default_rng(seed)
  return [rng.normal(size=(*shape, n)) for n in c.sizes]


class DerivativeTest(chex.TestCase):
  @parameterized.parameters(*COMPLEXES)
  def test_agree_with_matrices(self, name):
    c = COMPLEXES[name]
    w = random_cochains(c)
    forward, back = all_derivatives(c, w)
    for k in range(3):
      d = matrices.incidence(c, k).astype(float)
      np.testing.assert_allclose(forward[k], w[k] @ d.T, atol=1e-14)
      np.testing.assert_allclose(back[k], w[k + 1] @ d, atol=1e-14)

  @parameterized.parameters(*COMPLEXES)
  def test_the_derivative_of_a_derivative_is_zero_to_the_last_bit(self, name):
    c = COMPLEXES[name]
    # Integers of up to 20 bits, whose sums are exact.
    u, w = (np.rint(2.0**18 * x[0]) for x in random_cochains(c)[:2])
    self.assertEqual(abs(operators.d1(c, operators.d0(c, u))).max(), 0)
    self.assertEqual(abs(operators.d2(c, operators.d1(c, w))).max(initial=0), 0)

  @chex.variants(with_jit=True)
  @parameterized.parameters(0, 1)
  def test_transformations(self, k):
    c = COMPLEXES['fan']  # with a table for its edges, and none for its vertices
    d = matrices.incidence(c, k).toarray().astype(np.float32)
    apply = lambda w: operators.derivative(c, k, w)

    @self.variant
    def transformed(w):
      one = w[0, 0]
      energy = lambda w: jnp.sum(apply(w) ** 2) / 2
      back = jax.linear_transpose(apply, one)(jnp.ones(len(d)))
      mapped = apply(w), jax.vmap(apply)(w)
      return (
        mapped,
        (jax.jacrev(apply)(one), jax.jacfwd(apply)(one)),
        jax.hessian(energy)(one),
        back,
      )

    w = jnp.asarray(random_cochains(c, shape=(3, 2))[k], jnp.float32)
    mapped, jacobians, hessian, (back,) = transformed(w)
    for found in mapped:
      np.testing.assert_allclose(found, w @ d.T, atol=1e-5)
    for found in jacobians:
      np.testing.assert_array_equal(found, d)
    np.testing.assert_allclose(hessian, d.T @ d, atol=1e-5)
    np.testing.assert_allclose(back, d.sum(axis=0), atol=1e-6)

  def test_half_precision_and_complex_numbers(self):
    c = COMPLEXES['two holes']
    u = np.random.default_rng(0).normal(size=c.sizes[0])
    self.assertEqual(operators.d0(c, jnp.asarray(u, jnp.bfloat16)).dtype, jnp.float32)
    phase = operators.d0(c, np.exp(1j * u))
    np.testing.assert_allclose(phase.imag, operators.d0(c, np.sin(u)), atol=1e-6)

  def test_a_bad_number_stays_where_it_is(self):
    for name in ('two holes', 'fan'):
      c = COMPLEXES[name]
      u = np.zeros(c.sizes[0])
      u[5] = np.nan
      touched = (c.edges == 5).any(axis=1)
      np.testing.assert_array_equal(np.isnan(operators.d0(c, u)), touched)
      w = np.where(touched, np.nan, 0.0)
      near = np.zeros(len(u), bool)
      near[c.edges[touched]] = True
      np.testing.assert_array_equal(np.isnan(operators.transpose(c, 0, w)), near)

  def test_refuses_wrong_degrees_and_lengths(self):
    c = COMPLEXES['two holes']
    for k in (-1, 3):
      with self.assertRaisesRegex(ValueError, f'degree 0, 1 or 2, got {k}'):
        operators.derivative(c, k, np.zeros(3))
      with self.assertRaisesRegex(ValueError, f'got {k}'):
        matrices.incidence(c, k)
    with self.assertRaises(AssertionError):
      operators.d0(c, np.zeros(c.sizes[1]))

  @settings(max_examples=10)
  @given(st.integers(0, 1000))
  def test_relabelling_vertices_conjugates_by_signs(self, seed):
    points, faces = toys.SURFACES['two holes'][0]()
    c = toys.surface('two holes')[1]
    _, other_faces, order = toys.relabelled(points, faces, seed)
    other = complexes.tri_complex(other_faces, len(points))
    ends = order[c.edges]
    number = {tuple(edge): i for i, edge in enumerate(other.edges.tolist())}
    move = np.array([number[tuple(sorted(edge))] for edge in ends.tolist()])
    sign = np.where(ends[:, 0] < ends[:, 1], 1, -1)
    w = np.random.default_rng(seed).normal(size=len(sign))
    moved = np.zeros_like(w)
    moved[move] = sign * w
    circulations = np.sort(operators.d1(c, w))
    np.testing.assert_allclose(np.sort(operators.d1(other, moved)), circulations, atol=1e-6)
    np.testing.assert_allclose(
      operators.transpose(other, 0, moved)[order], operators.transpose(c, 0, w), atol=1e-6
    )


def kernel_dimension(matrix):
  return int((abs(np.linalg.eigvalsh(matrix)) < 1e-9).sum())


@toys.exact
def laplacians(c, stars, w):
  return [operators.laplacian(c, stars, k, x) for k, x in enumerate(w)]


relative = toys.exact(operators.relative)
codifferential = toys.exact(operators.codifferential, static_argnums=2)


class LaplacianTest(chex.TestCase):
  @parameterized.parameters(*COMPLEXES)
  def test_agrees_with_the_weak_form(self, name):
    c = COMPLEXES[name]
    absolute = toys.random_stars(c)
    cochains = random_cochains(c)[: len(absolute)]
    for stars in (absolute, relative(absolute, topology.boundary(c))):
      w = [x * (star != 0) for x, star in zip(cochains, stars, strict=True)]
      strong = laplacians(c, stars, w)
      for k, star in enumerate(stars):
        weak = matrices.laplacian(c, stars, k)
        self.assertLess(abs(weak - weak.T).max(), 1e-13)
        np.testing.assert_allclose(star * strong[k], w[k] @ weak, atol=1e-12)
        # Relative cochains stay relative.
        self.assertEqual(abs(strong[k][:, star == 0]).max(initial=0), 0)

  @parameterized.parameters('sphere', 'torus', 'annulus', 'two holes', 'shell', 'solid torus')
  def test_kernels_are_betti_numbers_whatever_the_stars(self, name):
    if name in toys.SURFACES:
      c, betti = toys.surface(name)[1], toys.SURFACES[name][1]
    else:
      c, betti = toys.volume(name)[1], toys.VOLUMES[name][1]
    absolute = toys.random_stars(c)
    held = relative(absolute, topology.boundary(c))
    for stars, numbers in ((absolute, betti), (held, betti[::-1])):
      for k, number in enumerate(numbers):
        free = stars[k] != 0
        weak = matrices.laplacian(c, stars, k).toarray()[free][:, free]
        self.assertEqual(kernel_dimension(weak), number)

  def test_normalising_keeps_the_kernel(self):
    for name in ('annulus', 'torus'):
      c = toys.surface(name)[1]
      for k, number in enumerate(toys.SURFACES[name][1]):
        weak = matrices.normalized(matrices.laplacian(c, toys.random_stars(c), k)).toarray()
        np.testing.assert_allclose(weak.diagonal(), 1)
        self.assertEqual(kernel_dimension(weak), number)

  def test_two_forms_of_volumes_need_their_divergence(self):
    c = toys.volume('shell')[1]
    stars = toys.random_stars(c)
    whole = matrices.laplacian(c, stars, 2).toarray()
    without = matrices.laplacian(c, stars[:3], 2).toarray()
    self.assertEqual(kernel_dimension(whole), 1)
    self.assertEqual(kernel_dimension(without), c.sizes[3] + 1)

  @parameterized.parameters('two holes', 'shell')
  def test_codifferential_is_the_adjoint(self, name):
    c = COMPLEXES[name]
    stars = toys.random_stars(c)
    w = random_cochains(c, shape=())
    forward, _ = all_derivatives(c, w)
    for k in range(1, len(stars)):
      delta = codifferential(c, stars, k, w[k])
      left = np.sum(stars[k] * forward[k - 1] * w[k])
      self.assertAlmostEqual(left, np.sum(stars[k - 1] * w[k - 1] * delta), places=11)

  def test_derivatives_in_the_stars_are_finite_at_zero(self):
    c = toys.surface('annulus')[1]
    stars = relative(toys.random_stars(c), topology.boundary(c))
    w = np.ones(c.sizes[1]) * (stars[1] != 0)
    loss = lambda stars: jnp.sum(operators.laplacian(c, stars, 1, w) ** 2)
    for gradient in toys.exact(jax.grad(loss))(stars):
      self.assertTrue(np.isfinite(gradient).all())
