"""Host. Questions whose answer is a known integer >= 0; each task's follow from a seed alone.

What a function returns for a seed is the same in every process, and a longer list begins with the
shorter one.
"""

import functools
import importlib.util
import re
import sys
import types
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

_NAMES = ('Tom', 'Anna', 'Ben', 'Maria', 'Sam', 'Lucy', 'Omar', 'Ida')
_THINGS = ('apples', 'pears', 'plums', 'eggs', 'nuts', 'cookies')
_LOSSES = ('gives away', 'eats', 'loses', 'sells')
_STRIDE = 100_000  # items that a seed of the package's may look at before the next seed's begin
_INTEGER = re.compile('[0-9]+')

# Tasks of the package `reasoning-gym` whose answers are integers, with options under which a small
# language model is sometimes right.
REASONING_GYM: dict[str, dict[str, Any]] = {
  'aiw': {'max_entities': 4},
  'basic_arithmetic': {'min_terms': 2, 'max_terms': 3, 'min_digits': 1, 'max_digits': 1},
  'chain_sum': {'min_terms': 2, 'max_terms': 3, 'min_digits': 1, 'max_digits': 2},
  'count_primes': {'max_n': 40},
  'gcd': {'max_value': 60},
  'gsm_symbolic': {},
  'leg_counting': {'min_animals': 1, 'max_animals': 2, 'max_instances': 4},
  'letter_counting': {'min_words': 3, 'max_words': 6},
  'simple_equations': {'min_terms': 2, 'max_terms': 2, 'max_value': 20},
  'simple_geometry': {},
}


class Question(NamedTuple):
  """A question.

  Attributes:
    id: unlike every other question's of the same run.
    task: the kind of question.
    prompt: what to ask.
    gold: the right answer, an integer >= 0 in decimal, such as '12'.
  """

  id: str
  task: str
  prompt: str
  gold: str


def sums(seed: int, count: int, digits: int = 1) -> list[Question]:
  """Sums of two numbers of one or two digits each, no pair twice.

  Two seeds share questions: where two sets must not, divide one list.

  Args:
    seed: >= 0.
    count: how many, >= 0.
    digits: of both terms, 1 or 2.

  Raises:
    ValueError: if a number is out of its range, or there are fewer pairs than that.
  """
  if digits not in (1, 2):
    raise ValueError(f'Terms have one digit or two, got {digits=}.')
  low, high = (1, 10) if digits == 1 else (10, 100)
  return [
    Question(f'sums{digits}/{seed}/{i}', f'sums{digits}', f'What is {a} + {b}?', str(a + b))
    for i, (a, b) in enumerate(_pairs(seed, count, low, high))
  ]


def products(seed: int, count: int) -> list[Question]:
  """Products of two numbers from 2 to 9, no pair twice; else as `sums`."""
  return [
    Question(f'products/{seed}/{i}', 'products', f'What is {a} times {b}?', str(a * b))
    for i, (a, b) in enumerate(_pairs(seed, count, 2, 10))
  ]


def word_problems(seed: int, count: int) -> list[Question]:
  """Apples left, and the like: a difference of numbers to 20, from 1 to 9; else as `sums`."""
  pairs = [(a, a - left) for a in range(4, 21) for left in range(1, 10) if a - left >= 2]
  rng = _generator(seed, count, len(pairs))
  order = rng.permutation(len(pairs))[:count]
  picks = rng.integers([len(_NAMES), len(_THINGS), len(_LOSSES)], size=(len(pairs), 3))
  result = []
  for i, (j, (name, thing, loss)) in enumerate(zip(order, picks.tolist(), strict=False)):
    a, b = pairs[j]
    prompt = (
      f'{_NAMES[name]} has {a} {_THINGS[thing]} and {_LOSSES[loss]} {b} of them. '
      f'How many {_THINGS[thing]} are left?'
    )
    result.append(Question(f'left/{seed}/{i}', 'left', prompt, str(a - b)))
  return result


def reasoning_gym(task: str, seed: int, count: int) -> list[Question]:
  """Questions of a task of REASONING_GYM (Stojanovski et al., 2025, arXiv:2505.24760).

  Items whose answer is negative or no integer, and questions that came before, are passed over.
  Seeds of this function share no item; the package's own do: it draws item i of seed s by s + i.

  Args:
    task: a key of REASONING_GYM.
    seed: >= 0.
    count: how many, >= 0.

  Raises:
    ValueError: if there is no such task, a number is out of its range, the package is not
      installed, or it has not as many different questions.
  """
  if task not in REASONING_GYM:
    raise ValueError(f'There is no task {task!r}; there are {", ".join(REASONING_GYM)}.')
  _generator(seed, count, _STRIDE)
  try:
    if 'pycosat' not in sys.modules and importlib.util.find_spec('pycosat') is None:
      # One of its tasks, none of ours, calls this package, which has to be compiled.
      sys.modules['pycosat'] = types.ModuleType('pycosat')
    import reasoning_gym as package
  except ImportError as error:
    raise ValueError(
      f'Questions of {task!r} need a package: pip install "reasoning-gym>=0.1.25,<0.2" ({error})'
    ) from error
  limit = min(_STRIDE, 100 * count + 100)
  items = package.create_dataset(
    task, seed=seed * _STRIDE, size=max(limit, 1), **REASONING_GYM[task]
  )
  seen: set[str] = set()
  result: list[Question] = []
  for item in range(limit):
    if len(result) == count:
      return result
    entry = items[item]
    prompt, gold = entry['question'].strip(), str(entry['answer']).strip()
    if prompt not in seen and _INTEGER.fullmatch(gold):
      seen.add(prompt)
      result.append(Question(f'{task}/{seed}/{len(result)}', task, prompt, str(int(gold))))
  if len(result) < count:
    raise ValueError(f'{task!r} has {len(result)} different questions, not {count}.')
  return result


def _pairs(seed: int, count: int, low: int, high: int) -> list[tuple[int, int]]:
  """Pairs of numbers in [low, high), in an order of chance."""
  side = high - low
  order = _generator(seed, count, side**2).permutation(side**2)[:count]
  return [(low + i // side, low + i % side) for i in order.tolist()]


def _generator(seed: int, count: int, available: int) -> np.random.Generator:
  if seed < 0:
    raise ValueError(f'A seed must not be negative, got {seed=}.')
  if not 0 <= count <= available:
    raise ValueError(f'There are {available} questions, got {count=}.')
  return np.random.default_rng(seed)


# All tasks by name: what makes `count` questions from a seed.
TASKS: dict[str, Callable[[int, int], list[Question]]] = {
  'sums1': sums,
  'sums2': functools.partial(sums, digits=2),
  'products': products,
  'left': word_problems,
  **{task: functools.partial(reasoning_gym, task) for task in REASONING_GYM},
}


def make(counts: Mapping[str, int], seed: int) -> list[Question]:
  """Makes so many questions of each task of TASKS.

  Raises:
    ValueError: if there is no such task, or it has not so many questions.
  """
  for task in counts:
    if task not in TASKS:
      raise ValueError(f'There is no task {task!r}; there are {", ".join(TASKS)}.')
  return [item for task, count in counts.items() for item in TASKS[task](seed, count)]
