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
  )
  def test_names_the_bad_field(self, changes, pattern):
    config = bandit.get_config()
    config.update(changes)
    with self.assertRaisesRegex(ValueError, pattern) as raised:
      checks.check(config)
    self.assertNotIn('\n', str(raised.exception))

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
