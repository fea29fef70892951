"""Judges that cannot know whose answer they see: classifiers of digits.

A logistic regression votes for label x over label r by its own log-probabilities,
σ(log p(x) - log p(r)), whoever chose x. A bonus planted for its own label is self-preference of a
known size.
"""

import itertools
from typing import Any, NamedTuple

import numpy as np

from experiments.self_preference import cells
from lib.judging import categories, judges


class Classifiers(NamedTuple):
  """Some models on the digits that none of them was trained on.

  Attributes:
    log_p: (models, items, 10), their log-probabilities.
    labels: (models, items), what they answer.
    gold: (items,), the right labels.
  """

  log_p: np.ndarray
  labels: np.ndarray
  gold: np.ndarray


def check(config: Any) -> None:
  """Raises a ValueError that names the first bad field."""
  limits = {'num_seeds': (1, 10**6), 'models': (3, 64), 'train': (20, 1000), 'pixels': (1, 64)}
  for name, (low, high) in limits.items():
    if not low <= config[name] <= high:
      raise ValueError(f'config.digits.{name} must lie in [{low}, {high}], got {config[name]}.')
  if not config.bonuses or config.bonuses[0] != 0:
    raise ValueError(f'config.digits.bonuses must begin with 0, got {config.bonuses}.')
  for name in ('noises', 'bonuses'):
    if not config[name] or not all(0 <= value < np.inf for value in config[name]):
      raise ValueError(f'config.digits.{name} must not be negative, got {config[name]}.')


def train(config: Any, seed: int) -> Classifiers:
  """Trains the models of a seed, each on digits and pixels of its own."""
  from sklearn import datasets, linear_model  # only this part needs it

  images, gold = datasets.load_digits(return_X_y=True)
  rng = np.random.default_rng(seed)
  order = rng.permutation(len(images))
  pool = min(config.models * config.train, len(images) // 2)  # digits that models learn from
  learned, asked = order[:pool], order[pool:]
  log_p = []
  for _ in range(config.models):
    while True:  # until every digit is there
      rows = rng.choice(learned, config.train, replace=False)
      if len(set(gold[rows])) == 10:
        break
    pixels = rng.choice(images.shape[1], config.pixels, replace=False)
    model = linear_model.LogisticRegression(max_iter=1000)
    model.fit(images[rows][:, pixels] / 16, gold[rows])
    log_p.append(model.predict_log_proba(images[asked][:, pixels] / 16))
  log_p = np.array(log_p)
  return Classifiers(log_p, log_p.argmax(axis=-1), gold[asked])


def pairs(models: Classifiers, bonus: float, noise: float, seed: int) -> cells.Pairs:
  """The pairs of all triplets of different models, harmful and legitimate.

  Args:
    models: the models.
    bonus: what a judge adds to the logit of its own answer.
    noise: standard deviation of what it adds for an answer's wording, which differs by author.
    seed: of the noise.
  """
  right = models.labels == models.gold
  count, num_items = right.shape
  wording = noise * np.random.default_rng((seed, 1)).normal(size=(count, count, num_items))
  wording += bonus * np.eye(count)[..., None]
  voted = votes(models, wording)
  judge, reference, proxy = np.array(list(itertools.permutations(range(count), 3))).T
  category = np.asarray(categories.categorize(right[judge], right[proxy], right[reference]))
  which, example = np.nonzero(category)
  j, r, k = judge[which], reference[which], proxy[which]
  return cells.Pairs(
    example=example,
    judge=j,
    reference=r,
    proxy=k,
    s_judge=voted[j, j, r, example],
    s_proxy=voted[j, k, r, example],
    category=category[which, example],
    same=(models.labels[j, example] == models.labels[k, example]).astype(np.int8),
  )


def votes(models: Classifiers, extra: np.ndarray) -> np.ndarray:
  """Votes (judges, authors, references, items); `extra` (judges, authors, items) is added."""
  count, num_items = models.labels.shape
  shape = (count, count, count, num_items)
  return np.asarray(
    judges.label_margin_judge(
      np.broadcast_to(models.log_p[:, None, None], (*shape, models.log_p.shape[-1])),
      np.broadcast_to(models.labels[:, None], shape),
      np.broadcast_to(models.labels, shape),
      np.broadcast_to(extra[:, :, None], shape),
    )
  )
