"""Where answers come from: laws of questions, a forest's trees, pools of language models."""

import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import ml_collections
import numpy as np

from experiments.blend_asc import pools
from lib.io import answer_pools, models, questions
from lib.train import console, signals
from lib.voting import answers, sources


class Questions(NamedTuple):
  """Questions with the law of their answers, from which runs draw with replacement.

  Attributes:
    p: (Q, K) probabilities, float32; the limiting answer is the likeliest.
    gold: (Q, K) booleans, the correct answer; None where nobody knows it.
    facts: what to tell of them.
  """

  p: np.ndarray
  gold: np.ndarray | None
  facts: str


# Makes a source's questions for a seed: a law's are new for each, the others' are what they are.
Source = Callable[[int], Questions]


def prepare(config: ml_collections.ConfigDict) -> dict[str, Source]:
  """Finds the files that the sources need; a ValueError names the first bad field or file."""
  found: dict[str, Source] = {}
  for name in config.sources:
    spec = config.source.get(name)
    if spec is None or spec.kind not in KINDS:
      raise ValueError(f'config.source has no {name!r} of a kind among {", ".join(KINDS)}.')
    found[name] = KINDS[spec.kind](name, spec, config)
  return found


def _law(name: str, spec: Any, config: Any) -> Source:
  sizes = spec.questions, spec.answers
  if spec.answers < 2:
    raise ValueError(f'config.source.{name}.answers must be 2 or more, got {spec.answers}.')
  draws = {
    'gap': lambda key: sources.gap_questions(key, *sizes),
    'margin_law': lambda key: sources.margin_law_questions(key, *sizes, spec.gamma),
    'dirichlet': lambda key: sources.dirichlet_questions(key, *sizes, spec.concentration),
  }
  draw = draws[spec.kind]
  jax.eval_shape(draw, jax.random.key(0))  # refuses what is out of range, now

  def make(seed: int) -> Questions:
    key, relabel_key = jax.random.split(jax.random.fold_in(jax.random.key(config.seed), seed))
    p = np.asarray(sources.relabel(relabel_key, draw(key)))
    return Questions(p, None, f'synthetic: {spec.kind}, new questions for each seed')

  return make


def _forest(name: str, spec: Any, config: Any) -> Source:
  """Trees of bootstrap samples of the digits are the voters, held-out digits the questions."""
  from sklearn import datasets, tree  # only this source needs it

  images, labels = datasets.load_digits(return_X_y=True)
  rng = np.random.default_rng(spec.seed)
  order = rng.permutation(len(images))
  start = spec.train + spec.questions * spec.part
  train, asked = order[: spec.train], order[start : start + spec.questions]
  if not (
    spec.train > 0 and spec.trees > 0 and spec.part >= 0 and len(asked) == spec.questions > 0
  ):
    raise ValueError(f'config.source.{name}: {len(images)} digits have no such part: {spec}')

  def grow(seed: int) -> np.ndarray:
    rows = train[np.random.default_rng((spec.seed, seed)).integers(0, len(train), len(train))]
    grown = tree.DecisionTreeClassifier(
      max_depth=spec.max_depth, max_features=spec.max_features, random_state=seed
    )
    return grown.fit(images[rows], labels[rows]).predict(images[asked])

  votes = np.stack([grow(seed) for seed in range(spec.trees)], axis=1)
  counts = np.stack([(votes == digit).sum(1) for digit in range(10)], axis=1)
  gold = np.arange(10) == labels[asked, None]
  facts = f'{spec.trees} trees vote on {spec.questions} digits of scikit-learn'
  made = _from_counts(counts, gold, facts)
  return lambda seed: made


def _smollm2(name: str, spec: Any, config: Any) -> Source:
  """A pool of SmolLM2's answers, drawn now or read where an earlier run kept it."""
  if spec.part not in (0, 1):
    raise ValueError(f'config.source.{name}.part must be 0 or 1, got {spec.part}.')
  dtype = models.dtype(config.dtype)
  items = pools.halves(questions.make(spec.tasks, spec.seed))[spec.part]
  if not items:
    raise ValueError(f'config.source.{name}.tasks has no question in part {spec.part}.')
  # In a tuple, layers decode faster on a CPU.
  model = models.load(config.model, dtype, stacked=False)
  draw = pools.Draw(spec.samples, spec.temperature, spec.max_tokens, spec.seed)
  pools.check(model, items, draw)

  def make(seed: int) -> Questions:
    del seed

    def show(done: int, wanted: int) -> None:
      if done % 10 == 0 or done == wanted:
        console.say(f'{name}: {done} of {wanted} questions answered')
      signals.check()

    texts = pools.draw_pool(model, items, draw, pathlib.Path(config.pool_dir), show)
    encoded = answers.encode(texts, [item.gold for item in items], answers.number)
    facts = f'{spec.samples} answers of {config.model} to each of {len(items)} questions'
    return _from_codes(encoded, facts)

  return _once(make)


def _pool(name: str, spec: Any, config: Any) -> Source:
  """A file of answers of any language model."""
  if not spec.path:
    raise ValueError(
      f'config.source.{name}.path: name a .jsonl or .parquet file with the fields question, '
      'answer and, where it is known, gold.'
    )
  if spec.normalise not in NORMALISERS:
    raise ValueError(
      f'config.source.{name}.normalise must be one of {", ".join(NORMALISERS)}, '
      f'got {spec.normalise!r}.'
    )
  parquet = spec.path.endswith('.parquet')
  pool = (answer_pools.read_parquet if parquet else answer_pools.read_jsonl)(spec.path)
  encoded = answers.encode(pool.answers, pool.golds, NORMALISERS[spec.normalise])
  if all(len(set(codes.tolist())) < 2 for codes in encoded.codes):
    raise ValueError(f'{spec.path}: no question has two different answers.')
  made = _from_codes(encoded, f'answers of {spec.path}')
  return lambda seed: made


NORMALISERS = {
  name: getattr(answers, name)
  for name in ('number', 'fraction', 'letter', 'last_number', 'math_answer')
}
KINDS = {
  'gap': _law,
  'margin_law': _law,
  'dirichlet': _law,
  'forest': _forest,
  'smollm2': _smollm2,
  'pool': _pool,
}


def _from_codes(encoded: answers.Encoded, facts: str) -> Questions:
  """Counts a pool; what could not be read is an answer of its own."""
  encoded = answers.unparseable_as_class(encoded)
  most = max(map(len, encoded.texts))
  counts = np.stack([np.bincount(codes, minlength=most) for codes in encoded.codes])
  known = encoded.golds != answers.NO_GOLD
  gold = np.arange(most) == encoded.golds[:, None] if known.all() else None
  return _from_counts(counts, gold, facts)


def _from_counts(counts: np.ndarray, gold: np.ndarray | None, facts: str) -> Questions:
  p = (counts / counts.sum(1, keepdims=True)).astype(np.float32)
  top = np.sort(p, axis=1)
  facts += f'; median top probability {np.median(top[:, -1]):.3f}'
  if gold is not None:
    right = gold[np.arange(len(p)), p.argmax(1)].mean()
    facts += f', {right:.1%} aligned'
  return Questions(p, gold, facts)


def _once(make: Source) -> Source:
  kept: list[Questions] = []

  def get(seed: int) -> Questions:
    if not kept:
      kept.append(make(seed))
    return kept[0]

  return get
