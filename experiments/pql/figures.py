"""Pictures of trained policies: their fields, their samples, and the policies at work."""

import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib import figure

from experiments.pql import evaluate, methods, online
from experiments.pql.data import Data
from experiments.pql.methods import agent
from lib.envs import evaluate as rollout
from lib.envs import ogbench, render, seeding
from lib.stats import intervals
from lib.train import app, checkpoint, console
from lib.train import figures as plots

NUM_SAMPLES = 500
SENSITIVE = ('success', 'reward', 'flow_loss', 'distillation_error', 'jacobian_sq')
NUM_EPISODES = 8
NEAR = 0.2  # distance of states whose actions are drawn over the field at one state
FIELD_TIMES = (0.2, 0.5, 0.8)
FILM_SIZE = {'width': 320, 'height': 240}
FILM_EVERY = 3  # steps a frame

Trained = dict[str, tuple[agent.Method, agent.Params]]  # parameters with a leading axis of seeds


def draw(run: app.Run, dataset: Data, trained: Trained) -> dict[str, str]:
  """Draws what suits the source of the data into WORKDIR/figures.

  Returns:
    A caption for each file.
  """
  held_out = evaluate.held_out(dataset, NUM_SAMPLES)
  flows = {name: (method, params) for name, (method, params) in trained.items() if method.flow}
  pictures: dict[str, tuple[figure.Figure, str]] = {}
  if flows:
    pictures['jacobian.png'] = (
      jacobian_along_path(flows, held_out),
      'The Jacobian of the flow along the path from noise (0) to held-out actions (1); bands span '
      'the seeds.',
    )
  if flows and run.config.data.source == 'synthetic':
    pictures['samples.png'] = (
      bandit_samples(flows, held_out, run.config.agent.flow_steps),
      'Held-out actions (grey), the flow (top) and the policy distilled from it (bottom); seed 0.',
    )
    pictures['field.png'] = (
      bandit_fields(flows, held_out),
      'The direction of the velocity field u(s, a, t) at one state, coloured by speed from low '
      '(blue) to high (yellow); held-out actions in grey; seed 0.',
    )
  captions = {}
  for name, (drawing, caption) in pictures.items():
    plots.save(drawing, run.workdir / 'figures' / name)
    captions[name] = caption
  if run.config.data.source in ('generate', 'npz') and run.config.eval_episodes:
    captions |= policies_at_work(run, trained)
  return captions


def restore(run: app.Run, spec: agent.Spec) -> Trained:
  """Reads the trained parameters of every method; all hosts must call it together."""
  trained = {}
  for name in run.config.methods:
    method = methods.make(run.config, name, spec)
    trained[name] = method, checkpoint.restore(run.workdir / name)[1]['params']
    if run.config.online.steps:
      tuned = checkpoint.restore(run.workdir / online.phase(name))[1]['agent']
      trained[online.phase(name)] = method, tuned['params']
  return trained


def jacobian_along_path(trained: Trained, batch: agent.Batch) -> figure.Figure:
  """Draws the mean ‖J‖_F² and the largest ‖J‖₂ over the path's points, by time and method."""
  drawing = figure.Figure(figsize=(9, 3.5), layout='constrained')
  axes = drawing.subplots(1, 2)
  for number, (name, (method, params)) in enumerate(trained.items()):
    along_path = lambda p, m=method: evaluate.norms_along_path(m, p, batch)
    times, curves = jax.jit(functools.partial(jax.lax.map, along_path))(params)
    for axis, metric in zip(axes, ('jacobian_sq', 'spectral_norm_max'), strict=True):
      values = curves[metric]
      color, style = f'C{number % 10}', '-' if number < len(trained) / 2 else '--'
      axis.plot(times[0], values.mean(axis=0), style, color=color, label=name)
      axis.fill_between(times[0], values.min(axis=0), values.max(axis=0), color=color, alpha=0.15)
  for axis, title in zip(axes, ('mean $\\|J\\|_F^2$', 'largest $\\|J\\|_2$'), strict=True):
    axis.set(title=title, xlabel='time $t$', yscale='log')
  _legend_below(drawing)
  return drawing


def sensitivity(
  values: Mapping[str, Mapping[str, np.ndarray]], cells: Mapping[str, tuple[str, float]]
) -> figure.Figure:
  """Draws final scores over λ, a line for each law of the times, with 95 % intervals over seeds.

  Args:
    values: by method and metric, one number a seed (S,).
    cells: the law and λ of each method.
  """
  metrics = [m for m in SENSITIVE if all(m in values[name] for name in cells)]
  weights = sorted({weight for _, weight in cells.values()})
  drawing = figure.Figure(figsize=(3 * len(metrics), 3), layout='constrained')
  for axis, metric in zip(
    drawing.subplots(1, len(metrics), squeeze=False)[0], metrics, strict=True
  ):
    for number, law in enumerate(dict.fromkeys(law for law, _ in cells.values())):
      own = sorted((weight, name) for name, (other, weight) in cells.items() if other == law)
      estimates = [intervals.mean_interval(values[name][metric]) for _, name in own]
      means = np.array([estimate.mean for estimate in estimates])
      errors = np.array([[e.mean - e.low, e.high - e.mean] for e in estimates]).T
      place = [weights.index(weight) + 0.06 * number for weight, _ in own]
      axis.errorbar(place, means, errors, marker='o', capsize=3, label=law, color=f'C{number}')
    axis.set(title=metric.replace('_', ' '), xlabel='$\\lambda$', xticks=range(len(weights)))
    axis.set_xticklabels([f'{weight:g}' for weight in weights])
  _legend_below(drawing)
  return drawing


def bandit_samples(trained: Trained, batch: agent.Batch, num_steps: int) -> figure.Figure:
  """Draws actions of the flow and of the one-step policy over held-out actions, for seed 0."""
  observations = batch['observations']
  noise = jax.random.normal(jax.random.key(0), (len(observations), 2))
  drawing, axes = _grid(2, trained)
  for column, (method, params) in zip(axes.T, _first_seed(trained), strict=True):
    samples = evaluate.flow_samples(method, params, observations, noise, num_steps)
    kinds = {f'flow, {num_steps} steps': samples}
    if method.one_step is not None:
      kinds['one step'] = method.one_step(params, observations, noise)
    for axis, (kind, actions) in zip(column, kinds.items(), strict=False):
      axis.scatter(*batch['actions'].T, s=4, color='0.8')
      axis.scatter(*np.asarray(actions).T, s=4, color='C0')
      axis.text(0.03, 0.03, kind, transform=axis.transAxes, fontsize=8)
  return drawing


def bandit_fields(trained: Trained, batch: agent.Batch) -> figure.Figure:
  """Draws the velocity field at a few times over the plane of actions, for seed 0."""
  line = np.linspace(-1.5, 1.5, 17)
  points = jnp.asarray(np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2), jnp.float32)
  state = batch['observations'][:1]
  near = np.linalg.norm(batch['observations'] - state, axis=1) < NEAR
  nearby = np.asarray(batch['actions'])[near]
  drawing, axes = _grid(len(FIELD_TIMES), trained)
  for column, (method, params) in zip(axes.T, _first_seed(trained), strict=True):
    for axis, time in zip(column, FIELD_TIMES, strict=True):
      states = jnp.broadcast_to(state, (len(points), state.shape[1]))
      u = np.asarray(method.flow(params, states, points, jnp.full((len(points), 1), time)))
      speed = np.linalg.norm(u, axis=1)
      axis.scatter(*nearby.T, s=1, color='0.85')
      axis.quiver(*points.T, *(u / speed[:, None]).T, speed, cmap='viridis', pivot='mid', scale=22)
      axis.text(0.03, 0.03, f'$t = {time}$', transform=axis.transAxes, fontsize=8)
  return drawing


def policies_at_work(run: app.Run, trained: Trained) -> dict[str, str]:
  """Plots the trajectories of a few episodes a method; films one where OpenGL can draw."""
  config, name = run.config, run.config.data.env
  make_env = functools.partial(ogbench.make_env, name)
  count = min(NUM_EPISODES, config.eval_episodes)
  with rollout.EnvPool(make_env, min(count, config.eval_envs), config.data.workers) as pool:
    played = {
      label: rollout.run_episodes(
        pool,
        evaluate.rollout_policy(
          method, params, config.seed, config.num_seeds, config.eval_episodes
        ),
        count,
        config.seed,
        record=True,
      )
      for label, (method, params) in trained.items()
    }
  path = run.workdir / 'figures' / 'trajectories.png'
  plots.save(trajectories(name, played), path)
  captions = {
    path.name: f'{count} episodes from above, in metres: solved in blue, others in grey, from the '
    'dots on; the star is the goal.'
  }
  label = list(played)[-1]
  solved = np.flatnonzero(played[label].success)
  episode = int(solved[0]) if solved.size else 0
  try:
    frames = render.film(
      functools.partial(ogbench.make_env, name, **FILM_SIZE),
      seeding.seed_sequence(config.seed, episode),
      played[label].actions[episode],
      FILM_EVERY,
    )
  except render.NoOpenGLError as error:
    console.say(f'No film: {error}')
    return captions
  render.save_gif(run.workdir / 'figures' / 'film.gif', frames, fps=15)
  outcome = 'solved' if solved.size else 'not solved'
  return captions | {'film.gif': f'{label}, episode {episode}, {outcome}.'}


def trajectories(name: str, played: dict[str, rollout.Episodes]) -> figure.Figure:
  """Draws where things go in the plane, a row for each thing and a column for each method."""
  goals = ogbench.goals(name)
  things = list(ogbench.positions(name, next(iter(played.values())).observations[0]))
  drawing = figure.Figure(figsize=(3.2 * len(played), 3.2 * len(things)), layout='constrained')
  axes = drawing.subplots(len(things), len(played), squeeze=False, sharex='row', sharey='row')
  for row, thing in zip(axes, things, strict=True):
    paths = {
      label: [ogbench.positions(name, o)[thing][:, :2] for o in episodes.observations]
      for label, episodes in played.items()
    }
    goal = goals[thing][None, :2] if thing in goals else np.zeros((0, 2))
    everything = np.concatenate([goal, *(path for several in paths.values() for path in several)])
    low, high = everything.min(axis=0), everything.max(axis=0)
    centre, half = (low + high) / 2, 0.55 * (high - low).max()
    for axis, (label, episodes) in zip(row, played.items(), strict=True):
      for success, path in zip(episodes.success, paths[label], strict=True):
        axis.plot(*path.T, color='C0' if success else '0.6', linewidth=1)
        axis.plot(*path[0], 'o', color='0.3', markersize=3)
      axis.plot(*goal.T, '*', color='C3', markersize=12)
      axis.set(title=f'{label}: {thing}', aspect='equal')
      axis.set(xlim=centre[0] + half * np.array([-1, 1]), ylim=centre[1] + half * np.array([-1, 1]))
  return drawing


def _first_seed(trained: Trained) -> list[tuple[agent.Method, agent.Params]]:
  return [(method, jax.tree.map(lambda x: x[0], params)) for method, params in trained.values()]


def _grid(rows: int, trained: Trained) -> tuple[figure.Figure, Any]:
  columns = len(trained)
  drawing = figure.Figure(figsize=(2 * columns, 2 * rows), layout='constrained')
  axes = drawing.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
  for axis in axes.flat:
    axis.set(xlim=(-1.6, 1.6), ylim=(-1.6, 1.6), aspect='equal', xticks=[], yticks=[])
  for axis, name in zip(axes[0], trained, strict=True):
    axis.set_title(name, fontsize=9)
  return drawing, axes


def _legend_below(drawing: figure.Figure) -> None:
  handles, labels = drawing.axes[0].get_legend_handles_labels()
  columns = min(len(labels), 4)
  drawing.legend(handles, labels, loc='outside lower center', ncols=columns, frameon=False)
