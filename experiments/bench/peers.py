"""Public implementations, run beside ours from a checkout of their own; none of it is copied."""

import functools
import importlib
import importlib.util
import pathlib
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import ml_collections
import numpy as np
from scipy import special, stats

from experiments.bench import cases, hodge, hodge_peers, yardsticks
from lib.io import models


def check(path: str) -> None:
  """Raises a ValueError unless there is a checkout of the public FQL at `path`."""
  if not (pathlib.Path(path) / 'agents' / 'fql.py').is_file():
    raise ValueError(f'config.peer: no checkout of seohongpark/fql at {path!r}.')


def check_installed(field: str, names: Sequence[str]) -> None:
  """Raises a ValueError unless the packages are installed that a field of the config needs."""
  for name in names:
    if importlib.util.find_spec(name) is None:
      raise ValueError(f'config.{field}: {name} is not installed.')


def fql(path: str, sizes: ml_collections.ConfigDict) -> yardsticks.Task:
  """One update of the authors' flow Q-learning as they run it, batch and dispatch included.

  Args:
    path: a checkout of https://github.com/seohongpark/fql.
    sizes: as `cases.offline_updates`; of `agent` its widths, Euler steps and α.

  Returns:
    A task whose work is that of our own update of these sizes.

  Raises:
    ValueError: if there is no such code at the path.
  """
  check(path)
  sys.path.insert(0, str(path))
  try:
    module = importlib.import_module('agents.fql')
  finally:
    sys.path.remove(str(path))
  config = module.get_config()
  widths = tuple(sizes.agent.hidden_dims)
  config.update({'actor_hidden_dims': widths, 'value_hidden_dims': widths})
  config.update({'flow_steps': sizes.agent.flow_steps, 'alpha': sizes.agent.alpha})
  ours = cases.offline_updates('fql', sizes)
  data = {name: np.asarray(column) for name, column in ours.args[2].items()}
  agent = module.FQLAgent.create(0, data['observations'][:1], data['actions'][:1], config)
  rng = np.random.default_rng(0)

  def call():
    nonlocal agent
    index = rng.integers(len(data['rewards']), size=sizes.batch_size)
    agent, info = agent.update(jax.tree.map(lambda column: column[index], data))
    return info

  return yardsticks.Task(call, yardsticks.flops(ours.fn, *ours.args) / sizes.updates)


def transformers_lm(kind: str, config: ml_collections.ConfigDict, ours: cases.Case):
  """The same inference by Hugging Face transformers on PyTorch, with the same weights.

  Args:
    kind: as `cases.language_model`.
    config: as there; the model is a GGUF file.
    ours: our case, whose work it has.

  Returns:
    A task.
  """
  import torch
  import transformers

  sizes = config.lm
  path = models.find(sizes.model)
  model = transformers.AutoModelForCausalLM.from_pretrained(
    path.parent, gguf_file=path.name, dtype=getattr(torch, sizes.dtype)
  ).eval()
  assert ours.work is not None
  if kind == 'prefill':
    tokens = torch.arange(sizes.prompt)[None] % model.config.vocab_size

    def call():
      with torch.inference_mode():
        model(tokens, logits_to_keep=1)
      return ()

    return yardsticks.Task(call, ours.work)
  streams = int(kind.removeprefix('decode_'))
  tokens = torch.ones((streams, sizes.context), dtype=torch.long)
  with torch.inference_mode():
    read = model(tokens, use_cache=True)

  def call():
    cache = read.past_key_values
    token = read.logits[:, -1].argmax(dim=-1, keepdim=True)
    with torch.inference_mode():
      for _ in range(sizes.tokens):
        out = model(token, past_key_values=cache, use_cache=True)
        token = out.logits[:, -1].argmax(dim=-1, keepdim=True)
    cache.crop(-sizes.tokens)
    return ()

  return yardsticks.Task(call, ours.work)


def torch_unet(config: ml_collections.ConfigDict, ours: cases.Case) -> yardsticks.Task:
  """One update of our U-Net by PyTorch, checked first to compute what ours computes.

  Args:
    config: as `cases.CASES['diffusion_unet']`.
    ours: our case.

  Returns:
    A task whose work is that of our own update.
  """
  from experiments.bench import torch_unet

  sizes = config.diffusion.unet
  torch_unet.check(sizes)
  work = yardsticks.flops(ours.fn, *ours.args) / ours.updates / ours.seeds
  update = torch_unet.trainer(sizes)
  return yardsticks.Task(lambda: float(update()), work)


def numpy_voting(config: ml_collections.ConfigDict, ours: cases.Case) -> yardsticks.Task:
  """The same policy on one seed's answers as a loop over rounds, in NumPy and SciPy.

  Args:
    config: as `cases.voting`.
    ours: our case, whose answers it takes.

  Returns:
    A task whose work is that of one seed.
  """
  answers = np.asarray(ours.args[0][0])
  budgets, batch = cases.voting_budgets(config), cases.voting_batch(config)
  runs = [(budget,) for budget in budgets] if config.voting.peer_apart else [budgets]
  assert ours.work is not None

  def call():
    found = [voting_loop(answers, config.voting.answers, run, 2, batch) for run in runs]
    return np.concatenate(found)

  return yardsticks.Task(call, ours.work / ours.seeds)


def voting_loop(
  answers: np.ndarray, num_answers: int, budgets: tuple[int, ...], init: int, batch: int
) -> np.ndarray:
  """Errors (budgets,) of `policies.blend` with rounds, where 0 is right; answers (Q, T)."""
  num_questions = len(answers)
  row = np.arange(num_questions)
  counts = np.zeros((num_questions, num_answers), np.int64)
  samples = np.zeros(num_questions, np.int64)

  def draw(chosen: np.ndarray) -> None:
    counts[chosen, answers[chosen, samples[chosen]]] += 1
    samples[chosen] += 1

  def error(extra: np.ndarray) -> float:
    final = counts.copy()
    final[extra, answers[extra, samples[extra]]] += 1
    leads = final == final.max(1, keepdims=True)
    return float((1 - leads[:, 0] / leads.sum(1)).mean())

  def score(asked: np.ndarray) -> np.ndarray:
    top = np.partition(counts[asked], num_answers - 2, axis=1)
    a, b, n = top[:, -1], top[:, -2], samples[asked]
    log_u = np.log(special.betainc(a + 1.0, b + 1.0, 0.5))
    log_r = special.gammaln(a + b + 2) - special.gammaln(a + 1) - special.gammaln(b + 1)
    log_r = log_r - (a + b) * np.log(2)
    found = log_u + 2 * (log_u - log_r + 0.5 * np.log((a + b + 2) / (n + 2)))
    return np.where(n == answers.shape[1], -np.inf, found)

  for _ in range(init):
    draw(row)
  scores = score(row)
  spent, errors = init * num_questions, []
  waiting = sorted(budgets)
  while waiting:
    order = np.lexsort((row, samples, -scores))
    while waiting and waiting[0] <= spent + batch:
      errors.append(error(order[: waiting.pop(0) - spent]))
    chosen = order[:batch]
    draw(chosen)
    scores[chosen] = score(chosen)  # the others are what they were
    spent += batch
  return np.array(errors)


def check_voting(config: ml_collections.ConfigDict, ours: np.ndarray, theirs: np.ndarray) -> None:
  """Asserts that our first seed's errors are the loop's, but for a question at float32 ties."""
  np.testing.assert_allclose(ours[0], theirs, rtol=0, atol=1 / config.voting.questions)


def scipy_sign_flip(
  config: ml_collections.ConfigDict, ours: cases.Case, clustered: bool = False
) -> yardsticks.Task:
  """The same test by SciPy's permutation_test, with fewer draws.

  Args:
    config: as `cases.sign_flip`.
    ours: our case, whose differences it takes.
    clustered: whether it flips the sums of items.

  Returns:
    A task whose work is that of its own draws.
  """
  sizes = config.sign_flip
  d = np.asarray(ours.args[1])
  if clustered:
    d = np.add.reduceat(d, np.arange(0, sizes.pairs, sizes.pairs_per_item))

  def call():
    return stats.permutation_test(
      (d,), np.sum, permutation_type='samples', n_resamples=sizes.peer_draws, batch=20,
      vectorized=True, rng=np.random.default_rng(0), alternative='greater',
    ).pvalue  # fmt: skip

  return yardsticks.Task(call, float(len(d) * sizes.peer_draws))


def check_sign_flip(config: ml_collections.ConfigDict, ours, theirs: float) -> None:
  """Asserts that two p-values against a positive sum agree within five Monte Carlo errors."""
  sizes = config.sign_flip
  draws = np.array([sizes.draws, sizes.peer_draws])
  counts = (np.array([float(ours.p_greater), theirs]) * (1 + draws)).sum()
  p = counts / (2 + draws).sum()  # strictly between 0 and 1
  allowed = 5 * np.sqrt(p * (1 - p) * (1 / draws).sum()) + (1 / draws).sum()
  np.testing.assert_allclose(ours.p_greater, theirs, rtol=0, atol=allowed)


class Host(NamedTuple):
  """What runs on NumPy or SciPy beside one of our cases.

  Attributes:
    name: of the task.
    make: makes it of the config and our case.
    check: asserts of the config and of what both calls return that they agree.
  """

  name: str
  make: Callable[[ml_collections.ConfigDict, cases.Case], yardsticks.Task]
  check: Callable[[ml_collections.ConfigDict, Any, Any], None]


# By our case.
HOST = {
  'voting': (Host('numpy_voting', numpy_voting, check_voting),),
  'sign_flip': (Host('scipy_sign_flip', scipy_sign_flip, check_sign_flip),),
  'sign_flip_clustered': (
    Host(
      'scipy_sign_flip_clustered',
      functools.partial(scipy_sign_flip, clustered=True),
      check_sign_flip,
    ),
  ),
  **{
    f'hodge_{name}': (
      Host(
        f'scipy_{name}', functools.partial(hodge_peers.product, name), hodge_peers.check_product
      ),
    )
    for name in hodge.OPERATORS
  },
  'hodge_decompose': tuple(
    Host(f'scipy_{name}', make, hodge_peers.check_parts)
    for name, make in hodge_peers.DECOMPOSE.items()
  ),
}
