"""pgx's own networks: what is read of checkpoints, against pgx's reader, and who is refused."""

import contextlib
import io
import os
import pathlib
import pickle
import shutil
import tempfile
from unittest import mock

import chex
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pgx
from absl.testing import parameterized
from pgx._src import baseline

from configs.klent import quick
from experiments.klent import convert, evaluate, pgx_models, players, train
from lib.io import npz
from lib.nn import trees

ARGS = {'num_actions': 65, 'num_channels': 4, 'num_layers': 2, 'resnet_v2': True}
LINEAR = 'az_net/linear'
NORM = 'az_net/block_1/batch_norm'


def _shapes(shape, **args):
  """Parameters and state of pgx's network, by haiku: shapes alone."""

  def forward(x):
    return baseline._create_az_model_v0(**args)(x, is_training=True, test_local_stats=False)

  example = jax.ShapeDtypeStruct((1, *shape), jnp.float32)
  return jax.eval_shape(hk.transform_with_state(forward).init, jax.random.key(0), example)


def _checkpoint(shape=(8, 8, 2), **changes):
  """What pgx publishes, of random weights and averages."""
  args = ARGS | changes
  rng = np.random.default_rng(0)

  def drawn(path, x):
    name = jax.tree_util.keystr(path)
    if x.dtype != jnp.float32:
      return np.ones(x.shape, x.dtype)
    if 'var_ema' in name or 'scale' in name:
      return rng.uniform(0.5, 1.5, x.shape).astype(np.float32)
    scale = np.prod(x.shape[:-1]) ** -0.5 if "'w'" in name else 0.3
    return rng.normal(size=x.shape, scale=scale).astype(np.float32)

  params, state = jax.tree_util.tree_map_with_path(drawn, _shapes(shape, **args))
  return {'args': args, 'params': params, 'state': state}


class PgxModelsTest(chex.TestCase):
  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.host = _checkpoint()

  def setUp(self):
    super().setUp()
    self.path = pathlib.Path(tempfile.mkdtemp())
    self.addCleanup(shutil.rmtree, self.path)
    self.ckpt, self.npz = self.path / 'othello_v0.ckpt', self.path / 'othello_v0.npz'

  def write(self, checkpoint, protocol=pickle.DEFAULT_PROTOCOL):
    self.ckpt.write_bytes(pickle.dumps(checkpoint, protocol))

  def changed(self, part, module, **arrays):
    """The checkpoint with other arrays in a module; None takes one away."""
    group = self.host[part].get(module, {}) | arrays
    group = {key: array for key, array in group.items() if array is not None}
    return self.host | {part: self.host[part] | {module: group}}

  @parameterized.product(resnet_v2=[True, False], kind=['jax', 'numpy', 'flat'])
  def test_says_what_pgx_says(self, resnet_v2, kind):
    found = _checkpoint(resnet_v2=resnet_v2)
    if kind == 'jax':
      found |= {part: jax.tree.map(jnp.asarray, found[part]) for part in ('params', 'state')}
    if kind == 'flat':  # as haiku had it in 2023
      immutable = hk.data_structures.to_immutable_dict
      found |= {part: immutable(found[part]) for part in ('params', 'state')}
    self.write(found, {'jax': 4, 'numpy': 5, 'flat': 2}[kind])
    theirs = pgx.make_baseline_model('othello_v0', download_dir=str(self.path))
    model = pgx_models.convert(self.ckpt, self.npz)
    again = pgx_models.of_game(self.npz, (8, 8, 2), 65)
    chex.assert_trees_all_equal(model.variables, again.variables)
    boards = jax.random.bernoulli(jax.random.key(1), 0.5, (7, 8, 8, 2))
    logits, values = jax.jit(model.apply)(model.variables, boards)
    expected = jax.jit(theirs)(boards)
    np.testing.assert_allclose(logits, expected[0], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(values, expected[1], rtol=1e-5, atol=1e-5)
    self.assertGreater(float(logits.std()), 0.1)
    self.assertGreater(float(values.std()), 1e-3)

  def test_sizes_that_are_not_said_are_those_of_pgx(self):
    small = pgx_models._sizes('', {'num_actions': 65})
    with self.assertRaisesRegex(TypeError, 'num_actions'):
      baseline._create_az_model_v0()
    params, _ = _shapes((8, 8, 2), num_actions=65)
    entries = pgx_models._entries(**small)
    names = {f'{module}/{key}' for module, group in params.items() for key in group}
    self.assertEqual({name for name in entries if '/~/' not in name}, names)
    self.assertEqual(params['az_net/conv2_d']['w'].shape[-1], small['num_channels'])

  def test_nothing_but_the_averages_of_training_is_needed_and_it_is_not_kept(self):
    self.write(self.host)
    pgx_models.convert(self.ckpt, self.npz)
    before = self.npz.read_bytes()
    ours = [key for key in npz.load_npz(self.npz) if key.endswith(('hidden', 'counter'))]
    self.assertEmpty(ours)
    state = {name: {'average': group['average']} for name, group in self.host['state'].items()}
    self.write(self.host | {'state': state, 'pgx.__version__': '1.0'})
    pgx_models.convert(self.ckpt, self.npz)
    self.assertEqual(self.npz.read_bytes(), before)

  def test_wrong_arrays_are_named(self):
    weights, bias = (self.host['params'][LINEAR][key] for key in 'wb')
    mean = f'{NORM}/~/mean_ema'
    spoilt = weights.copy()
    spoilt[3, 4] = np.nan
    cases = {
      "array 'az_net/linear/b' is missing": self.changed('params', LINEAR, b=None),
      "array 'az_net/linear/c' is none of": self.changed('params', LINEAR, c=bias),
      "array 'az_net/block_9/w' is none of": self.changed('params', 'az_net/block_9', w=bias),
      "array 'linear/b' is none of": self.changed('params', 'linear', b=bias),
      "array 'az_net/linear/w' has shape": self.changed('params', LINEAR, w=weights[:, :-1]),
      "array 'az_net/linear/w' has 126 rows": self.changed('params', LINEAR, w=weights[:-2]),
      "array 'az_net/linear/b' has shape": self.changed('params', LINEAR, b=bias[None]),
      r"array 'az_net/linear/w' holds nan at index \(3, 4\)": self.changed(
        'params', LINEAR, w=spoilt
      ),
      "array 'az_net/linear/b' holds inf": self.changed('params', LINEAR, b=np.full(65, 1e300)),
      "'az_net/linear/b' is no array of floats": self.changed('params', LINEAR, b=np.arange(65)),
      "'az_net/linear/w' is no array of floats": self.changed('params', LINEAR, w=[1.0]),
      "mean_ema/average' is missing": self.changed('state', mean, average=None),
      "mean_ema/other' is none of": self.changed('state', mean, other=bias),
      "var_ema/average' holds a variance below": self.changed(
        'state', f'{NORM}/~/var_ema', average=np.full((1, 1, 1, 4), -1.0)
      ),
      "two arrays 'az_net/linear/b'": self.changed('params', 'az_net', **{'linear/b': bias}),
      'params is no dictionary': self.host | {'params': [weights]},
      'az_net/x is no dictionary': self.host | {'state': {'az_net/x': weights}},
      "holds no 'state'": {'args': {}, 'params': {}},
      'the whole is no dictionary': [self.host],
      "'num_actions' is not from 1": self.host | {'args': {}},
      "'num_layers' is not from 0 to 1024": self.host | {'args': ARGS | {'num_layers': 10**9}},
      "'num_channels' is not from 1": self.host | {'args': ARGS | {'num_channels': 4.0}},
      "'activation' is none of num_actions": self.host | {'args': ARGS | {'activation': 'relu'}},
      "array 'az_net/block_2/.*' is missing": self.host | {'args': ARGS | {'num_layers': 3}},
      "array 'az_net/block_1/.*' is none of": self.host | {'args': ARGS | {'num_layers': 1}},
    }
    for message, checkpoint in cases.items():
      with self.subTest(message):
        self.write(checkpoint)
        with self.assertRaisesRegex(ValueError, rf'/othello_v0\.ckpt: .*{message}'):
          pgx_models.convert(self.ckpt, self.npz)
        self.assertFalse(self.npz.exists())

  def test_damaged_checkpoints_are_refused_or_whole(self):
    content = pickle.dumps(self.host)
    rng = np.random.default_rng(0)
    for _ in range(60):
      damaged = bytearray(content)
      place = int(rng.integers(len(content)))
      damaged[place] ^= 1 << int(rng.integers(8))
      if rng.random() < 0.3:
        del damaged[place:]
      self.ckpt.write_bytes(damaged)
      try:
        model = pgx_models.convert(self.ckpt, self.npz)
      except ValueError as error:
        self.assertIn(str(self.ckpt), str(error))
      else:
        chex.assert_tree_all_finite(model.variables)
        self.assertEqual((model.num_actions, model.cells, model.planes), (65, 64, 2))

  def test_code_is_not_run(self):
    marker = self.path / 'marker'

    class Evil:
      def __reduce__(self):
        return os.system, (f'touch {marker}',)

    self.write(self.host | {'state': Evil()})
    with self.assertRaisesRegex(ValueError, r'ckpt: pickle near byte \d+: names .*system'):
      pgx_models.convert(self.ckpt, self.npz)
    self.assertFalse(marker.exists())

  def test_damaged_conversions_are_refused(self):
    self.write(self.host)
    pgx_models.convert(self.ckpt, self.npz)
    arrays = npz.load_npz(self.npz)
    for message, changes in (
      ("array 'az_net/linear/b' is missing", {'az_net/linear/b': None}),
      ("array 'surplus' is none of", {'surplus': np.zeros(2)}),
      ("array 'az_net/conv2_d/w' holds nan", {'az_net/conv2_d/w': np.full((3, 3, 2, 4), np.nan)}),
      ("'num_layers' is not", {'num_layers': np.array([2, 2])}),
      ("'num_actions' is not", {'num_actions': None}),
    ):
      kept = {key: array for key, array in (arrays | changes).items() if array is not None}
      npz.save_npz(self.npz, kept)
      with self.assertRaisesRegex(ValueError, rf'/othello_v0\.npz: {message}'):
        pgx_models.load(self.npz)
    with self.assertRaisesRegex(ValueError, r'\.ckpt: .*experiments\.klent\.convert makes such'):
      pgx_models.load(self.ckpt)

  def test_the_command_converts_or_says_why_not_in_one_line(self):
    self.write(self.host)
    out, err = io.StringIO(), io.StringIO()
    with (
      mock.patch.object(convert, '_MODEL', mock.Mock(value=str(self.ckpt))),
      mock.patch.object(convert, '_OUT', mock.Mock(value=str(self.npz))),
      contextlib.redirect_stdout(out),
      contextlib.redirect_stderr(err),
    ):
      convert.main([])
      self.assertIn('65 actions that sees 64 cells of 2 planes', out.getvalue())
      self.assertEqual(pgx_models.load(self.npz).num_actions, 65)
      for breaks in (lambda: self.ckpt.write_bytes(b'x'), self.ckpt.unlink):
        breaks()
        with self.assertRaises(SystemExit) as stopped:
          convert.main([])
        self.assertEqual(stopped.exception.code, 2)
    lines = err.getvalue().splitlines()
    self.assertLen(lines, 2)
    for line in lines:
      self.assertRegex(line, r'^error: .*othello_v0\.ckpt')

  def config(self, game, path):
    config = quick.get_config()
    config.game = game
    config.at_least = ()
    config.eval.opponents = {'pgx': 4}
    config.eval.pgx_model = str(path)
    return config

  def test_a_run_that_names_no_network_of_its_game_does_not_begin(self):
    for path, message in ((self.path / 'none.npz', 'none.npz'), (self.path, 'directory')):
      with self.assertRaisesRegex(ValueError, rf'^config\.eval\.pgx_model: .*{message}'):
        train.prepare(self.config('othello', path))
    self.write(self.host)
    pgx_models.convert(self.ckpt, self.npz)
    with self.assertRaisesRegex(ValueError, r'^config\.eval\.pgx_model: .*npz: has 65 actions'):
      train.prepare(self.config('connect_four', self.npz))
    with self.assertRaisesRegex(ValueError, r'npz: sees 64 cells of 2 planes.*\(6, 7, 2\)'):
      pgx_models.of_game(self.npz, (6, 7, 2), 65)
    with self.assertRaisesRegex(ValueError, r'sees 64 cells.*\(128,\)'):
      pgx_models.of_game(self.npz, (128,), 65)

  def test_runs_from_before_there_was_one_have_the_same_config(self):
    self.assertNotIn('eval.pgx_model', trees.named_leaves(quick.get_config().to_dict()))

  def tic_tac_toe(self):
    """A config and a game with a network of it."""
    self.write(_checkpoint((3, 3, 2), num_actions=9))
    pgx_models.convert(self.ckpt, self.npz)
    config = self.config('tic_tac_toe', self.npz)
    return config, train.prepare(config)

  def test_it_draws_legal_moves_from_its_policy(self):
    _, game = self.tic_tac_toe()
    count = 4000
    state = jax.jit(game.env.step)(jax.jit(game.env.init)(jax.random.key(0)), 4)
    states = jax.tree.map(lambda x: np.repeat(np.asarray(x)[None], count, axis=0), state)
    own = players.variables(game, 'pgx')
    actions = jax.jit(players.known(game, 'pgx'))(own, jax.random.key(1), states)
    logits = jax.jit(game.model.apply)(own, states.observation)[0][0]
    expected = jax.nn.softmax(jnp.where(state.legal_action_mask, logits, -jnp.inf))
    found = np.bincount(actions, minlength=9) / count
    np.testing.assert_allclose(found, expected, atol=4 * 0.5 / np.sqrt(count))
    self.assertEqual(found[4], 0.0)
    self.assertGreater(np.ptp(found), 0.1)

  def test_games_against_it_are_counted(self):
    config, game = self.tic_tac_toe()
    config.network.hidden = (4,)
    config.num_seeds = 1
    method = evaluate.methods.make(config, 'klent', game)
    variables = jax.jit(jax.vmap(method.init))(jax.random.split(jax.random.key(0), 1)).variables
    scores = evaluate.Examiner(config, game, 'klent')(variables, 0)
    self.assertEqual(sum(scores[f'{kind}_pgx'] for kind in evaluate.RESULTS).tolist(), [4.0])


if __name__ == '__main__':
  from absl.testing import absltest

  absltest.main()
