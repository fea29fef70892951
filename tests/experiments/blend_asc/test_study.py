import json
import pathlib
import signal
import tempfile
from unittest import mock

import chex
import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
import pyarrow
import pyarrow.parquet
from absl.testing import parameterized

from configs.blend_asc import lm, pool, quick, search
from experiments.blend_asc import pools, rules, sources, study
from lib.io import models
from lib.train import app, signals
from lib.voting import paths, stopping
from lib.voting import sources as laws
from tests.lib.lm import toys

Q, K, T = 20, 10, 32
BUDGETS = (3, 5, 8)
FIXTURE = pathlib.Path(__file__).parent / 'fixtures' / 'smollm2_pool.json'
# All sources have as many questions and answers, so that programs are compiled once.
CONFIG = f"""
from configs.blend_asc import pool

def get_config():
  config = pool.get_config()
  config.num_seeds = 4
  config.seeds_at_once = 2
  config.sources = ('gap', 'forest')
  config.source.gap.update(questions={Q}, answers={K})
  config.source.forest.update(questions={Q}, train=60, trees=40, max_depth=3)
  config.policies = ('sc', 'blend', 'ppr_to_asc', 'lookahead', 'oracle_fixed')
  config.max_samples = {T}
  config.budgets = {BUDGETS}
  config.caps = (9, 16)
  config.thresholds = (0.9,)
  config.deltas = (0.1,)
  config.windows = (3,)
  config.dirichlet_thresholds = (0.8,)
  config.dirichlet_draws = 500
  return config
"""


def config_of(**sources_):
  """The quick config with other sources."""
  config = quick.get_config()
  config.sources = tuple(sources_)
  config.source = sources_
  return config


class RunTest(chex.TestCase):
  def setUp(self):
    super().setUp()
    self.directory = pathlib.Path(self.enter_context(tempfile.TemporaryDirectory()))
    (self.directory / 'tiny.py').write_text(CONFIG)
    self.enter_context(mock.patch.object(rules, '_BLOCK', 32))
    self.say = self.enter_context(mock.patch('lib.train.console.say'))

  def main(self, name, *flags):
    argv = ['blend_asc', f'--config={self.directory}/tiny.py', f'--workdir={self.directory}/{name}']
    return app.main([*argv, *flags], study.prepare, study.run)

  def results(self, name):
    return json.loads((self.directory / name / 'results.json').read_text())

  def test_a_run_reports_all_and_one_that_was_stopped_ends_with_the_same(self):
    self.assertEqual(self.main('whole'), 0)
    results = self.results('whole')
    self.assertEqual(results['experiment'], 'blend_asc')
    curves = {
      name: json.loads((self.directory / 'whole' / 'curves' / f'{name}.json').read_text())
      for name in ('gap', 'forest')
    }
    metrics = set()
    for row in results['rows']:
      metrics.add((row['source'], row['metric'], row['method']))
      self.assertEqual((row['n'], row['seeds']), (4, 4))
      if '_error_at_' in row['metric']:
        low, high = row['ci95']
        self.assertTrue(low <= row['mean'] <= high and 0 <= row['mean'] <= 1, row)
      kind, _, x = row['metric'].partition('_at_')
      if row['method'] == 'sc' and kind == 'mode_error':
        # It gives every question as many.
        exact = np.mean([seed[int(x)] for seed in curves[row['source']]['sc']])
        self.assertAlmostEqual(row['mean'], exact, delta=1e-6)
      if row['method'] == 'sc' and kind == 'ratio':
        self.assertLessEqual(row['mean'], 1 + 1e-6)
      if row['metric'] == 'samples':
        cap = int(row['method'].split()[-1])
        self.assertTrue(1 <= row['mean'] <= cap, row)
    for name in ('gap', 'forest'):
      for policy in ('blend', 'ppr_to_asc', 'lookahead', 'oracle_fixed'):
        self.assertIn((name, 'mode_error_at_8', policy), metrics)
      for rule in ('asc 0.9', 'ppr 0.1', 'esc 3', 'esc running 3'):
        for cap in (9, 16):
          self.assertIn((name, 'error', f'{rule}, cap {cap}'), metrics)
      self.assertIn((name, 'error', 'dirichlet 0.8, cap 9'), metrics)
      picture = self.directory / 'whole' / 'figures' / f'{name}.png'
      self.assertGreater(picture.stat().st_size, 5_000)
    # Nobody knows what is right under a law.
    self.assertIn(('forest', 'gold_error_at_8', 'blend'), metrics)
    self.assertNotIn(('gap', 'gold_error_at_8', 'blend'), metrics)
    report = (self.directory / 'whole' / 'report.md').read_text()
    self.assertIn('synthetic', report)
    self.assertRegex(report, '(PASS|FAIL): blend is worse')

    self.enter_context(mock.patch('lib.train.figures.save'))
    # Three looks for signals: the first source is done, the second half so.
    stop = [None, None, signals.Stopped(signal.SIGTERM)]
    with mock.patch.object(signals, 'check', side_effect=stop):
      self.assertEqual(self.main('stopped'), 143)
    kept = self.directory / 'stopped' / 'curves'
    self.assertEqual([path.name for path in kept.iterdir()], ['gap.json'])
    with mock.patch.object(study, 'simulate', side_effect=study.simulate) as simulate:
      self.assertEqual(self.main('stopped'), 0)
    self.assertEqual([call.args[1] for call in simulate.call_args_list], ['forest'])
    self.assertEqual(self.results('stopped')['rows'], results['rows'])

  def pool_files(self):
    """One pool, a line an answer and a row a question; answer i of question q comes i + 1 times."""
    texts = [[f'${i}.0$' for i in range(K - 1) for _ in range(i + 1)] + [''] for _ in range(Q)]
    rows = [
      {'question': f'q{q}', 'answer': answer, 'gold': str(q % 9)}
      for q, answers in enumerate(texts)
      for answer in answers
    ]
    lines = self.directory / 'pool.jsonl'
    lines.write_text(''.join(json.dumps(row) + '\n' for row in rows))
    golds = [str(q % 9) for q in range(Q)]
    table = pyarrow.table({'question': [f'q{q}' for q in range(Q)], 'answer': texts, 'gold': golds})
    pyarrow.parquet.write_table(table, self.directory / 'pool.parquet')
    return lines, self.directory / 'pool.parquet'

  def test_pools_of_both_formats_give_the_same(self):
    self.enter_context(mock.patch('lib.train.figures.save'))
    found = []
    for path in self.pool_files():
      config = pool.get_config()
      config.source.pool.path = str(path)
      made = sources.prepare(config)['pool'](0)
      shares = np.append(np.arange(1, K), 1) / (K * (K - 1) / 2 + 1)
      np.testing.assert_allclose(made.p, np.tile(shares, (Q, 1)), rtol=1e-6)
      np.testing.assert_array_equal(made.gold.argmax(1), np.arange(Q) % 9)
      self.assertIn('10.0% aligned', made.facts)  # q8 and q17
      flags = ("--config.sources=('pool',)", f'--config.source.pool.path={path}')
      self.assertEqual(self.main(path.suffix, *flags), 0)
      found.append(self.results(path.suffix)['rows'])
    self.assertEqual(*found)
    self.assertIn('aligned_error_at_8', {row['metric'] for row in found[0]})

  @parameterized.parameters(
    (("--config.policies=('sc','blend','tea')",), "config.policies: 'tea' is none of sc, asc,"),
    (("--config.policies=('blend',)",), 'config.policies must have sc'),
    (('--config.default=ppr',), 'and the default'),
    (('--config.budgets=(1,5,8)',), 'config.budgets must lie in'),
    (('--config.budgets=(3,5,33)',), 'config.budgets must lie in'),
    (('--config.budgets=(3,8,5)',), 'config.budgets must be three or more, in ascending'),
    (('--config.budgets=(3,5)',), 'config.budgets must be three or more'),
    (('--config.batch_fraction=2.0',), 'config.batch_fraction must be in [0, 1], got 2.0'),
    (('--config.num_seeds=0',), 'config.num_seeds must be positive'),
    (('--config.caps=(33,)',), 'config.caps must lie in [1, 32], got 33'),
    (('--config.deltas=(1.0,)',), 'config.deltas must lie in (0, 1)'),
    (('--config.windows=(0,)',), 'config.windows must lie in'),
    (('--config.sources=()',), 'config.sources is empty'),
    (("--config.sources=('tea',)",), "config.source has no 'tea'"),
    (('--config.source.gap.kind=tea',), "config.source has no 'gap' of a kind among"),
    (('--config.source.gap.answers=1',), 'config.source.gap.answers must be 2 or more'),
    (('--config.source.gap.questions=0',), 'num_questions=0'),
    (('--config.source.forest.part=90',), 'config.source.forest: 1797 digits have no such part'),
    (('--config.source.forest.part=-1',), 'config.source.forest: 1797 digits'),
    (('--config.source.forest.trees=0',), 'config.source.forest: 1797 digits'),
    (('--config.teas=1',), 'no such field in the config'),
  )  # fmt: skip
  def test_bad_configs_are_told_in_one_line(self, flags, message):
    self.assert_refused(flags, message)

  @parameterized.parameters(
    ('', {}, 'config.source.pool.path: name a .jsonl or .parquet file'),
    ('none.jsonl', {}, 'none.jsonl'),
    ('none.parquet', {}, 'none.parquet'),
    ('pool.jsonl', {'pool.jsonl': ''}, 'pool.jsonl: is empty'),
    ('pool.jsonl', {'pool.jsonl': '{"question": "a"}'}, "pool.jsonl:1: field 'answer' is missing"),
    ('pool.jsonl', {'pool.jsonl': '{"question": "a", "answer": ["1", "1.0"], "gold": "2"}'},
     'pool.jsonl: no question has two different answers'),
    ('pool.parquet', {'pool.parquet': 'PAR1'}, 'pool.parquet: not such a Parquet file'),
  )  # fmt: skip
  def test_bad_pools_are_told_in_one_line(self, path, contents, message):
    for name, content in contents.items():
      (self.directory / name).write_text(content)
    path = self.directory / path if path else ''
    flags = ("--config.sources=('pool',)", f'--config.source.pool.path={path}')
    self.assert_refused(flags, message)

  def test_an_unknown_normaliser_is_told_in_one_line(self):
    flags = ("--config.sources=('pool',)", '--config.source.pool.path=x.jsonl')
    self.assert_refused(
      (*flags, '--config.source.pool.normalise=encode'),
      'config.source.pool.normalise must be one of number, fraction, letter, last_number, '
      "math_answer, got 'encode'",
    )

  def assert_refused(self, flags, message):
    self.assertEqual(self.main('refused', *flags), 2)
    (told,) = [call.args[0] for call in self.say.call_args_list if 'error' in call.args[0]]
    self.assertIn(message, told)
    self.assertNotIn('\n', told)
    self.assertFalse((self.directory / 'refused').exists())


class ConfigTest(parameterized.TestCase):
  @parameterized.parameters(quick, lm, search, pool)
  def test_every_config_passes(self, module):
    config = module.get_config()
    with mock.patch.object(sources, 'prepare') as prepare:
      study.prepare(config)
    prepare.assert_called_once_with(config)
    for name in config.sources:
      self.assertIn(config.source[name].kind, sources.KINDS)

  def test_the_search_scores_nothing_that_the_comparison_does(self):
    search_, test = search.get_config(), lm.get_config()
    self.assertNotEqual(search_.seed, test.seed)
    for name in ('forest', 'smollm2'):
      self.assertNotEqual(search_.source[name].part, test.source[name].part)
      same = search_.source[name].to_dict() | {'part': test.source[name].part}
      self.assertEqual(same, test.source[name].to_dict())


class SourcesTest(parameterized.TestCase):
  @parameterized.parameters(
    {'kind': 'gap', 'questions': 30, 'answers': 4},
    {'kind': 'margin_law', 'questions': 30, 'answers': 4, 'gamma': 0.5},
    {'kind': 'dirichlet', 'questions': 30, 'answers': 4, 'concentration': 0.5},
  )
  def test_laws_have_new_questions_for_each_seed_and_the_mode_anywhere(self, **spec):
    config = config_of(law=spec)
    source = sources.prepare(config)['law']
    p = source(0).p
    self.assertEqual(p.shape, (30, 4))
    np.testing.assert_allclose(p.sum(1), 1, atol=1e-5)
    self.assertLen(set(p.argmax(1)), 4)
    np.testing.assert_array_equal(source(0).p, p)
    config.seed += 1
    for other in (source(1).p, sources.prepare(config)['law'](0).p):
      self.assertFalse((other == p).all(1).any())
    self.assertIsNone(source(0).gold)
    self.assertIn('synthetic', source(0).facts)

  def test_a_forest_asks_about_digits_that_it_has_not_seen_and_parts_share_none(self):
    seen, asked = set(), []

    class Tree:
      def __init__(self, **_):
        pass

      def fit(self, images, labels):
        np.testing.assert_array_equal(labels, images[:, 0] % 10)
        seen.update(images[:, 0])
        return self

      def predict(self, images):
        asked[-1].update(images[:, 0])
        return images[:, 0] % 10

    digits = np.arange(200)[:, None], np.arange(200) % 10
    spec = quick.get_config().source.forest
    spec.update(questions=40, train=100, trees=9)
    with (
      mock.patch('sklearn.datasets.load_digits', return_value=digits),
      mock.patch('sklearn.tree.DecisionTreeClassifier', Tree),
    ):
      for part in (0, 1):
        asked.append(set())
        made = sources.prepare(config_of(forest=spec.to_dict() | {'part': part}))['forest'](3)
        # All trees are right.
        np.testing.assert_array_equal(made.p, made.gold)
        self.assertIn('100.0% aligned', made.facts)
      with self.assertRaisesRegex(ValueError, 'no such part'):
        sources.prepare(config_of(forest=spec.to_dict() | {'part': 2}))
    self.assertLessEqual(len(seen), 100)
    self.assertEqual([len(part) for part in asked], [40, 40])
    self.assertLen(set.union(*asked), 80)
    self.assertFalse(seen & set.union(*asked))

  def fixture(self):
    raw = json.loads(FIXTURE.read_text())
    ids = [record[0] for record in raw['questions']]
    return dict(zip(ids, pools.read(FIXTURE), strict=True))

  def smollm2(self, **changes):
    spec = lm.get_config().source.smollm2.to_dict()
    tasks = {'sums1': 4, 'sums2': 4, 'products': 4, 'left': 6}
    config = config_of(smollm2=spec | {'samples': 64, 'part': 0, 'tasks': tasks} | changes)
    config.update(model='toy', dtype='float32', pool_dir='none')
    return config

  def test_a_pool_of_a_model_is_drawn_once_and_split_in_two(self):
    texts = self.fixture()
    load = mock.patch.object(models, 'load')
    check = mock.patch.object(pools, 'check')
    draw = mock.patch.object(
      pools, 'draw_pool', side_effect=lambda _, items, *rest: [texts[item.id] for item in items]
    )
    asked, gold = [], {}
    with load, check, draw as drawn:
      for part in (0, 1):
        source = sources.prepare(self.smollm2(part=part))['smollm2']
        self.assertEqual(drawn.call_count, part)  # nothing before the run
        made = source(0)
        self.assertIs(source(1), made)
        self.assertEqual(drawn.call_count, part + 1)
        items = drawn.call_args.args[1]
        asked += [item.id for item in items]
        np.testing.assert_allclose(made.p.sum(1), 1, atol=1e-6)
        for item, p, right in zip(items, made.p, made.gold, strict=True):
          share = texts[item.id].count(item.gold) / 64
          gold[item.id] = share
          self.assertAlmostEqual(float((p * right).sum()), share, delta=1e-6)
          most = max(map(texts[item.id].count, texts[item.id])) / 64
          self.assertAlmostEqual(float(p.max()), most, delta=1e-6)
    self.assertLen(asked, 18)
    self.assertLen(set(asked), 18)
    self.assertGreater(max(gold.values()), 0.5)

  @parameterized.parameters(
    ({'part': 2}, 'part must be 0 or 1'),
    ({'samples': 0}, 'samples must be positive'),
    ({'temperature': -1.0}, 'temperature'),
    ({'tasks': {'tea': 1}}, "no task 'tea'"),
    ({'tasks': {}}, 'tasks has no question'),
  )
  def test_bad_numbers_of_a_pool_are_named_before_it_is_drawn(self, changes, message):
    arch = toys.PLAIN._replace(context=512)
    toy = models.Model(
      arch, {}, mock.Mock(**{'encode.return_value': [1], 'encode_chat.return_value': [2]})
    )
    with (
      mock.patch.object(models, 'load', return_value=toy),
      self.assertRaisesRegex(ValueError, message),
    ):
      sources.prepare(self.smollm2(**changes))


def drawn(num_seeds, num_answers, length=T):
  """Answers (S, Q, T) and probabilities (S, Q, K)."""
  p = np.random.default_rng(0).dirichlet(np.ones(num_answers), (num_seeds, Q)).astype(np.float32)
  return jax.jit(laws.draw_answers, static_argnums=2)(jax.random.key(1), p, length), p


class RulesTest(chex.TestCase):
  def setUp(self):
    super().setUp()
    self.enter_context(mock.patch.object(rules, '_BLOCK', 32))

  def votes(self):
    answers, p = drawn(2, K)
    return jax.jit(paths.vote_paths, static_argnums=1)(answers, K), p

  @parameterized.parameters('sc', 'blend', 'ppr_to_asc', 'lookahead', 'oracle_fixed')
  def test_budgets_are_spent_and_common_to_seeds(self, name):
    votes, p = self.votes()
    rates = -np.log1p(-((np.sqrt(p[..., 0]) - np.sqrt(p[..., 1])) ** 2))
    budgets = tuple(x * Q for x in BUDGETS)
    samples = np.asarray(rules.allocate(name, votes, rates, budgets, 2, 1))
    np.testing.assert_array_equal(samples.sum(-1), [budgets] * 2)
    self.assertLessEqual(samples.max(), T)
    if name == 'sc':
      np.testing.assert_array_equal(samples, np.broadcast_to(np.array(BUDGETS)[:, None], (2, 3, Q)))
    if name != 'oracle_fixed':
      self.assertGreaterEqual(samples.min(), 2)
      # A larger budget adds samples.
      self.assertTrue(name == 'ppr_to_asc' or (np.diff(samples, axis=1) >= 0).all())
    if name == 'blend':
      for i, budget in enumerate(budgets):
        alike = rules.match(rules.blend(votes), jnp.array([budget] * 2), 2, 1, T * Q)
        np.testing.assert_array_equal(alike, samples[:, i])

  def test_pick_is_the_mean_over_questions(self):
    rng = np.random.default_rng(0)
    errors = rng.random((2, Q, T + 1)).astype(np.float32)
    samples = rng.integers(0, T + 1, (2, 3, Q))
    found = rules.pick(errors, samples)
    expected = np.take_along_axis(errors[:, None], samples[..., None], -1)[..., 0].mean(-1)
    np.testing.assert_allclose(found, expected, rtol=1e-5)

  @parameterized.parameters(0.6, 0.95)
  def test_dirichlet_is_beta_for_two_answers(self, level):
    answers, _ = drawn(1, 2)
    beta = jax.jit(lambda answers: stopping.beta(paths.vote_paths(answers, 2), level))
    found = rules.dirichlet_stops(answers, 2, T, level, 10, 0)
    np.testing.assert_array_equal(found, beta(answers))
    self.assertTrue(found.any() and not found.all())

  @parameterized.parameters(0.5, 0.8)
  def test_dirichlet_agrees_with_plain_draws(self, level):
    num_answers = 7  # of which five count
    answers, _ = drawn(1, num_answers)
    answers, cap, draws = answers[:, :8], 10, 500
    found = rules.dirichlet_stops(answers, num_answers, cap, level, draws, 0)[0]
    self.assertEqual(found.shape, (8, cap + 1))
    rng = np.random.default_rng(2)
    clear = 0
    for row, stops in zip(np.asarray(answers)[0], found, strict=True):
      for n, stop in enumerate(stops):
        counts = np.sort(np.bincount(row[:n], minlength=num_answers))[::-1][:5]
        share = (rng.dirichlet(counts + 1, 20_000).argmax(1) == 0).mean()
        if abs(share - level) > 4.5 * np.sqrt(level * (1 - level) / draws):
          clear += 1
          self.assertEqual(stop, share > level, (counts, share))
    self.assertGreater(clear, 0.6 * found.size)
    self.assertTrue(found.any() and not found.all())


class ClaimsTest(parameterized.TestCase):
  def claims(self, stopping_=None, **errors):
    config = ml_collections.ConfigDict({'default': 'blend', 'budgets': (4, 8)})
    return study.claims(config, {'errors': {'mode': errors}, 'stopping': stopping_ or {}})

  def test_a_policy_that_is_better_beyond_chance_fails_the_claim(self):
    noise = np.array([-0.01, 0.0, 0.01, 0.0])[:, None] * np.ones(2)
    sc, blend = 0.4 + 0 * noise, 0.2 + 0 * noise
    verdict, lines = self.claims(sc=sc, blend=blend)
    self.assertStartsWith(verdict, 'PASS: blend is worse than another policy in 0 of 2')
    self.assertIn('blend against sc: never worse; mean gain 50.0%', lines)
    # Better at 8 alone, on every seed.
    asc = blend + noise - [0, 0.1]
    verdict, lines = self.claims(sc=sc, asc=asc, blend=blend)
    self.assertStartsWith(verdict, 'FAIL: blend is worse than another policy in 1 of 4')
    self.assertRegex(lines, r'against asc: WORSE at 8 by 0\.1000 \[0\.0\d+, 0\.1\d+\]; mean')
    self.assertNotIn('WORSE at 4', lines)
    # Better, but not beyond the interval.
    verdict, _ = self.claims(sc=sc, asc=blend + 5 * noise - 0.001, blend=blend)
    self.assertStartsWith(verdict, 'PASS')

  def test_rules_that_stop_are_compared_at_their_own_samples(self):
    worse, better = np.array([0.2, 0.21, 0.19]), np.array([0.1, 0.12, 0.09])
    same = np.ones((3, 2))
    rules_ = {
      'esc': {'error': worse, 'blend_error': better},
      'asc': {'error': better, 'blend_error': worse},
    }
    verdict, lines = self.claims(rules_, sc=same, blend=same)
    self.assertStartsWith(verdict, 'FAIL: blend is worse than another policy in 1 of 4')
    self.assertIn('WORSE than asc at its samples by 0.0967', lines)
    self.assertNotIn('esc', lines)

  def test_equal_curves_and_errors_of_zero(self):
    same = np.array([[0.3, 0.0], [0.4, 0.0]])
    verdict, lines = self.claims(sc=same, blend=same)
    self.assertStartsWith(verdict, 'PASS')
    self.assertIn('never worse; mean gain 0.0%', lines)
