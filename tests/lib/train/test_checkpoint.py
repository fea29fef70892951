"""Tests of lib.train.checkpoint."""

import errno
import json
import os
import pathlib
import resource
import shutil
import tempfile
from typing import NamedTuple
from unittest import mock

import chex
import hypothesis
import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
import optax
import orbax.checkpoint as ocp
from absl.testing import absltest, parameterized
from hypothesis import strategies as st

from lib import train
from lib.train import checkpoint, console


class State(NamedTuple):
  params: dict[str, chex.Array]
  opt_state: optax.OptState
  key: chex.PRNGKey


def make_state(seed: int = 0) -> State:
  params = {'w': jnp.linspace(seed, 1.0, 12).reshape(4, 3) / 3, 'b': jnp.full(3, -0.0)}
  opt_state = optax.adam(1e-3).init(params)
  return State(params, opt_state, jax.random.split(jax.random.key(seed), 2))


def bits(tree) -> list:
  """Returns what two trees share if and only if they are the same bit for bit."""

  def plain(x):
    typed = jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
    return x.dtype, x.shape, np.asarray(jax.random.key_data(x) if typed else x).tobytes()

  return [jax.tree.structure(tree), *map(plain, jax.tree.leaves(tree))]


class CheckpointsTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    directory = tempfile.TemporaryDirectory()
    self.addCleanup(directory.cleanup)
    self.workdir = pathlib.Path(directory.name)
    self.checkpoints = checkpoint.Checkpoints(self.workdir)
    self.said = self.enter_context(mock.patch.object(console, 'say'))

  def test_round_trip_is_bit_exact(self):
    state = make_state()
    odd = jnp.array([jnp.nan, jnp.inf, -0.0, 1e-45, 3.0], jnp.float32)
    tree = {'state': state, 'odd': odd, 'half': odd.astype(jnp.bfloat16), 'yes': jnp.array(True),
            'key': jax.random.key(7), 'ints': [jnp.arange(3, dtype=jnp.uint8)]}  # fmt: skip
    self.checkpoints.save(5, tree)
    step, restored = self.checkpoints.restore(tree)
    self.assertEqual(step, 5)
    self.assertEqual(bits(restored), bits(tree))
    draws = [jax.random.bits(t['state'].key[1], (3,)) for t in (restored, tree)]
    np.testing.assert_array_equal(*draws)

  def test_without_likeness_records_are_dicts(self):
    state = make_state()
    self.checkpoints.save(1, state)
    _, restored = self.checkpoints.restore()
    self.assertEqual(bits(restored['params']), bits(state.params))
    self.assertEqual(bits(restored['opt_state'][0]['mu']), bits(state.opt_state[0].mu))
    self.assertEqual(bits(restored['key']), bits(state.key))

  def test_nothing_saved(self):
    self.assertEmpty(self.checkpoints.steps())
    self.assertIsNone(self.checkpoints.restore(make_state()))
    self.assertEmpty(os.listdir(self.workdir))

  def test_keeps_the_newest(self):
    for step in (2, 9, 10, 100):  # as text they would not rise
      self.checkpoints.save(step, {'x': jnp.float32(step)})
    self.assertEqual(self.checkpoints.steps(), [10, 100])
    self.assertCountEqual(os.listdir(self.checkpoints.directory), ['10', '100'])
    self.assertEqual(self.checkpoints.restore()[1]['x'], 100)
    self.assertEqual(self.checkpoints.restore(step=10)[1]['x'], 10)
    self.assertIsNone(self.checkpoints.restore(step=9))

  def test_same_step_again_replaces(self):
    for value in (1.0, 2.0):
      self.checkpoints.save(3, {'x': jnp.float32(value)})
    self.assertEqual(self.checkpoints.steps(), [3])
    self.assertEqual(self.checkpoints.restore()[1]['x'], 2)

  def test_going_back_drops_what_came_later(self):
    for step in (1, 2):
      self.checkpoints.save(step, {'x': jnp.float32(step)})
    (self.checkpoints.directory / '2' / 'sha256').unlink()
    self.assertEqual(self.checkpoints.restore()[0], 1)
    keep_one = checkpoint.Checkpoints(self.workdir, keep=1)
    keep_one.save(1, {'x': jnp.float32(1)})
    self.assertEqual(keep_one.steps(), [1])

  @parameterized.parameters(0, -1)
  def test_refuses_to_keep_none(self, keep):
    with self.assertRaisesRegex(ValueError, 'keep='):
      checkpoint.Checkpoints(self.workdir, keep)

  def test_half_written_is_ignored_and_swept(self):
    self.checkpoints.save(1, {'x': jnp.float32(1)})
    for name in ('saving', 'saving.orbax-checkpoint-tmp-7'):
      shutil.copytree(self.checkpoints.directory / '1', self.checkpoints.directory / name)
    self.assertEqual(self.checkpoints.steps(), [1])
    self.assertEqual(self.checkpoints.restore()[0], 1)
    self.checkpoints.save(2, {'x': jnp.float32(2)})
    self.assertCountEqual(os.listdir(self.checkpoints.directory), ['1', '2'])

  @hypothesis.settings(max_examples=15, deadline=None)
  @hypothesis.given(data=st.data())
  def test_damage_falls_back_to_the_older(self, data):
    if not self.checkpoints.steps():
      self.checkpoints.save(1, make_state(1))
      self.checkpoints.save(2, make_state(2))
    path = self.checkpoints.directory / '2'
    files = sorted(file for file in path.rglob('*') if file.is_file())
    file = data.draw(st.sampled_from(files))
    intact = file.read_bytes()
    how = data.draw(st.sampled_from(['flip', 'truncate', 'remove', 'grow', 'rename']))
    moved = file.with_name('other')
    if how == 'flip':
      hypothesis.assume(intact)
      at = data.draw(st.integers(0, len(intact) - 1))
      flipped = intact[at] ^ 1 << data.draw(st.integers(0, 7))
      file.write_bytes(intact[:at] + bytes([flipped]) + intact[at + 1 :])
    elif how == 'truncate':
      hypothesis.assume(intact)
      file.write_bytes(intact[: data.draw(st.integers(0, len(intact) - 1))])
    elif how == 'grow':
      file.write_bytes(intact + b'\0')
    elif how == 'rename':
      file.rename(moved)
    else:
      file.unlink()
    self.said.reset_mock()
    try:
      step, restored = self.checkpoints.restore(make_state())
    finally:
      moved.unlink(missing_ok=True)
      file.write_bytes(intact)
    self.assertEqual(step, 1)
    self.assertEqual(bits(restored), bits(make_state(1)))
    self.assertIn(str(path), self.said.call_args.args[0])
    self.assertEqual(self.checkpoints.restore(make_state())[0], 2)

  def test_all_damaged_is_none(self):
    for step in (1, 2):
      self.checkpoints.save(step, make_state())
      (self.checkpoints.directory / str(step) / 'sha256').write_bytes(b'\xff')
    self.assertIsNone(self.checkpoints.restore(make_state()))
    self.assertEqual(self.said.call_count, 2)

  @parameterized.named_parameters(
    ('shape', lambda s: s._replace(params={'w': jnp.zeros((4, 2)), 'b': s.params['b']})),
    ('type', lambda s: s._replace(params=jax.tree.map(jnp.int32, s.params))),
    ('name', lambda s: s._replace(params={'v': s.params['w'], 'b': s.params['b']})),
    ('more', lambda s: s._replace(params={**s.params, 'c': jnp.zeros(3)})),
    ('less', lambda s: s._replace(params={'w': s.params['w']})),
    ('optimiser', lambda s: s._replace(opt_state=optax.sgd(1e-3).init(s.params))),
    ('seeds', lambda s: s._replace(key=s.key[:1])),
    ('leaf', lambda s: {'params': jnp.zeros(())}),
  )
  def test_other_structure(self, change):
    self.checkpoints.save(4, make_state())
    with self.assertRaisesRegex(checkpoint.CheckpointError, 'checkpoints/4 does not fit') as caught:
      self.checkpoints.restore(change(make_state()))
    self.assertLen(str(caught.exception).splitlines(), 1)

  def test_disk_that_fails(self):
    self.checkpoints.save(1, {'x': jnp.float32(1)})
    big = np.random.default_rng(0).normal(size=2**15)  # does not compress
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**15, limits[1]))
    try:
      with self.assertRaises(OSError) as caught:
        self.checkpoints.save(2, {'x': big})
    finally:
      resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    self.assertEqual(caught.exception.errno, errno.EFBIG)
    self.assertEqual(self.checkpoints.restore()[0], 1)
    self.checkpoints.save(3, {'x': big})
    self.assertCountEqual(os.listdir(self.checkpoints.directory), ['1', '3'])

  def test_full_disk_as_tensorstore_tells_it(self):
    error = ValueError("RESOURCE_EXHAUSTED: Error writing [os_error_code='28']")
    with (
      mock.patch.object(ocp.StandardCheckpointer, 'save', side_effect=error),
      self.assertRaises(OSError) as caught,
    ):
      self.checkpoints.save(2, {'x': jnp.float32(1)})
    self.assertEqual(caught.exception.errno, errno.ENOSPC)
    self.assertEndsWith(caught.exception.filename, 'checkpoints/2')

  def test_full_disk_at_the_digest(self):
    self.checkpoints.save(1, {'x': jnp.float32(1)})
    error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with (
      mock.patch.object(pathlib.Path, 'write_text', side_effect=error),
      self.assertRaises(OSError),
    ):
      self.checkpoints.save(2, {'x': jnp.float32(2)})
    self.assertEqual(self.checkpoints.steps(), [1])
    self.assertEqual(self.checkpoints.restore()[0], 1)


class RestoreTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    directory = tempfile.TemporaryDirectory()
    self.addCleanup(directory.cleanup)
    self.workdir = pathlib.Path(directory.name) / 'run' / 'method'
    for step in (1, 2):
      checkpoint.Checkpoints(self.workdir).save(step, {'params': make_state(step).params})

  @parameterized.parameters('.', '..')
  def test_config_and_state(self, where):
    (self.workdir / where / 'config.json').write_text(json.dumps({'steps': 3, 'net': {'width': 8}}))
    config, state = train.restore(self.workdir)
    self.assertIsInstance(config, ml_collections.FrozenConfigDict)
    self.assertEqual(config.net.width, 8)
    self.assertEqual(bits(state['params']), bits(make_state(2).params))
    _, state = train.restore(str(self.workdir), step=1)
    self.assertEqual(bits(state['params']), bits(make_state(1).params))

  def test_the_nearer_config_wins(self):
    (self.workdir / 'config.json').write_text('{"steps": 3}')
    (self.workdir.parent / 'config.json').write_text('{"steps": 4}')
    self.assertEqual(train.restore(self.workdir)[0].steps, 3)

  def test_what_is_missing_is_named(self):
    (self.workdir.parent.parent / 'config.json').write_text('{}')  # too far up
    with self.assertRaisesRegex(checkpoint.CheckpointError, 'config.json'):
      train.restore(self.workdir)
    (self.workdir / 'config.json').write_text('{}')
    with self.assertRaisesRegex(checkpoint.CheckpointError, 'no intact checkpoint'):
      train.restore(self.workdir, step=7)


if __name__ == '__main__':
  absltest.main()
