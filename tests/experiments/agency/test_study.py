import itertools
import json
import pathlib
import tempfile
from unittest import mock

import chex
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import parameterized
from scipy import special

from configs.agency import census as census_config
from configs.agency import quick
from experiments.agency import beliefs, census, emergence, study, suppression
from lib.io import models
from lib.lm import score
from lib.train import app
from tests.lib.lm import toys

ARCH = toys.PLAIN._replace(num_layers=1)
CONFIG = """
from configs.agency import quick

def get_config():
  config = quick.get_config()
  config.questions = config.questions[:2]
  config.outcomes = (5, 2)
  config.grid = 3
  config.events = config.events[:2]
  config.kappas = (0.005,)
  config.deltas = (0.05,)
  config.event_outcomes = 8
  config.shifts = 40
  config.shift_outcomes = 8
  config.sequence_questions = 1
  config.answers = 10
  config.answer_tokens = 3
  return config
"""


class Letters:
  """A tokeniser of a few letters, enough for a toy."""

  eos = frozenset({0})

  def encode(self, text):
    return [1 + ord(c) % 30 for c in text[:6]]

  def decode(self, tokens):
    return ' '.join(map(str, tokens))

  def encode_chat(self, messages):
    return [token for m in messages for token in self.encode(m['content'][8:])]


def model():
  return models.Model(ARCH, toys.params_of(ARCH), Letters())


class RunTest(chex.TestCase):
  def test_reports_facts_that_theorems_demand_and_asks_the_model_once(self):
    directory = pathlib.Path(self.enter_context(tempfile.TemporaryDirectory()))
    (directory / 'tiny.py').write_text(CONFIG)
    argv = ['agency', f'--config={directory}/tiny.py', f'--workdir={directory}/run']
    prepare = lambda config: (study.check(config), model())[1]
    self.enter_context(mock.patch('lib.train.console.say'))
    self.assertEqual(app.main(argv, prepare, study.run), 0)
    results = json.loads((directory / 'run' / 'results.json').read_text())
    rows = results['rows']
    self.assertEqual(results['experiment'], 'agency')
    for row in rows:
      if row['metric'] == 'largest_linear_gap':
        self.assertLessEqual(row['mean'], 1e-12)
      if row.get('outcomes') == 2 and row['metric'] == 'strict_share':
        self.assertEqual(row['mean'], 0.0)
      if row['metric'] == 'inequality_violated':
        self.assertEqual(row['mean'], 0.0)
      if row['metric'] in ('first_order_ratio', 'random_ratio', 'random_logits_ratio'):
        self.assertGreaterEqual(row['mean'], 1.0)
    self.assertLen([row for row in rows if row['metric'] == 'inequality_violated'], 1)
    for picture in ('unanimous_region', 'binary', 'openness'):
      self.assertGreater((directory / 'run' / 'figures' / f'{picture}.png').stat().st_size, 5_000)
    with mock.patch.object(beliefs, 'next_tokens', side_effect=AssertionError):
      self.assertEqual(app.main(argv, prepare, study.run), 0)
    again = json.loads((directory / 'run' / 'results.json').read_text())
    self.assertEqual(again, results)


class CheckTest(parameterized.TestCase):
  @parameterized.parameters(quick, census_config)
  def test_every_config_passes(self, module):
    study.check(module.get_config())

  @parameterized.parameters(
    ({'dtype': 'float8'}, 'dtype'),
    ({'grid': 0}, 'grid'),
    ({'luigi': 'mario'}, "'mario' is none of config.personas"),
    ({'base': ('luigi', 'waluigi')}, 'waluigi must be neither'),
    ({'outcomes': (0, 1)}, 'outcomes'),
    ({'deltas': (0.9,)}, 'deltas'),
    ({'kappas': (0.0,)}, 'kappas'),
    ({'events': (('Is it?',),)}, 'events'),
  )
  def test_names_the_bad_field(self, changes, message):
    config = quick.get_config()
    config.update(changes)
    with self.assertRaisesRegex(ValueError, message):
      study.check(config)


class BeliefsTest(chex.TestCase):
  def test_batches_change_nothing(self):
    prompts = [[1, 2, 3], [4] * 20, [5], [6, 7]]
    one, several = (beliefs.next_tokens(model(), prompts, size) for size in (1, 3))
    np.testing.assert_allclose(one, several, atol=1e-4)
    np.testing.assert_allclose(special.logsumexp(one, axis=1), 0.0, atol=1e-12)

  def test_answers_have_the_probability_of_their_sequence(self):
    answers = np.array([[1, 2, 3], [4, 5, 6], [1, 2, 9]])
    found = beliefs.continuations(model(), [[7, 8], [9]], answers)
    for row, prompt in zip(found, ([7, 8], [9]), strict=True):
      tokens = jnp.asarray([[*prompt, *answer] for answer in answers.tolist()])
      positions = jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape)
      total, _ = score.sequence_log_probs(
        ARCH, toys.params_of(ARCH), tokens, positions, positions >= len(prompt)
      )
      np.testing.assert_allclose(row, total, atol=1e-3)

  def test_all_answers_of_one_token_sum_to_one(self):
    answers = np.array(list(itertools.product(range(31), range(31))))
    found = beliefs.continuations(model(), [[7, 8]], answers)
    self.assertAlmostEqual(float(special.logsumexp(found[0])), 0.0, delta=1e-3)


class CensusTest(chex.TestCase):
  def test_restriction_keeps_ratios_and_the_likeliest(self):
    logp = special.log_softmax(np.random.default_rng(0).normal(size=(2, 3, 9)), axis=-1)
    kept = census.restrict(logp, 4)
    chex.assert_shape(kept, (2, 3, 4))
    np.testing.assert_allclose(special.logsumexp(kept, axis=-1), 0.0, atol=1e-6)
    mean = np.exp(logp[0]).mean(axis=0)
    likeliest = np.sort(np.argsort(mean)[-4:])
    order = np.sort(logp[0][:, likeliest], axis=-1)
    shifted = np.sort(kept[0], axis=-1)
    np.testing.assert_allclose(np.diff(shifted), np.diff(order), atol=1e-5)
    self.assertIs(census.restrict(logp, 0), logp)


class EmergenceTest(parameterized.TestCase):
  def test_random_changes_stay_on_the_simplex(self):
    beta = np.array([0.2, 0.3, 0.5])
    shifts = emergence.random_shifts(np.random.default_rng(0), beta, 1, 0.1, 50)
    np.testing.assert_allclose(shifts.sum(axis=1), 0.0, atol=1e-12)
    np.testing.assert_allclose(shifts[:, 1], 0.1)
    self.assertGreaterEqual((beta + shifts).min(), -1e-12)


class SuppressionTest(chex.TestCase):
  def test_one_direction_more_never_hurts_and_prediction_is_first_order(self):
    rng = np.random.default_rng(1)
    logp = special.log_softmax(rng.normal(size=(4, 12)), axis=-1)
    case = suppression.Case('?', logp, np.arange(12) == 2)
    with jax.enable_x64(True):
      found = suppression.measure(case, [0, 1], 3, (1e-3, 1e-5), rng)
    self.assertGreaterEqual(found['first_order_ratio'], 1.0)
    self.assertGreaterEqual(found['reached_ratio_1e-05'], 1.0 - 1e-6)
    self.assertLess(found['prediction_error_1e-05'], found['prediction_error_0.001'])
    self.assertLess(found['prediction_error_1e-05'], 0.01)
