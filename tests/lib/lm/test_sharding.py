import json
import subprocess
import sys

import chex
import jax
import numpy as np
from absl.testing import parameterized

from lib.lm import quantize, sharding, transformer
from tests.lib.lm import toys

ARCH = toys.KINDS['biased']._replace(vocabulary=32)


def logits_of(params, tokens):
  run = lambda p, t: transformer.logits(ARCH, p, transformer.forward(ARCH, p, t).hidden)
  return jax.jit(run)(params, tokens)


def on_eight_devices() -> None:
  """Prints logits and where the parameters lie, in a process that has eight devices."""
  jax.config.update('jax_num_cpu_devices', 8)
  params, tokens = toys.params_of(ARCH), toys.tokens_of(ARCH, (4, 6))
  found = []
  for data, model, layout in ((2, 4, params), (1, 8, transformer.unstack(params))):
    on = sharding.mesh(data, model)
    logits = logits_of(sharding.place(layout, on), sharding.place_batch(tokens, on))
    found.append(logits.tolist())
  placed = sharding.place(params, sharding.mesh(2, 4))
  shard = lambda x: x.addressable_shards[0].data.shape
  shapes = {name: shard(x) for name, x in placed['layers'].items()}
  print(json.dumps({'logits': found, 'shapes': shapes, 'embed': shard(placed['embed'])}))


class ShardingTest(chex.TestCase):
  def test_eight_devices_equal_one(self):
    code = 'from tests.lib.lm import test_sharding as t\nt.on_eight_devices()'
    ran = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, check=False)
    self.assertEqual(ran.returncode, 0, ran.stderr)
    found = json.loads(ran.stdout)
    expected = logits_of(toys.params_of(ARCH), toys.tokens_of(ARCH, (4, 6)))
    for logits in found['logits']:
      np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-4)
    self.assertEqual(found['shapes']['q'], [3, 8, 24])
    self.assertEqual(found['shapes']['down'], [3, 24, 5])
    self.assertEqual(found['shapes']['q_bias'], [3, 8])
    self.assertEqual(found['shapes']['attention_norm'], [3, 24])
    self.assertEqual(found['embed'], [8, 24])

  @parameterized.parameters(True, False)
  def test_scales_are_split_where_they_can_be(self, stacked):
    params = toys.params_of(ARCH)
    params = params if stacked else transformer.unstack(params)
    rounded = {**params, 'embed': quantize.quantize(params['embed'])}
    on = jax.sharding.AbstractMesh((2, 4), ('data', 'model'))
    specs = sharding.specs(rounded, on)
    P = jax.sharding.PartitionSpec
    self.assertEqual(specs['embed'], quantize.Int8(P('model', None), P('model', None)))
    layer = specs['layers'] if stacked else specs['layers'][0]
    self.assertEqual(layer['q'], P(None, 'model', None) if stacked else P('model', None))
    self.assertEqual(layer['mlp_norm'], P(None, None) if stacked else P(None))

  def test_what_does_not_divide_stays_whole(self):
    params = toys.params_of(toys.PLAIN)  # 31 tokens
    on = jax.sharding.AbstractMesh((2, 4), ('data', 'model'))
    self.assertEqual(sharding.specs(params, on)['embed'], jax.sharding.PartitionSpec(None, None))
