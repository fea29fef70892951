import math

import chex
from absl.testing import parameterized

from configs.pql import bandit, ogbench, quick
from experiments.pql import checks


class ChecksTest(chex.TestCase):
  @parameterized.parameters(bandit, ogbench, quick)
  def test_every_config_passes(self, module):
    checks.check(module.get_config())

  @parameterized.parameters(
    ({'num_seeds': 0}, 'num_seeds'),
    ({'steps': -1}, 'steps'),
    ({'batch_size': 0}, 'batch_size'),
    ({'seed': -1}, 'seed'),
    ({'methods': ()}, 'methods'),
    ({'methods': ('pqll',)}, 'pqll.*|methods'),
    ({'agent': {'learning_rate': math.nan}}, 'learning_rate'),
    ({'agent': {'discount': 1.5}}, 'discount'),
    ({'agent': {'hidden_dims': (8, 0)}}, 'hidden_dims'),
    ({'agent': {'hidden_dims': ('8',)}}, 'hidden_dims'),
    ({'agent': {'hidden_dims': (2.5,)}}, 'hidden_dims'),
    ({'agent': {'alpha': math.inf}}, 'alpha'),
    ({'claims': (1, 2, 3)}, 'claims'),
    ({'claims': (('beta_0', 'nobody', 'reward', 0.0),)}, 'claims.*nobody'),
    ({'agent': {'q_aggregation': 'max'}}, 'q_aggregation.*mean, min'),
    ({'agent': {'pde': {'weight': -1.0}}}, 'pde.weight'),
    ({'agent': {'pde': {'form': 'jacobi'}}}, 'pde.form.*jacobian'),
    ({'agent': {'time': {'b': 0.0}}}, 'time.b'),
    ({'data': {'env': 'eight_mods'}}, 'eight_modes'),
    ({'data': {'episodes': 0}}, 'episodes'),
    ({'score_last': 0}, 'score_last'),
    ({'eval_from': -1}, 'eval_from'),
    ({'online': {'steps': -1}}, 'online.steps'),
    ({'online': {'chunk_steps': 0}}, 'online.chunk_steps'),
    ({'online': {'episodes': 0}}, 'online.episodes'),
    ({'online': {'capacity': 0}}, 'online.capacity'),
    ({'online': {'eval_every': 0}}, 'online.eval_every'),
    ({'online': {'eval_every': 300}}, 'online.eval_every.*online.chunk_steps.*300 and 200'),
    ({'online': {'steps': 100}}, 'online.steps.*synthetic'),  # a bandit is no environment
    ({'agent': {'iql': {'expectile': 0.0}}}, 'iql.expectile'),
    ({'agent': {'iql': {'expectile': 1.0}}}, 'iql.expectile'),
    ({'agent': {'iql': {'expectile': math.nan}}}, 'iql.expectile'),
    ({'agent': {'iql': {'inverse_temperature': -1.0}}}, 'iql.inverse_temperature'),
    ({'agent': {'ifql': {'num_samples': 0}}}, 'ifql.num_samples'),
    ({'agent': {'fawac': {'inverse_temperature': math.inf}}}, 'fawac.inverse_temperature'),
    ({'agent': {'fbrac': {'alpha': -1.0}}}, 'fbrac.alpha'),
    ({'agent': {'rebrac': {'actor_penalty': math.nan}}}, 'rebrac.actor_penalty'),
    ({'agent': {'rebrac': {'critic_penalty': -1.0}}}, 'rebrac.critic_penalty'),
    ({'agent': {'rebrac': {'policy_noise': -0.1}}}, 'rebrac.policy_noise'),
    ({'agent': {'rebrac': {'noise_clip': -0.1}}}, 'rebrac.noise_clip'),
    ({'agent': {'rebrac': {'actor_every': 0}}}, 'rebrac.actor_every'),
  )
  def test_names_the_bad_field(self, changes, pattern):
    config = bandit.get_config()
    config.update(changes)
    with self.assertRaisesRegex(ValueError, pattern) as raised:
      checks.check(config)
    self.assertNotIn('\n', str(raised.exception))

  @parameterized.parameters(('fql', 'of another method'), ('mine_online', 'fine-tuning'))
  def test_refuses_a_variant_whose_directory_is_anothers(self, name, pattern):
    config = bandit.get_config()
    config.variants = {name: {'method': 'pql'}}
    config.methods, config.claims = (name,), ()
    with self.assertRaisesRegex(ValueError, f'variants.{name}.*{pattern}'):
      checks.check(config)

  @parameterized.parameters(
    ({'method': 'pqll'}, 'method'),
    ({}, 'method'),
    ({'method': 'pql', 'pde': {'weigth': 1.0}}, 'weigth'),
    ({'method': 'pql', 'pde': {'weight': 'big'}}, 'weight'),
    ({'method': 'pql', 'pde': {'weight': -1.0}}, 'weight'),
  )
  def test_names_the_bad_variant(self, variant, pattern):
    config = bandit.get_config()
    config.variants = {'mine': variant}
    config.methods, config.claims = ('mine',), ()
    with self.assertRaisesRegex(ValueError, f'variants.mine.*{pattern}'):
      checks.check(config)
