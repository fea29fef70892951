"""What is benchmarked: each case builds a function and its arguments from the config."""

import functools
from collections.abc import Callable

import chex
import jax
import jax.numpy as jnp
import ml_collections
import numpy as np

from experiments.bench import diffusion, games, hodge
from experiments.bench.case import Case, training
from experiments.pql import methods
from experiments.pql.methods import agent
from lib.io import fields, models
from lib.lm import generate, sampling
from lib.nn import mlp
from lib.stats import hypotheses
from lib.train import devices
from lib.voting import allocation, paths, policies, sources


def mlp_gradient(config: ml_collections.ConfigDict) -> Case:
  """Loss and gradient of a regression by a multilayer perceptron.

  Args:
    config: its `mlp` has `batch_size`, `inputs`, `hidden` (a tuple of widths) and `outputs`.

  Returns:
    A function of (params, x, y).
  """
  sizes = config.mlp
  network = mlp.MLP(hidden=sizes.hidden, features=sizes.outputs)
  key_params, key_x, key_y = jax.random.split(jax.random.key(0), 3)
  x = jax.random.normal(key_x, (sizes.batch_size, sizes.inputs))
  y = jax.random.normal(key_y, (sizes.batch_size, sizes.outputs))

  def loss(params: chex.ArrayTree, x: chex.Array, y: chex.Array) -> chex.Array:
    return ((network.apply(params, x) - y) ** 2).mean()

  return Case(jax.value_and_grad(loss), (jax.jit(network.init)(key_params, x), x, y))


def offline_updates(method_name: str, sizes: ml_collections.ConfigDict) -> Case:
  """The inner loop of training by a method of PQL's experiment, on random transitions.

  Args:
    method_name: of `experiments.pql.methods`.
    sizes: `num_seeds`, `updates` (in one call), `batch_size`, `rows` (of the data),
      `observation_dim`, `action_dim`, and the method's `agent`.

  Returns:
    As `case.training`.
  """
  spec = agent.Spec(sizes.observation_dim, sizes.action_dim)
  method = methods.METHODS[method_name](sizes.agent, spec)
  return training(method, _transitions(sizes.rows, spec), sizes)


def language_model(kind: str, config: ml_collections.ConfigDict) -> Case:
  """A language model's inference: 'prefill' of one long prompt, or 'decode' of some streams.

  Args:
    kind: 'prefill', or 'decode_N' for N streams.
    config: its `lm` has `model`, `dtype`, `int8`, the `prompt` and `context` lengths, and the
      `tokens` that one call decodes.

  Returns:
    A function of (params, inputs), greedy.
  """
  sizes = config.lm
  model = _model(sizes.model, sizes.dtype, sizes.int8)
  arch, params = model.arch, model.params
  memory = sum(x.nbytes for x in jax.tree.leaves(params))
  layer_size = sum(x.size for x in jax.tree.leaves(params['layers']))
  head_size = arch.vocabulary * arch.width
  attended = arch.num_layers * arch.num_heads * arch.head_dim  # multiplied twice for each place
  if kind == 'prefill':
    length = sizes.prompt
    tokens = jnp.asarray(np.arange(length)[None] % arch.vocabulary, jnp.int32)
    fn = lambda params, tokens: (
      generate.prefill(arch, params, tokens, jnp.arange(length)[None], 0).logits
    )
    work = 2 * layer_size * length + 2 * head_size + 4 * attended * length * (length + 1) / 2
    return Case(fn, (params, tokens), length, 1, 'token', work, memory)
  streams, count = int(kind.removeprefix('decode_')), sizes.tokens
  tokens = jnp.ones((streams, sizes.context), jnp.int32)
  positions = jnp.broadcast_to(jnp.arange(sizes.context), tokens.shape)
  prefilled = jax.jit(generate.prefill, static_argnums=(0, 4))(
    arch, params, tokens, positions, count
  )
  state = generate.begin(prefilled, jax.random.split(jax.random.key(0), streams), 1, count)
  stop = jnp.zeros(0, jnp.int32)
  fn = lambda params, state: generate.decode(arch, params, state, sampling.GREEDY, stop, count)
  places = sizes.context + count / 2
  work = count * streams * (2 * (layer_size + head_size) + 4 * attended * places)
  kept = 2 * 4 * arch.num_layers * arch.num_kv_heads * arch.head_dim
  traffic = count * (memory + streams * kept * places)
  return Case(fn, (params, state), count * streams, 1, 'token', work, traffic)


def voting(config: ml_collections.ConfigDict) -> Case:
  """The default policy on drawn answers: paths of votes, scores, allocation, error at each budget.

  Args:
    config: its `voting` has the sizes.

  Returns:
    A function of answers (S, Q, T), seeds spread over the devices, to errors (S, budgets); its work
    is counted in samples handed out up to the largest budget.
  """
  sizes = config.voting
  right = jnp.arange(sizes.answers) == 0

  def one(answers: chex.Array) -> chex.Array:
    votes = paths.vote_paths(answers, sizes.answers)
    scores = policies.blend(votes, max_votes=sizes.samples)
    samples = allocation.run_index(
      scores, voting_budgets(config), init=2, batch=voting_batch(config)
    )
    errors = paths.error_paths(answers, jnp.broadcast_to(right, (sizes.questions, sizes.answers)))
    return jax.vmap(lambda n: paths.pick(errors, n).mean())(samples)

  p = jax.jit(sources.gap_questions, static_argnums=(1, 2))(
    jax.random.key(0), sizes.questions, sizes.answers
  )
  draw = jax.jit(jax.vmap(lambda key: sources.draw_answers(key, p, sizes.samples)))
  answers = draw(jax.random.split(jax.random.key(1), sizes.seeds))
  answers = devices.place(answers, devices.mesh(sizes.seeds), 'seed')
  work = float(sizes.seeds * max(voting_budgets(config)))
  return Case(jax.vmap(one), (answers,), 1, sizes.seeds, 'run', work)


def voting_budgets(config: ml_collections.ConfigDict) -> tuple[int, ...]:
  """The budgets of `voting`, from 4 samples a question on."""
  sizes = config.voting
  means = np.linspace(4, sizes.largest, sizes.budgets)
  return tuple(round(x * sizes.questions) for x in means)


def voting_batch(config: ml_collections.ConfigDict) -> int:
  """Questions that get a sample in one round of `voting`."""
  return max(1, int(config.voting.batch_fraction * config.voting.questions))


def sign_flip(clustered: bool, config: ml_collections.ConfigDict) -> Case:
  """A permutation test of paired differences.

  Args:
    clustered: whether the pairs of an item are one cluster; else each pair is its own.
    config: its `sign_flip` has the number of `pairs`, of `pairs_per_item` and of `draws`.

  Returns:
    A function of (key, differences); its work is counted in signs.
  """
  sizes = config.sign_flip
  d = jnp.asarray(np.random.default_rng(0).standard_normal(sizes.pairs) + 0.01, jnp.float32)
  clusters = jnp.arange(sizes.pairs) // (sizes.pairs_per_item if clustered else 1)
  num_clusters = int(clusters[-1]) + 1
  fn = lambda key, d: hypotheses.sign_flip_test(key, d, clusters, num_clusters, sizes.draws)
  work = float(num_clusters * sizes.draws)
  return Case(fn, (jax.random.key(0), d), sizes.draws, 1, 'draw', work)


@functools.cache
def _model(source: str, dtype: str, int8: bool) -> models.Model:
  return models.load(source, jnp.dtype(dtype), stacked=False, int8=int8)


def _transitions(rows: int, spec: agent.Spec) -> agent.Batch:
  rng = np.random.default_rng(0)
  masks = rng.random(rows) < 0.99
  columns = {
    'observations': rng.standard_normal((rows, spec.observation_dim)),
    'next_observations': rng.standard_normal((rows, spec.observation_dim)),
    'actions': rng.uniform(-1.0, 1.0, (rows, spec.action_dim)),
    'rewards': -1.0 * masks,
    'masks': masks,
    'next_actions': rng.uniform(-1.0, 1.0, (rows, spec.action_dim)),
    'next_action_masks': masks,
  }
  return {name: jnp.asarray(column, jnp.float32) for name, column in columns.items()}


def _default_updates(method_name: str, config: ml_collections.ConfigDict) -> Case:
  return offline_updates(method_name, config.offline)


CASES: dict[str, Callable[[ml_collections.ConfigDict], Case]] = {
  'mlp_gradient': mlp_gradient,
  'voting': voting,
  'sign_flip': functools.partial(sign_flip, False),
  'sign_flip_clustered': functools.partial(sign_flip, True),
  **{
    f'lm_{kind}': functools.partial(language_model, kind)
    for kind in ('prefill', 'decode_1', 'decode_32')
  },
  **diffusion.CASES,
  **games.CASES,
  **hodge.CASES,
  **{f'{name}_update': functools.partial(_default_updates, name) for name in methods.METHODS},
}


def sizes_of(config: ml_collections.ConfigDict, name: str) -> ml_collections.ConfigDict:
  """The sizes of one of `config.updates`: those of `config.offline` with its changes."""
  return fields.vary(config.offline, config.updates[name])


def known(config: ml_collections.ConfigDict) -> list[str]:
  """What `config.cases` may hold: CASES, `config.updates`, `config.plays`, `hodge.scaled`."""
  return [*CASES, *config.updates, *config.plays, *hodge.scaled(config)]


def build(config: ml_collections.ConfigDict, name: str) -> Case:
  """Builds one of `config.cases`, which are `known`."""
  if name in config.plays:
    return games.build(config.plays[name].part, games.sizes_of(config, name))
  if name in config.updates:
    return offline_updates(config.updates[name].method, sizes_of(config, name))
  if name in (scaled := hodge.scaled(config)):
    return hodge.apply('laplacian1', scaled[name])
  return CASES[name](config)
