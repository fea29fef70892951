"""Tests of what is refused before a run begins."""

import math
from unittest import mock

import chex
from absl.testing import parameterized

from configs.renyi_diffusion import digits, images, mnist, quick, ring
from experiments.renyi_diffusion import checks, data

PUBLISHED = [
  *((module, ()) for module in (quick, ring)),
  *((digits, (part,)) for part in ('core', 'rest')),
  *((mnist, (part,)) for part in ('small', 'full')),
  *((images, (name,)) for name in images.SETS),
]


class ChecksTest(chex.TestCase):
  @parameterized.parameters(*PUBLISHED)
  def test_every_config_passes(self, module, arguments):
    config = module.get_config(*arguments)
    with mock.patch('os.path.exists', return_value=True):  # data that a user fetches
      checks.check(config)

  @parameterized.parameters(digits, mnist, images)
  def test_an_unknown_part_is_named(self, module):
    with self.assertRaisesRegex(ValueError, "no .*'middle': "):
      module.get_config('middle')

  @parameterized.parameters(
    ({'num_seeds': 0}, 'num_seeds'),
    ({'seed': -1}, 'seed'),
    ({'seed': 2**31}, 'seed.*below'),
    ({'steps': 0}, 'steps'),
    ({'batch_size': -3}, 'batch_size'),
    ({'checkpoint_every': 300}, 'checkpoint_every.*chunk_steps.*300 and 250'),
    ({'start': 0.0}, 'start'),
    ({'start': 1.0}, 'start.*horizon 1.0'),
    ({'start': math.nan}, 'start'),
    ({'sde': {'kind': 'vpp'}}, 'sde.kind.*sub_vp'),
    ({'sde': {'kind': 'cosine'}, 'start': 0.9946}, 'start.*horizon 0.9946'),
    ({'sde': {'vp': {'beta_min': -1.0}}}, 'config.sde: beta_min'),
    ({'methods': ()}, 'methods is empty'),
    ({'methods': ('likelihod',)}, "methods.*got 'likelihod'"),
    ({'methods': ('excess',)}, "methods: excess needs the trained 'teacher'"),
    ({'claims': (1, 2)}, 'claims'),
    ({'claims': (('likelihood', 'nobody', 'nll', 0.0),)}, 'claims.*nobody'),
    ({'claims': (('likelihood', 'renyi_0_5', 'fid', 0.0),)}, 'claims.*fid'),
    ({'network': {'kind': 'cnn'}}, 'network.kind.*unet'),
    ({'network': {'time_frequencies': 0}}, 'network.time_frequencies'),
    ({'network': {'dropout': 1.0}}, r'network.dropout.*\[0, 1\)'),
    ({'optimizer': {'learning_rate': math.inf}}, 'optimizer.learning_rate'),
    ({'optimizer': {'schedule': 'linear'}}, 'optimizer.schedule.*cosine'),
    ({'optimizer': {'warmup_fraction': 1.0}}, r'optimizer.warmup_fraction.*\[0, 1\)'),
    ({'optimizer': {'beta1': 1.0}}, r'optimizer.beta1.*\[0, 1\)'),
    ({'optimizer': {'ema': 1.5}}, 'optimizer.ema'),
    ({'objective': {'alpha': 0.0}}, 'objective.alpha'),
    ({'objective': {'num_times': 0}}, 'objective.num_times'),
    ({'objective': {'times': 'log'}}, 'objective.times.*uniform'),
    ({'objective': {'base': 'simple'}}, 'objective.base.*variance'),
    ({'objective': {'scale': 'bits'}}, 'objective.scale.*nats'),
    ({'objective': {'fraction': 0.0}}, 'objective.fraction'),
    ({'objective': {'fraction': 1.1}}, 'objective.fraction'),
    ({'objective': {'max_weight': 0.5}}, 'objective.max_weight'),
    ({'objective': {'max_weight': math.nan}}, 'objective.max_weight'),
    ({'objective': {'mix': -0.1}}, 'objective.mix'),
    ({'objective': {'normalizer_decay': 1.0}}, 'objective.normalizer_decay'),
    ({'objective': {'truncation_exponent': -1.0}}, 'objective.truncation_exponent'),
    ({'objective': {'gamma': 0.0}}, 'objective.gamma'),
    ({'objective': {'path_steps': 0}}, 'objective.path_steps'),
    ({'objective': {'discriminator': {'sampler_steps': 0}}}, 'discriminator.sampler_steps'),
    ({'eval': {'sampler': 'euler'}}, 'eval.sampler.*ancestral'),
    ({'eval': {'samples': 0}}, 'eval.samples'),
    ({'eval': {'probes': -1}}, 'eval.probes'),
    ({'eval': {'rtol': 0.0}}, 'eval.rtol'),
    ({'eval': {'neighbors': 2000}}, 'eval.neighbors.*below the 2000 compared'),
    ({'eval': {'compared': 5}}, 'eval.neighbors.*below the 5 compared'),
    ({'data': {'source': 'rings'}}, 'data.source.*ring, digits'),
    ({'data': {'source': 'cifar10', 'path': '/nowhere'}}, "data.path: no cifar10 at '/nowhere'"),
    ({'data': {'source': 'folder'}}, "data.path: no folder at ''"),
    ({'data': {'imbalance': 0.9}}, 'data.imbalance.*0.9'),
    ({'data': {'imbalance': math.nan}}, 'data.imbalance.*nan'),
    ({'data': {'imbalance': math.inf}}, 'data.imbalance.*inf'),
    ({'data': {'size': 100_000}}, 'data.size.*100000'),
    ({'objective': {'discriminator': {'hidden': (-1,)}}}, 'discriminator.hidden.*above 0'),
    ({'objective': {'discriminator': {'hidden': ('a',)}}}, 'discriminator.hidden.*above 0'),
    ({'objective': {'discriminator': {'clock': 'sun'}}}, 'discriminator.clock.*log_snr'),
    ({'data': {'pool': 0}}, 'data.pool'),
  )
  def test_names_the_bad_field(self, changes, pattern):
    config = quick.get_config()
    config.update(changes)
    with self.assertRaisesRegex((ValueError, FileNotFoundError), pattern) as raised:
      checks.check(config)
    self.assertNotIn('\n', str(raised.exception))

  def test_names_the_package_of_the_digits(self):
    with (
      mock.patch('importlib.util.find_spec', return_value=None),
      self.assertRaisesRegex(ValueError, 'data.source: digits.*scikit-learn'),
    ):
      data.check(digits.get_config().data)

  @parameterized.parameters(
    ({'method': 'reny'}, "method.*got 'reny'"),
    ({}, 'method.*got None'),
    ({'method': 'renyi', 'steps': 5}, 'steps is the same for all'),
    ({'method': 'renyi', 'eval': {'samples': 5}}, 'eval is the same for all'),
    ({'method': 'renyi', 'objective': {'alhpa': 1.0}}, 'alhpa'),
    ({'method': 'renyi', 'objective': {'alpha': 'big'}}, 'alpha'),
    ({'method': 'renyi', 'objective': {'alpha': -1.0}}, 'objective.alpha.*-1.0'),
    ({'method': 'renyi', 'network': {'kind': 'cnn'}}, 'network.kind.*unet'),
  )
  def test_names_the_bad_variant(self, variant, pattern):
    config = quick.get_config()
    config.variants = {'mine': variant}
    config.methods, config.claims = ('mine',), ()
    with self.assertRaisesRegex(ValueError, f'variants.mine.*{pattern}'):
      checks.check(config)

  def test_a_variant_must_not_take_the_name_of_another_method(self):
    config = quick.get_config()
    config.variants = {'tilted': {'method': 'renyi'}}
    config.methods, config.claims = ('tilted',), ()
    with self.assertRaisesRegex(ValueError, 'variants.tilted has the name of another method'):
      checks.check(config)

  def test_a_reference_is_trained_before_its_users(self):
    config = quick.get_config()
    config.claims = ()
    config.variants = {
      'mine': {'method': 'excess', 'objective': {'reference': 'variance'}},
      'own': {'method': 'ratio_proxy', 'objective': {'reference': 'own'}},
    }
    config.methods = ('variance', 'mine')
    checks.check(config)
    for methods in (('mine', 'variance'), ('mine',), ('variance', 'own')):
      config.methods = methods
      with self.assertRaisesRegex(ValueError, r'methods: \w+ needs the trained .* before it'):
        checks.check(config)
