"""Judges that cannot know whose answer they see: classifiers of digits.

A logistic regression votes for label x over label r by its own log-probabilities,
σ(log p(x) - log p(r)), whoever chose x. A bonus planted for its own label is self-preference of a
known size.
"""

from collections.abc import Iterator
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
  wording = noise * np.random.default_rng((seed, 1)).normal(size=(len(right), *right.shape))
  found = []
  for judge, reference, proxy in _triplets(len(right)):
    sort = categories.categorize(right[judge], right[proxy], right[reference])
    category = np.asarray(sort)
    (rows,) = np.nonzero(category)
    log_p, against = models.log_p[judge][rows], models.labels[reference][rows]
    own, other = (models.labels[author][rows] for author in (judge, proxy))
    extra = (wording[judge, author][rows] for author in (judge, proxy))
    full = lambda value: np.full(len(rows), value)
    found.append(
      cells.Pairs(
        rows, full(judge), full(reference), full(proxy),
        _vote(log_p, own, against, next(extra) + bonus), _vote(log_p, other, against, next(extra)),
        category[rows], (own == other).astype(np.int8),
      )
    )  # fmt: skip
  return cells.Pairs(*(np.concatenate(column) for column in zip(*found, strict=True)))


def _vote(log_p, label, against, extra) -> np.ndarray:
  return np.asarray(judges.label_margin_judge(log_p, label, against, extra))


def _triplets(count: int) -> Iterator[tuple[int, int, int]]:
  for judge in range(count):
    for reference in range(count):
      for proxy in range(count):
        if len({judge, reference, proxy}) == 3:
          yield judge, reference, proxy
