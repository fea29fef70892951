"""Tests of lib.train.devices."""

import itertools
import json
import math
import pathlib
import subprocess
import sys
import tempfile
from unittest import mock

import chex
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import absltest, parameterized

from lib.train import checkpoint, console, devices, loop, metrics
from tests.lib.train import toys


def train(workdir: pathlib.Path, num_steps: int) -> dict[int, toys.State]:
  """Trains two seeds in chunks of two steps, and returns their states by step."""
  keys = jax.random.split(jax.random.key(1), 2)
  with metrics.Writer(workdir) as writer:
    run = loop.chunks(
      toys.step, toys.sample, toys.DATA, jax.vmap(toys.init)(keys), keys, num_steps=num_steps,
      chunk_steps=2, checkpoint_every=2, writer=writer, checkpoints=checkpoint.Checkpoints(workdir),
    )  # fmt: skip
    return {done: jax.tree.map(jnp.copy, state) for done, state in run}


def on_four_devices(workdir: str) -> None:
  """Trains in a process that has four devices, and prints where the arrays lie."""
  jax.config.update('jax_num_cpu_devices', 4)
  mesh = devices.mesh(2)
  state = train(pathlib.Path(workdir), 4)[4]
  place = jax.jit(lambda x, seeded: devices.constrain_batch(x, mesh, seeded), static_argnums=1)
  rows = jnp.arange(16.0).reshape(2, 4, 2)
  batches = {
    'seeded': place(rows, True),
    'seeded_uneven': place(rows[:, :3], True),
    'seeded_scalars': place(rows[:, 0, 0], True),
    'one': place(rows[0], False),
    'one_uneven': place(rows[0, :3], False),
    'one_scalar': place(rows[0, 0, 0], False),
    'replicated': devices.place(rows, mesh),
    'states': devices.place(rows, mesh, 'seed'),
    'weights': state.params['w'],
  }
  facts = {
    name: {
      'shape': x.shape,
      'shards': sorted({shard.data.shape for shard in x.addressable_shards}),
      'devices': len(x.sharding.device_set),
      'pieces': len({str(shard.index) for shard in x.addressable_shards}),
    }
    for name, x in batches.items()
  }
  print(json.dumps({'mesh': dict(mesh.shape), 'arrays': facts}))


class DevicesTest(chex.TestCase):
  def test_seeds_divide_the_devices(self):
    for count, num_seeds in itertools.product((1, 2, 4, 6, 8), range(1, 13)):
      with (
        mock.patch.object(jax, 'device_count', return_value=count),
        mock.patch.object(jax, 'make_mesh', side_effect=jax.sharding.AbstractMesh),
      ):
        shape = devices.mesh(num_seeds).shape
      self.assertEqual(tuple(shape), ('seed', 'data'))
      self.assertEqual(math.prod(shape.values()), count)
      divisors = [n for n in range(1, count + 1) if count % n == 0 and num_seeds % n == 0]
      self.assertEqual(shape['seed'], max(divisors))

  @parameterized.parameters(0, -1)
  def test_refuses_no_seeds(self, num_seeds):
    with self.assertRaisesRegex(ValueError, 'num_seeds='):
      devices.mesh(num_seeds)

  @chex.variants(with_jit=True, without_jit=True)
  @parameterized.parameters(True, False)
  def test_placement_changes_no_value(self, seeded):
    mesh = devices.mesh(2)
    tree = {'a': jnp.arange(12.0).reshape(2, 3, 2), 'b': jnp.arange(2), 'c': jnp.ones((2, 4), bool)}
    constrain = self.variant(lambda x: devices.constrain_batch(x, mesh, seeded))
    for place in (constrain, lambda x: devices.place(x, mesh),
                  lambda x: devices.place(x, mesh, 'seed')):  # fmt: skip
      placed = place(tree)
      chex.assert_trees_all_equal(placed, tree)
      chex.assert_trees_all_equal_dtypes(placed, tree)

  def test_four_devices_equal_one(self):
    self.enter_context(mock.patch.object(console, 'say'))
    directory = pathlib.Path(self.enter_context(tempfile.TemporaryDirectory()))
    code = (
      'import sys\nfrom tests.lib.train import test_devices as t\nt.on_four_devices(sys.argv[1])'
    )
    ran = subprocess.run(
      [sys.executable, '-c', code, directory / 'four'], capture_output=True, text=True, check=False
    )
    self.assertEqual(ran.returncode, 0, ran.stderr)
    report = json.loads(ran.stdout)
    self.assertEqual(report['mesh'], {'seed': 2, 'data': 2})

    shards = {
      'seeded': [[1, 2, 2]],
      'seeded_uneven': [[1, 3, 2]],
      'seeded_scalars': [[1]],
      'one': [[2, 2]],
      'one_uneven': [[3, 2]],
      'one_scalar': [[]],
      'replicated': [[2, 4, 2]],
      'states': [[1, 4, 2]],
      'weights': [[1, 3]],
    }
    for name, fact in report['arrays'].items():
      with self.subTest(name):
        self.assertEqual(fact['devices'], 4)
        self.assertEqual(fact['shards'], shards[name])
        ratio = math.prod(fact['shape']) // math.prod(fact['shards'][0])
        self.assertEqual(fact['pieces'], ratio)  # they are the whole, and none is there twice

    one = train(directory / 'one', 6)
    step, four = checkpoint.Checkpoints(directory / 'four').restore(one[4])
    self.assertEqual(step, 4)
    chex.assert_trees_all_close(four, one[4], rtol=1e-6, atol=1e-6)
    four = train(directory / 'four', 6)  # what four devices saved goes on with one
    self.assertEqual(list(four), [4, 6])
    chex.assert_trees_all_close(four[6], one[6], rtol=1e-6, atol=1e-6)
    losses = [
      [r['loss'] for r in metrics.read(directory / name / 'metrics.jsonl')]
      for name in ('four', 'one')
    ]
    np.testing.assert_allclose(*losses, rtol=1e-5)


if __name__ == '__main__':
  absltest.main()
