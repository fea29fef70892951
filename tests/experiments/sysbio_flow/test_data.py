"""From models to series: trajectories, groups, splits, normalisation."""

import pathlib
import tempfile
import zipfile

import jax
import numpy as np
from absl.testing import absltest, parameterized
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.sysbio_flow import biomodels, data, trajectories
from tests.experiments.sysbio_flow import toys

RECIPE = trajectories.Recipe(horizons=(1.0, 10.0), runs=2)
SEED = np.random.SeedSequence(0)


class TrajectoriesTest(parameterized.TestCase):
  @parameterized.parameters(0.0, 0.4)
  def test_first_order_decay_is_exponential(self, parameters):
    made = trajectories.make(toys.decay(), RECIPE._replace(parameters=parameters), SEED)
    self.assertEqual(set(made.names), {'A', 'B'})
    a = made.values[:, made.names.index('A')]
    times = np.linspace(0, made.horizon, RECIPE.points)
    np.testing.assert_allclose(a[0], 2.0 * np.exp(-0.3 * times), rtol=1e-4)
    rates = -np.log(a[:, 20] / a[:, 0]) / times[20]
    if parameters:  # each run has a rate of its own
      self.assertGreater(np.ptp(rates), 1e-2)
    else:
      np.testing.assert_allclose(rates, 0.3, rtol=1e-4)
    self.assertGreater(np.ptp(a[:, 0]), 1e-2)
    total = made.values.sum(axis=1)
    np.testing.assert_allclose(total, np.broadcast_to(total[:, :1], total.shape), rtol=1e-5)

  def test_the_same_seed_makes_the_same(self):
    one, other = (trajectories.make(toys.decay(), RECIPE, SEED).values for _ in range(2))
    np.testing.assert_array_equal(one, other)

  @parameterized.parameters(
    (toys.decay(rate=0.0), 'nothing moves'),
    (b'<sbml', 'not loaded'),
    (b'', 'not loaded'),
    (toys.decay().replace(b'<ci>k</ci>', b'<ci>unknown</ci>'), 'not loaded|not simulated'),
    (toys.decay(rate=0.0).replace(b'<listOfReactions>', b'<listOfReactions><!-- -->'), 'moves'),
  )
  def test_no_trajectories_have_a_reason(self, text, reason):
    with self.assertRaisesRegex(ValueError, reason):
      trajectories.make(text, RECIPE, SEED)

  def test_a_horizon_is_telling_where_the_future_moves_and_is_resolved(self):
    s = np.linspace(0, 1, 128)
    score = lambda values: trajectories.score(np.atleast_2d(values), trajectories.Recipe())
    slow, fast = np.exp(-3 * s), np.exp(-300 * s)
    self.assertEqual(score(np.ones(128)), 0.0)
    self.assertGreater(score(slow), 1.0)
    self.assertLess(score(fast), 0.1)
    self.assertGreater(score(np.sin(20 * s)), 1.0)
    self.assertLess(score(np.sin(2 * np.pi * 40 * s)), 0.1)
    self.assertGreater(score([slow, slow]), score([slow, fast]))
    self.assertEqual(score([slow, np.full(128, np.nan)]), score(slow))


class BiomodelsTest(parameterized.TestCase):
  def test_groups_are_closed_under_both_relations(self):
    facts = {
      'a': biomodels.Facts(('p',), ('X', 'Y'), 'other'),
      'b': biomodels.Facts(('q',), ('X', 'Y'), 'other'),
      'c': biomodels.Facts(('q',), ('Z',), 'other'),
      'd': biomodels.Facts((), (), 'other'),
      'e': biomodels.Facts((), (), 'other'),
    }
    found = biomodels.groups(facts)
    self.assertEqual([found[name] for name in 'abcde'], ['a', 'a', 'a', 'd', 'e'])

  @given(groups=st.lists(st.integers(0, 40), min_size=30, max_size=200), seed=st.integers(0, 2**31))
  @settings(max_examples=30, deadline=None)
  def test_no_group_is_on_two_sides_and_shares_are_kept(self, groups, seed):
    of_groups = {f'm{i}': f'g{group}' for i, group in enumerate(groups)}
    shares = {'train': 0.7, 'valid': 0.1, 'test': 0.2}
    dealt = biomodels.split(of_groups, shares, seed)
    sides: dict[str, set] = {}
    for name, side in dealt.items():
      sides.setdefault(of_groups[name], set()).add(side)
    self.assertTrue(all(len(own) == 1 for own in sides.values()))
    counts = [sum(side == {name} for side in sides.values()) for name in shares]
    for count, share in zip(counts, shares.values(), strict=True):
      self.assertLessEqual(abs(count - share * len(sides)), 1.0)

  def test_one_more_group_moves_at_most_two_others(self):
    of_groups = {f'm{i}': f'm{i}' for i in range(100)}
    shares = {'train': 0.7, 'valid': 0.1, 'test': 0.2}
    before = biomodels.split(of_groups, shares, 3)
    after = biomodels.split({**of_groups, 'another': 'another'}, shares, 3)
    self.assertLessEqual(sum(before[name] != after[name] for name in before), 2)
    other = biomodels.split(of_groups, shares, 4)
    self.assertGreater(sum(before[name] != other[name] for name in before), 20)

  def test_annotations_tell_organism_and_publication(self):
    note = (
      b'<annotation><bqmodel:isDescribedBy><rdf:li rdf:resource="http://identifiers.org/pubmed/'
      b'123"/></bqmodel:isDescribedBy><rdf:li rdf:resource="urn:miriam:taxonomy:9606"/>'
      b'</annotation>'
    )
    found = biomodels.facts(toys.decay().replace(b'<listOfComp', note + b'<listOfComp', 1))
    self.assertEqual(found, biomodels.Facts(('123',), ('A', 'B'), 'Homo sapiens'))
    self.assertEqual(biomodels.facts(toys.decay()).organism, 'unknown')
    self.assertEqual(biomodels.facts(b'\xff\x00'), biomodels.Facts((), (), 'unknown'))

  def test_the_package_and_a_folder_are_read(self):
    found = biomodels.sources()
    self.assertGreater(len(found), 1000)
    self.assertIn(b'<sbml', found['BIOMD0000000012'].read()[:500])
    with tempfile.TemporaryDirectory() as folder:
      with self.assertRaisesRegex(ValueError, 'has no file'):
        biomodels.sources(folder)
      path = pathlib.Path(folder, 'BIOMD0000000012.xml')
      path.write_bytes(toys.decay())
      self.assertEqual(biomodels.sources(folder)['BIOMD0000000012'].read(), toys.decay())

  def test_what_cannot_be_read_is_named(self):
    with tempfile.TemporaryDirectory() as folder:
      path = pathlib.Path(folder, 'broken.zip')
      path.write_bytes(b'PK no archive')
      with self.assertRaisesRegex(ValueError, 'broken.zip'):
        biomodels.Source(str(path), 10, 'a.xml').read()
      with zipfile.ZipFile(path, 'w') as archive:
        archive.writestr('b.xml', 'x')
      with self.assertRaisesRegex(ValueError, 'a.xml'):
        biomodels.Source(str(path), 10, 'a.xml').read()
      with self.assertRaisesRegex(ValueError, 'more than'):
        biomodels.Source(str(path), 2**40, 'b.xml').read()


class DataTest(parameterized.TestCase):
  @parameterized.parameters(3.0, 1e-12, 1e9)
  def test_units_do_not_matter(self, scale):
    rng = np.random.default_rng(0)
    values = rng.normal(size=(5, 20))
    one = data.normalise(values[:, :8], values[:, 8:], 0.0, rng)
    moved = scale * values
    other = data.normalise(moved[:, :8], moved[:, 8:], 0.0, rng)
    for a, b in zip(one, other, strict=True):
      np.testing.assert_allclose(a, b, rtol=1e-9)

  def test_the_future_is_not_read(self):
    rng = np.random.default_rng(0)
    context, future = rng.normal(size=(5, 8)), rng.normal(size=(5, 12))
    one, _ = data.normalise(context, future, 0.0, rng)
    other, _ = data.normalise(context, 1e3 * future, 0.0, rng)
    np.testing.assert_array_equal(one, other)

  def test_noise_is_of_the_context_alone_and_of_its_size(self):
    rng = np.random.default_rng(0)
    context = 7.0 * np.sin(np.arange(4000))[None]
    clean = data.normalise(context, context, 0.0, rng)
    noisy = data.normalise(context, context, 0.1, rng)
    self.assertAlmostEqual(float(np.std(noisy[0] - clean[0])), 0.1, delta=0.02)
    np.testing.assert_allclose(noisy[1], clean[1], atol=0.1)

  def test_systems_are_equally_likely(self):
    system = np.array([0] * 90 + [3] * 9 + [7])
    own = np.broadcast_to(system[:, None].astype(float), (100, 4))
    split = jax.tree.map(jax.numpy.asarray, toys.split(own, own, system))
    drawn = jax.jit(lambda key: data.sample(split, key, 30_000))(jax.random.key(0))
    np.testing.assert_array_equal(drawn['context'][:, 0], drawn['future'][:, 0])
    _, counts = np.unique(np.asarray(drawn['context'][:, 0]), return_counts=True)
    np.testing.assert_allclose(counts, 10_000, atol=5 * np.sqrt(30_000 * 2 / 9))

  def test_flips_turn_both_parts(self):
    split = jax.tree.map(jax.numpy.asarray, toys.waves(10))
    drawn = data.sample(split, jax.random.key(0), 500, flip=True)
    plain = data.sample(split, jax.random.key(0), 500)
    sign = drawn['context'][:, :1] / plain['context'][:, :1]
    np.testing.assert_allclose(abs(sign), 1.0)
    self.assertLess(abs(float(sign.mean())), 0.2)
    np.testing.assert_allclose(drawn['future'], sign * plain['future'])

  def test_mixtures_are_sums_of_two_series_in_the_unit_of_the_first_context(self):
    system = np.arange(3)
    rows = np.random.default_rng(0).normal(size=(3, 48))
    split = jax.tree.map(jax.numpy.asarray, toys.split(rows[:, :32], rows[:, 32:], system))
    drawn = data.sample(split, jax.random.key(0), 400, mix=1.0)
    found = np.concatenate([drawn['context'], drawn['future']], axis=1)
    basis = np.concatenate([rows, np.ones((1, 48))])  # and a shift
    left = found - found @ np.linalg.pinv(basis) @ basis
    np.testing.assert_allclose(left, 0.0, atol=1e-4)
    mixed = abs(found[:, None] - rows).max(axis=-1).min(axis=-1) > 1e-3
    self.assertGreater(mixed.mean(), 0.4)
    np.testing.assert_allclose(found[mixed, :32].mean(axis=1), 0.0, atol=1e-5)
    spreads = found[mixed, :32].std(axis=1, keepdims=True)
    gaps = abs(spreads - rows[:, :32].std(axis=1)).min(axis=1)
    np.testing.assert_allclose(gaps, 0.0, atol=1e-4)
    self.assertLessEqual(abs(found[:, 32:]).max(), abs(rows[:, 32:]).max() + 1e-5)

  def test_the_share_of_mixtures_is_as_asked_and_none_is_the_default(self):
    split = jax.tree.map(jax.numpy.asarray, toys.waves(10))
    draw = lambda mix: data.sample(split, jax.random.key(0), 2000, mix=mix)['context']
    plain, every, some = draw(0.0), draw(1.0), draw(0.3)
    mixed = (every != plain).any(axis=1)
    share = float((some != plain).any(axis=1)[mixed].mean())
    self.assertAlmostEqual(share, 0.3, delta=0.05)
    np.testing.assert_array_equal(plain, data.sample(split, jax.random.key(0), 2000)['context'])


if __name__ == '__main__':
  absltest.main()
