import collections
import importlib.util
import json
import math
import os
import re
import subprocess
import sys
import unittest
from unittest import mock

from absl.testing import parameterized

from lib.io import questions

OWN = ('sums1', 'sums2', 'products', 'left')
PACKAGE = importlib.util.find_spec('reasoning_gym')
needs_package = unittest.skipIf(PACKAGE is None, 'reasoning-gym is not installed')


def recompute(item):
  """The answer, found from the text of the question."""
  numbers = [int(x) for x in re.findall('[0-9]+', item.prompt)]
  if item.task.startswith('sums'):
    return sum(numbers)
  if item.task == 'products':
    return math.prod(numbers)
  if item.task == 'left':
    return numbers[0] - numbers[1]
  if item.task == 'gcd':
    return math.gcd(*numbers)
  if item.task == 'chain_sum':
    signed = re.findall('([+-]?) ?([0-9]+)', item.prompt.partition(':')[2])
    return sum(-int(x) if sign == '-' else int(x) for sign, x in signed)
  if item.task == 'letter_counting':
    letter, text = re.findall('"(.*?)"', item.prompt)
    return text.lower().count(letter)
  if item.task == 'count_primes':
    first, last = numbers
    return sum(all(n % d for d in range(2, n)) for n in range(max(first, 2), last + 1))
  raise AssertionError(item.task)


class OwnTest(parameterized.TestCase):
  @parameterized.parameters(*OWN)
  def test_golds_are_the_answers(self, task):
    items = questions.TASKS[task](0, 40)
    self.assertLen({item.prompt for item in items}, 40)
    self.assertLen({item.id for item in items}, 40)
    for item in items:
      self.assertEqual(item.gold, str(recompute(item)))
      self.assertEqual(item.task, task)

  @parameterized.parameters(*OWN)
  def test_a_longer_list_begins_with_the_shorter(self, task):
    make = questions.TASKS[task]
    self.assertEqual(make(3, 20)[:5], make(3, 5))
    self.assertNotEqual(make(3, 20), make(4, 20))
    self.assertEqual(make(3, 0), [])

  def test_all_pairs_come_once(self):
    for task, count, low, high in (('sums1', 81, 1, 9), ('products', 64, 2, 9)):
      items = questions.TASKS[task](1, count)
      pairs = [tuple(map(int, re.findall('[0-9]+', item.prompt))) for item in items]
      every = [(a, b) for a in range(low, high + 1) for b in range(low, high + 1)]
      self.assertEqual(collections.Counter(pairs), collections.Counter(every))

  def test_digits(self):
    for item in questions.sums(0, 50, digits=2):
      self.assertRegex(item.prompt, r'^What is [1-9][0-9] \+ [1-9][0-9]\?$')
    for item in questions.word_problems(0, 50):
      self.assertRegex(item.gold, '^[1-9]$')

  @parameterized.parameters(
    (lambda: questions.sums(-1, 2), 'seed=-1'),
    (lambda: questions.sums(0, -2), 'count=-2'),
    (lambda: questions.sums(0, 82), 'There are 81 questions'),
    (lambda: questions.sums(0, 2, digits=3), 'digits=3'),
    (lambda: questions.products(0, 65), 'There are 64 questions'),
    (lambda: questions.reasoning_gym('tea', 0, 1), "no task 'tea'"),
    (lambda: questions.reasoning_gym('gcd', -1, 1), 'seed=-1'),
    (lambda: questions.reasoning_gym('gcd', 0, 10**9), 'count=1000000000'),
  )
  def test_refuses(self, make, message):
    with self.assertRaisesRegex(ValueError, message):
      make()

  def test_says_what_to_install(self):
    self.enter_context(mock.patch.dict(sys.modules, {'reasoning_gym': None}))
    with self.assertRaisesRegex(ValueError, 'pip install "reasoning-gym'):
      questions.reasoning_gym('gcd', 0, 1)


@needs_package
class PackageTest(parameterized.TestCase):
  @parameterized.parameters('gcd', 'chain_sum', 'letter_counting', 'count_primes')
  def test_golds_are_the_answers(self, task):
    for item in questions.reasoning_gym(task, 0, 20):
      self.assertEqual(item.gold, str(recompute(item)), item.prompt)

  @parameterized.parameters(*questions.REASONING_GYM)
  def test_golds_are_integers_and_prompts_differ(self, task):
    items = questions.reasoning_gym(task, 2, 12)
    self.assertLen({item.prompt for item in items}, 12)
    for item in items:
      self.assertRegex(item.gold, '^(0|[1-9][0-9]*)$')
    self.assertEqual(questions.reasoning_gym(task, 2, 5), items[:5])

  def test_neighbouring_seeds_share_nothing(self):
    sets = [{q.prompt for q in questions.reasoning_gym('gsm_symbolic', s, 15)} for s in (0, 1)]
    self.assertTrue(sets[0].isdisjoint(sets[1]))

  def test_a_task_can_run_out(self):
    few = {'gcd': {'min_value': 1, 'max_value': 2}}
    self.enter_context(mock.patch.dict(questions.REASONING_GYM, few))
    with self.assertRaisesRegex(ValueError, 'different questions, not 9'):
      questions.reasoning_gym('gcd', 0, 9)

  def test_another_process_with_other_hashes_asks_the_same(self):
    code = (
      'import json; from lib.io import questions as q; '
      'print(json.dumps([q.TASKS[t](1, 6) for t in q.TASKS]))'
    )
    environment = {**os.environ, 'PYTHONHASHSEED': '77', 'PYTHONPATH': os.pathsep.join(sys.path)}
    found = subprocess.run(
      [sys.executable, '-c', code], capture_output=True, check=True, env=environment
    )
    mine = json.loads(json.dumps([make(1, 6) for make in questions.TASKS.values()]))
    self.assertEqual(json.loads(found.stdout.splitlines()[-1]), mine)
