"""The theorems on matrix games and on games that end, against what the updates do."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
from matplotlib import figure

from experiments.klent import theory_charts as charts
from experiments.klent import theory_measures as measures
from lib.games import normal_form, trees
from lib.games.normal_form import Profile
from lib.io import fields
from lib.stats import claims, intervals, tables
from lib.train import app, console, figures, report, signals

POSITIVE = (
  'cpu_devices', 'converged', 'rate_steps', 'map.cells', 'map.largest', 'map.steps', 'paths.steps',
  'rates.steps', 'learning.steps', 'learning.actions', 'learning.klent.alpha',
  'learning.klent.beta', 'learning.falling.alpha', 'learning.falling.beta',
  'learning.magnet.alpha', 'learning.magnet.beta', 'learning.step_size', 'temperatures.games',
  'trees.depth', 'trees.branching', 'trees.games', 'trees.steps',
)  # fmt: skip
UNIT_INTERVAL = ('margin', 'learning.falling.power', 'learning.magnet.share')
PENNIES, BIASED = 'matching pennies', 'biased rock paper scissors'
_MEASURED = 1e-3  # largest relative error of a rate that a last step shows
_SEEN = 1e-6  # errors in trees below this are left out of ratios, for their rounding


class Part(NamedTuple):
  """What a part of the study leaves.

  Attributes:
    text: what was done.
    rows: of results.json; those with `passed` are claims.
    figures: pictures with their captions, by the file's name.
  """

  text: str
  rows: list[tables.Row]
  figures: dict[str, tuple[figure.Figure, str]]


def check(config: ml_collections.ConfigDict) -> None:
  """Raises a ValueError in one line that names the first bad field and its value."""
  flat = fields.flatten(config)
  fields.check_ranges(flat, POSITIVE, ('seed',), UNIT_INTERVAL, ('start',))
  fields.require('trees.branching', config.trees.branching, config.trees.branching > 1, 'above 1')
  for name, what in (('paths.points', 'above 0'), ('trees.points', '0 or more')):
    points = flat[name]
    right = len(points) > 0 and all(
      _numbers(point, 2) and point[0] > 0 and (point[1] > 0 or what != 'above 0')
      for point in points
    )
    fields.require(name, points, right, f'pairs (α, β), α above 0 and β {what}')
  games = config.rates.games
  right = len(games) > 0 and all(
    _numbers(game, 3) and all(isinstance(n, int) and n > 0 for n in game) for game in games
  )
  fields.require('rates.games', games, right, 'triples (rows, columns, how many), above 0')
  for name in ('rates.alphas', 'rates.betas'):
    ends = flat[name]
    right = _numbers(ends, 2) and 0 < ends[0] <= ends[1]
    fields.require(name, ends, right, 'two ascending numbers above 0')
  alphas = config.temperatures.alphas
  right = len(alphas) > 0 and _numbers(alphas, len(alphas)) and min(alphas) > 0
  fields.require('temperatures.alphas', alphas, right, 'numbers above 0')


def study(run: app.Run) -> None:
  """Measures all, and writes results.json, report.md and the figures."""
  if jax.process_index() > 0:
    return
  rows: list[tables.Row] = []
  sections = []
  for title, part in PARTS.items():
    console.say(f'{title} ...')
    with jax.enable_x64(True):
      found = part(run.config)
    rows += found.rows
    omit = ('passed', 'least', 'most', 'part')
    sections += [f'## {title}', found.text, tables.table(found.rows, omit)]
    for file, (drawing, caption) in found.figures.items():
      figures.save(drawing, run.workdir / 'figures' / file)
      sections.append(f'{caption}\n\n![](figures/{file})')
    signals.check()
  report.write_results(run, rows)
  intro = (
    'All is measured in float64. A claim is a fact of mathematics, or what a theorem predicts.'
  )
  report.write_report(run, 'Where KLENT converges', [intro, *_claims(rows), *sections])


def maps(config: ml_collections.ConfigDict) -> Part:
  """Which (α, β) lead from one start to the equilibrium, against both conditions."""
  n = config.map.cells
  grid = (np.arange(n) + 0.5) * (config.map.largest / n)
  alphas, betas = (jnp.asarray(x.ravel()) for x in np.meshgrid(grid, grid, indexing='ij'))
  rows: list[tables.Row] = []
  panels = []
  for name in (PENNIES, BIASED):
    payoff = jnp.array(measures.GAMES[name])
    every = lambda x: jnp.broadcast_to(x, (n * n, *x.shape))
    found = measures.equilibria(jnp.broadcast_to(payoff, (n, *payoff.shape)), jnp.asarray(grid))
    judged = measures.judge(
      every(payoff), alphas, betas, jax.tree.map(every, _start(config, payoff)),
      jax.tree.map(lambda z: jnp.repeat(z, n, axis=0), found), config.map.steps, config.rate_steps,
    )  # fmt: skip
    judged = jax.tree.map(np.asarray, judged)
    strategies = normal_form.softmax(found)
    coupling = jax.jit(jax.vmap(normal_form.coupling, (None, 0)))(payoff, strategies)
    distance = judged.distance.reshape(n, n)
    norm = float(np.linalg.norm(payoff, 2))
    panels.append(charts.Map(name, grid, distance, coupling, norm, config.map.largest))
    rows += _verdicts(config, judged, name, 'map', all_starts=name == PENNIES)
  text = (
    f'{n * n} pairs of α and β a game, {config.map.steps} steps from the strategy '
    f'({config.start:g}, rest alike) against a uniform one. A pair converges where the last '
    f'probabilities are within {config.converged:g} of the equilibrium; where the rate, measured '
    f'close to the equilibrium, is within {config.margin:g} of 1, the rate decides. The theorem is '
    'sufficient, and exact in matching pennies. Beyond it a locally stable equilibrium may stand '
    'beside a stable cycle, where the start may lead: `stable that circle` counts these. '
    + ' '.join(_counts(rows, name) for name in (PENNIES, BIASED))
  )
  caption = (
    'Distance of the last strategies to the logit equilibrium. Theorem: α(α + 2β) = ‖R‖²/4; '
    'mirror descent: αβ = ‖R‖²/4; exact: α(α + 2β) = σ².'
  )
  return Part(text, rows, {'maps.png': (charts.maps(panels), caption)})


def paths(config: ml_collections.ConfigDict) -> Part:
  """Strategies of matching pennies over the steps, at single (α, β)."""
  payoff = jnp.array(measures.GAMES[PENNIES])
  start = _start(config, payoff)

  @jax.jit
  def play(alpha, beta):
    rule = normal_form.regularized_dynamics(alpha, beta)
    firsts = lambda strategies: jnp.stack([p[0] for p in strategies])
    return normal_form.run(rule, payoff, start, config.paths.steps, firsts).curve

  rows, shown = [], {}
  for alpha, beta in config.paths.points:
    label = f'α = {alpha:g}, β = {beta:g}'
    curve = play(float(alpha), float(beta))
    first = [jax.nn.softmax(z)[0] for z in start]
    shown[label] = np.concatenate([np.array([first]), np.asarray(curve)])
    centre = normal_form.softmax(jax.tree.map(jnp.zeros_like, start))
    rate = float(normal_form.local_rate(payoff, centre, alpha, beta))
    distance = float(np.abs(shown[label][-1] - 0.5).max())
    right = (distance < config.converged) == (rate < 1)
    keys: dict[str, Any] = {'part': 'paths'}
    rows.append(_row(label, 'exact_rate', rate, **keys))
    rows.append(_row(label, 'last_distance', distance, **keys))
    rows.append(_row(label, 'ends_as_predicted', float(right), least=1.0, **keys))
  text = (
    f'Matching pennies, {config.paths.steps} steps. The last strategies are within '
    f'{config.converged:g} of the equilibrium where the exact rate is below 1, and not elsewhere.'
  )
  caption = 'Probabilities of first actions; later steps are darker, early ones joined by a line.'
  return Part(text, rows, {'paths.png': (charts.paths(shown), caption)})


def rates(config: ml_collections.ConfigDict) -> Part:
  """Measured local rates of random games against the exact ones."""
  setting, rows, shown = config.rates, [], {}
  rng = np.random.default_rng(config.seed)
  for height, width, count in setting.games:
    payoffs = jnp.asarray(rng.normal(size=(count, height, width)))
    starts = Profile(*(jnp.asarray(rng.normal(size=(count, k))) for k in (height, width)))
    scales = jnp.linalg.norm(payoffs, 2, axis=(1, 2)) / 2
    alphas, betas = (
      scales * np.exp(rng.uniform(np.log(ends[0]), np.log(ends[1]), size=count))
      for ends in (setting.alphas, setting.betas)
    )
    judged = measures.judge(
      payoffs, alphas, betas, starts, measures.equilibria(payoffs, alphas), setting.steps,
      config.rate_steps,
    )  # fmt: skip
    judged = jax.tree.map(np.asarray, judged)
    found = np.isfinite(judged.rate)
    name = f'{height} × {width}'
    judged = jax.tree.map(lambda x, found=found: x[found], judged)
    rows.append(_row(name, 'equilibria_found', found.sum(), n=count, part='rates', least=count))
    deviation = np.abs(judged.rate / judged.exact - 1).max(initial=0.0)
    rows.append(_row(name, 'largest_deviation', deviation, n=count, part='rates', most=_MEASURED))
    rows += _verdicts(config, judged, name, 'rates')
    shown[name] = judged
  text = (
    'Normal payoffs; α and β are log-uniform, in units of ‖R‖₂/2. Rates are measured close to the '
    'equilibrium, its error scaled back at each step, and compared with √(β² + σ²)/(α + β), σ from '
    'the equilibrium; whether a game converges is seen from a normal start far from it, after '
    f'{setting.steps} steps.'
  )
  caption = (
    'Measured against exact rates, filled where the theorem promises convergence, and their '
    'relative difference.'
  )
  return Part(text, rows, {'rates.png': (charts.rates(shown), caption)})


def learning(config: ml_collections.ConfigDict) -> Part:
  """Exploitability of last and average strategies under the update and under other rules."""
  setting = config.learning
  klent, falling, magnet = setting.klent, setting.falling, setting.magnet
  rules = {
    'KLENT': normal_form.regularized_dynamics(klent.alpha, klent.beta),
    'KLENT, α falls': measures.falling(falling.alpha, falling.beta, falling.power),
    'moving magnet': measures.moving_magnet(magnet.alpha, magnet.beta, magnet.share),
    'multiplicative weights': normal_form.multiplicative_weights(setting.step_size),
    'optimistic weights': normal_form.optimistic_multiplicative_weights(setting.step_size),
    'regret matching+': normal_form.regret_matching_plus(),
  }

  @jax.jit
  def play(payoff, start):
    measure = lambda strategies: normal_form.exploitability(payoff, strategies)
    # Regret matching+ is made for averages that weigh late steps more.
    power = lambda name: 1.0 if name == 'regret matching+' else 0.0
    return {
      name: normal_form.run(rule, payoff, start, setting.steps, measure, power(name))[2:]
      for name, rule in rules.items()
    }

  rng = np.random.default_rng(config.seed)
  size = (setting.actions, setting.actions)
  games = {name: np.array(payoff) for name, payoff in measures.GAMES.items()}
  games[f'normal {size[0]} × {size[1]}'] = rng.normal(size=size)
  rows, shown = [], {}
  for name, payoff in games.items():
    start = Profile(*(jnp.asarray(rng.normal(size=k)) for k in payoff.shape))
    curves = jax.tree.map(np.asarray, play(jnp.asarray(payoff), start))
    shown[name] = curves
    for rule, (last, average) in curves.items():
      keys: dict[str, Any] = {'part': 'learning', 'game': name, 'better': 'lower'}
      rows.append(_row(rule, 'last_exploitability', last[-1], **keys))
      rows.append(_row(rule, 'average_exploitability', average[-1], **keys))
    bound = klent.alpha * np.log(payoff.shape).sum()
    share = curves['KLENT'][0][-1] / bound
    rows.append(_row('KLENT', 'last_over_bound', share, most=1.0, part='learning', game=name))
  text = (
    f'The gap max R y - min Rᵀ x after {setting.steps} steps from normal logits. KLENT has α = '
    f'{klent.alpha:g} and β = {klent.beta:g}, so that it ends at a logit equilibrium, at most '
    f'α (log m + log n) exploitable. Falling: α = {falling.alpha:g} t^-{falling.power:g} and β = '
    f'{falling.beta:g} t^{falling.power:g}. The moving magnet, with α = {magnet.alpha:g} and β = '
    f'{magnet.beta:g}, goes {magnet.share:g} of the way to the logits at each step. The weights '
    f'have step size {setting.step_size:g}; the average of regret matching+ weighs step t by t.'
  )
  caption = 'Exploitability over the steps; above of the last strategies, below of the averages.'
  return Part(text, rows, {'learning.png': (charts.learning(shown), caption)})


def temperatures(config: ml_collections.ConfigDict) -> Part:
  """Exploitability of the logit equilibrium as α falls, against its bound."""
  alphas, size = np.array(config.temperatures.alphas), config.learning.actions
  count = config.temperatures.games
  games = {name: np.array([payoff]) for name, payoff in measures.GAMES.items()}
  drawn = np.random.default_rng(config.seed).normal(size=(count, size, size))
  games[f'normal {size} × {size}'] = drawn
  exploitability = jax.jit(jax.vmap(normal_form.exploitability))
  rows, shown = [], {}
  for name, payoffs in games.items():
    each = jnp.repeat(jnp.asarray(payoffs), len(alphas), axis=0)
    logits = measures.equilibria(each, jnp.tile(alphas, len(payoffs)))
    found = np.asarray(exploitability(each, normal_form.softmax(logits)))
    found = found.reshape(len(payoffs), len(alphas))
    bound = alphas * np.log(payoffs.shape[1:]).sum()
    shown[name] = alphas, found, bound
    keys: dict[str, Any] = {'n': found.size, 'part': 'temperatures'}
    rows.append(_row(name, 'equilibria_found', np.isfinite(found).sum(), least=found.size, **keys))
    rows.append(_row(name, 'largest_over_bound', np.nanmax(found / bound), most=1.0, **keys))
  text = (
    f'Equilibria at α of {", ".join(f"{float(a):g}" for a in alphas)}; {count} normal '
    'games. Uniform play is the equilibrium of the first two games at every α, and not exploitable.'
  )
  caption = 'Mean over games, and a band from the least to the largest; dashed: the bound of each.'
  return Part(text, rows, {'temperatures.png': (charts.temperatures(shown), caption)})


def game_trees(config: ml_collections.ConfigDict) -> Part:
  """Errors of the policies of random trees, layer by layer."""
  setting, rows, shown = config.trees, [], {}
  depth, steps = setting.depth, setting.steps
  games = [
    trees.random_tree(config.seed + i, depth, setting.branching) for i in range(setting.games)
  ]
  stacked = jax.tree.map(lambda *xs: jnp.asarray(np.stack(xs)), *games)
  stacked = stacked._replace(reward=stacked.reward.astype(jnp.float64))
  measure = jax.jit(
    lambda alpha, beta: jax.vmap(
      lambda game: measures.tree_errors(game, alpha, beta, depth, steps)
    )(stacked)
  )
  for alpha, beta in setting.points:
    name, shrink = f'α = {alpha:g}, β = {beta:g}', beta / (alpha + beta)
    errors = np.asarray(measure(float(alpha), float(beta)))  # (G, T + 1, H)
    shown[name] = errors, shrink
    keys: dict[str, Any] = {'n': setting.games, 'part': 'trees'}
    if beta == 0:
      late = max(errors[:, h:, h - 1].max() for h in range(1, depth + 1))
      rows.append(_row(name, 'largest_error_from_step_h', late, most=1e-9, **keys))
      continue
    rows.append(_row(name, 'rate_predicted', shrink, **keys))
    leaves = errors[..., 0]
    clear = leaves[:, 1:] > _SEEN
    off = np.abs(leaves[:, 1:] / leaves[:, :-1] / shrink - 1)[clear].max(initial=0.0)
    rows.append(_row(name, 'leaf_rate_deviation', off, most=1e-6, **keys))
    for h in range(1, depth + 1):
      fitted = [_fitted_rate(error[:, h - 1]) for error in errors]
      if np.isfinite(fitted).all():
        estimate = intervals.mean_interval(fitted)
        rows.append(
          tables.row(name, f'rate_of_height_{h}', estimate, n=len(fitted), seeds=len(fitted),
                     part='trees')
        )  # fmt: skip
  text = (
    f'{setting.games} trees of depth {depth} and {setting.branching} moves a state, from uniform '
    'policies. Theory: errors of height h fall as k^(h-1) c^k, c = β/(α + β); '
    'with β = 0 they are '
    'rounding from step h on. Rates are those of a fit of log error = log c · k + p log k + const, '
    'with 95 % intervals over the trees.'
  )
  caption = 'Mean over trees of the largest error of each height; dashed: c^k.'
  return Part(text, rows, {'trees.png': (charts.trees(shown), caption)})


PARTS = {
  'Convergence over α and β': maps,
  'Single runs': paths,
  'Local rates of random games': rates,
  'Exploitability while playing': learning,
  'Exploitability of logit equilibria': temperatures,
  'Games that end': game_trees,
}


def _verdicts(
  config: Any, judged: measures.Judged, name: str, part: str, all_starts: bool = False
) -> list[tables.Row]:
  """Rows of a map's cells or of random games; `all_starts` if the prediction is for far starts."""
  stable = judged.exact < 1
  near = np.abs(judged.rate - 1) < config.margin
  converges = np.where(near, judged.rate < 1, judged.distance < config.converged)
  keys: dict[str, Any] = {'n': stable.size, 'part': part}
  inside = converges[judged.inside]
  asked: dict[str, Any] = {'least': 1.0} if all_starts else {}
  rows = [
    _row(name, 'rates_below_1_as_predicted', ((judged.rate < 1) == stable).mean(), least=1.0,
         **keys),
    _row(name, 'last_as_predicted', (converges == stable).mean(), **keys, **asked),
    _row(name, 'judged_by_rate', near.sum(), **keys),
    _row(name, 'inside', inside.size, **keys),
    _row(name, 'outside_that_converge', converges[~judged.inside].sum(), **keys),
    _row(name, 'outside_mirror_descent_that_converge', converges[~judged.inside_mirror].sum(),
         **keys),
    _row(name, 'stable_that_circle', (stable & ~converges).sum(), **keys),
  ]  # fmt: skip
  if inside.size:
    rows.append(_row(name, 'inside_that_converge', inside.mean(), least=1.0, **keys))
  return rows


def _counts(rows: Sequence[tables.Row], name: str) -> str:
  """A map's counts as a sentence, for tables round them."""
  found = {row['metric']: row for row in rows if row['method'] == name}
  number = lambda metric: int(found[metric]['mean'])
  return (
    f'In {name} the theorem holds in {number("inside")} of {found["inside"]["n"]} pairs; '
    f'{number("outside_that_converge")} others converge, and '
    f'{number("outside_mirror_descent_that_converge")} beyond the condition of mirror descent.'
  )


def _row(method: str, metric: str, value: Any, n: int = 1, **keys: Any) -> tables.Row:
  """A row of one number without an interval; with `least` or `most` it tells if that holds."""
  if 'least' in keys or 'most' in keys:
    keys['passed'] = bool(keys.get('least', -np.inf) <= value <= keys.get('most', np.inf))
  estimate = intervals.Interval(float(value), np.nan, np.nan, 'none')
  return tables.row(method, metric, estimate, n=n, seeds=1, **keys)


def _claims(rows: Sequence[tables.Row]) -> list[str]:
  lines = []
  for row in rows:
    if 'passed' in row:
      what = f'at least {row["least"]:g}' if 'least' in row else f'at most {row["most"]:g}'
      method = f'{row["method"]} ({row["game"]})' if 'game' in row else row['method']
      shown = row | {'method': method, 'metric': row['metric'].replace('_', ' ')}
      lines.append(claims.verdict(shown, what))
  return ['## Claims', '\n'.join(lines)]


def _start(config: Any, payoff: Any) -> Profile:
  """Logits of the paper's start: the row player prefers its first action, the other none."""
  rows, columns = payoff.shape
  rest = jnp.full(rows - 1, (1 - config.start) / (rows - 1))
  return Profile(jnp.log(jnp.concatenate([jnp.array([config.start]), rest])), jnp.zeros(columns))


def _fitted_rate(errors: np.ndarray) -> float:
  """exp of the slope s of log error = s k + p log k + const while 1e-11 < error < 1e-2."""
  k = np.arange(len(errors))
  use = (errors > 1e-11) & (errors < 1e-2) & (k > 0)
  if use.sum() < 6:
    return np.nan
  design = np.stack([k[use], np.log(k[use]), np.ones(use.sum())], axis=1)
  return float(np.exp(np.linalg.lstsq(design, np.log(errors[use]))[0][0]))


def _numbers(values: Any, count: int) -> bool:
  """Whether these are so many finite numbers, none below 0."""
  right = isinstance(values, (tuple, list)) and len(values) == count
  return right and all(isinstance(x, (int, float)) and 0 <= x < np.inf for x in values)
