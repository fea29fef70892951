"""Tests of lib.voting.answers."""

import functools
from fractions import Fraction

import hypothesis
import numpy as np
from absl.testing import absltest, parameterized
from hypothesis import strategies as st

from lib.voting import answers
from lib.voting.answers import boxed, fraction, last_number, letter, math_answer, number, with_units

NINES = '9' * 10**6

TABLE = [
  # Numbers.
  (number, '18', '18'), (number, '18.0', '18'), (number, '18.', '18'), (number, ' 18 ', '18'),
  (number, '$18', '18'), (number, '$18.00', '18'), (number, '\\$18', '18'), (number, '$18$', '18'),
  (number, '-$5', '-5'), (number, '$-5', '-5'), (number, '-$-5', None), (number, '€ 5', '5'),
  (number, '1,234', '1234'), (number, '1,234.50', '1234.5'), (number, '1,23', None),
  (number, '1,2345', None), (number, '12,34,567', None), (number, '1 234', None),
  (number, '1.234,5', None), (number, '1e3', '1000'), (number, '1E-2', '0.01'),
  (number, '1.5e+2', '150'), (number, '1.5 \\times 10^{3}', '1500'), (number, '2×10^3', '2000'),
  (number, '1 e3', None), (number, '-0', '0'), (number, '-0.00', '0'), (number, '0e99', '0'),
  (number, '+7', '7'), (number, '007', '7'), (number, '.5', '0.5'), (number, '-.5', '-0.5'),
  (number, '\u22125', '-5'), (number, '\u20135', '-5'), (number, '--5', None),
  (number, '½', None), (number, '1/2', None), (number, '٣', None), (number, '5²', None),
  (number, '', None), (number, '.', None), (number, '-', None), (number, '$', None),
  (number, 'nan', None), (number, 'inf', None), (number, '0x10', None), (number, '1_000', None),
  (number, '5 or 6', None), (number, '5 pm', None), (number, '1.2.3', None),
  (number, 'eighteen', None),
  (number, '50%', '50'), (number, '50\\%', '50'), (number, '18 dollars', '18'),
  (number, '18 eggs.', '18'), (number, '5cm', '5'), (number, '3x', None), (number, '3 pi', None),
  (number, '3\\pi', None), (number, '3m', None), (number, '3 million', None), (number, '3e', None),
  (number, '18 and', None), (number, '90°', '90'), (number, '90^\\circ', '90'),
  (number, '1e1001', '1e1001'), (number, '10e1000', '1e1001'), (number, '1e1000', '1' + '0' * 1000),
  (number, '1e999999999', '1e999999999'), (number, '-1.0e-999999999', '-1e-999999999'),
  (number, '1e1000000001', None), (number, '1e' + NINES, None), (number, '0e' + NINES, '0'),
  # Fractions.
  (fraction, '3/4', '3/4'), (fraction, '6/8', '3/4'), (fraction, '0.75', '3/4'),
  (fraction, '\\frac{3}{4}', '3/4'), (fraction, '\\dfrac34', '3/4'),
  (fraction, '\\frac3{4}', '3/4'),
  (fraction, '-\\tfrac{3}{4}', '-3/4'), (fraction, '\\frac{-3}{4}', '-3/4'),
  (fraction, '-3/-4', '3/4'), (fraction, '1 1/2', '3/2'), (fraction, '1\\frac12', '3/2'),
  (fraction, '-1 1/2', '-3/2'), (fraction, '1½', '3/2'), (fraction, '½', '1/2'),
  (fraction, '1.5/0.5', '3'), (fraction, '4/2', '2'), (fraction, '0/5', '0'),
  (fraction, '-0/5', '0'),
  (fraction, '5/0', None), (fraction, '1 2/0', None), (fraction, '\\frac{1}{0}', None),
  (fraction, '1/2/3', None), (fraction, '\\frac123', None), (fraction, '\\frac{1}{x}', None),
  (fraction, '3/4 cup', '3/4'), (fraction, '1,000/2', '500'), (fraction, '3\u20444', '3/4'),
  (fraction, '1e999999999', '1e999999999'), (fraction, '1e999999999/2', None),
  (fraction, '/', None),
  # Units.
  (with_units, '5 cm^2', ('5', 'cm^2')), (with_units, '5 cm²', ('5', 'cm^2')),
  (with_units, '$18', ('18', '$')), (with_units, '$18 per hour', ('18', '$ per hour')),
  (with_units, '9.81 m/s^{2}', ('9.81', 'm/s^2')), (with_units, '50%', ('50', '%')),
  (with_units, '12 square feet', ('12', 'square feet')), (with_units, '21.0 °C', ('21', '°C')),
  (with_units, '7', ('7', '')), (with_units, '3y', None), (with_units, '3 ^2', None),
  # Boxes.
  (boxed, '\\boxed{5}', '5'), (boxed, 'so \\boxed{ \\frac{1}{2} }.', '\\frac{1}{2}'),
  (boxed, '\\boxed{1} or \\boxed{2}', '2'), (boxed, '\\boxed{\\boxed{5}}', '5'),
  (boxed, '\\fbox{5}', '5'), (boxed, '\\boxed 5', '5'), (boxed, '$\\boxed 5$', '5'),
  (boxed, '\\boxed{1} then \\boxed{2', '1'), (boxed, '\\boxed{a{b}', None),
  (boxed, '\\boxed{', None),
  (boxed, '\\boxed{}', None), (boxed, '5', None), (boxed, '\\boxed{\\{1\\}}', '\\{1\\}'),
  (boxed, '}}\\boxed{5}', '5'), (boxed, '\\boxedly{5}', None),
  # Letters.
  (letter, '(B)', 'B'), (letter, 'B.', 'B'), (letter, 'b', 'B'), (letter, ' B ', 'B'),
  (letter, '**B**', 'B'), (letter, '\\boxed{B}', 'B'), (letter, 'Answer: B', 'B'),
  (letter, 'the answer is b', 'B'), (letter, 'The answer is (C).', 'C'), (letter, 'B. Paris', 'B'),
  (letter, 'The answer is A because', 'A'), (letter, 'The answer is a dog', None),
  (letter, 'The answer is a', 'A'), (letter, 'A dog', None), (letter, 'The', None),
  (letter, 'I choose C', 'C'), (letter, 'B or C', None),
  (letter, '(B) Paris', 'B'), (letter, '(A) is false, (D) is true', None),
  (letter, 'answer is A. No, the answer is D', 'D'), (letter, 'E.g. B', None), (letter, 'Z', None),
  (letter, 'Because', None), (letter, "D'oh", None), (letter, 'B-52', None), (letter, '', None),
  # The last number of a text.
  (last_number, 'He has 3 + 4 = 7 apples.', '7'), (last_number, 'It costs $1,234.50.', '1234.5'),
  (last_number, 'from 3-5', '5'), (last_number, 'x = -5', '-5'), (last_number, 'is \u22125.', '-5'),
  (last_number, '1,2', '2'), (last_number, '1,234', '1234'), (last_number, '3/4', '4'),
  (last_number, 'a .5', '0.5'), (last_number, '50%', '50'), (last_number, 'none', None),
  (last_number, '2e3 m', '2000'), (last_number, '', None),
  # Answers of mathematics problems.
  (math_answer, 'Thus $\\boxed{\\dfrac{3}{4}}$.', '3/4'), (math_answer, '0.75', '3/4'),
  (math_answer, '$18$', '18'), (math_answer, '\\$18', '18'), (math_answer, '18.0', '18'),
  (math_answer, '10,\\!000', '10000'), (math_answer, '10{,}000', '10000'),
  (math_answer, '10\\,000', '10000'), (math_answer, '5\\text{ cm}', '5'),
  (math_answer, '50\\%', '50'),
  (math_answer, '90^{\\circ}', '90'), (math_answer, 'x = 5', '5'), (math_answer, '5.', '5'),
  (math_answer, '\\text{Evelyn}', 'Evelyn'), (math_answer, '\\mathrm{(B)}', '(B)'),
  (math_answer, '\\left( 3, \\frac{\\pi}{2} \\right)', '(3,\\frac{\\pi}{2})'),
  (math_answer, '(3,\\tfrac\\pi2)', '(3,\\frac\\pi2)'), (math_answer, '\\sqrt 2', '\\sqrt{2}'),
  (math_answer, '2\\sqrt{2}', '2\\sqrt{2}'), (math_answer, '\\(7\\)', '7'),
  (math_answer, '3x', '3x'),
  (math_answer, '\\dfrac{x}2', '\\frac{x}{2}'), (math_answer, '1, 234', '1, 234'),
  (math_answer, '1, 2', '1,2'), (math_answer, '3 4', '3 4'), (math_answer, '1 1/2', '3/2'),
  (math_answer, '\\text{', None), (math_answer, '', None), (math_answer, ' $ $ ', None),
  (math_answer, 'f\\circ g', 'f\\circg'),
]  # fmt: skip

# Pieces that the rules look for, in any order.
PIECES = st.lists(
  st.sampled_from(
    ['\\boxed', '\\frac', '\\dfrac', '\\text', '\\te', 'xt', '\\left', '\\sqrt', '\\circ', '\\%',
     '{', '}', '(', ')', '$', '\\$', '%', '°', ' ', '.', ',', '-', '−', '/', '^2', '=', 'e', 'x',
     'A', 'B', 'cm', 'eggs', 'answer is ', '½', '0', '1', '12', '234', '1000', '{,}', '\\!', '\\,',
     '\\', '~', '\n']
  ) | st.characters(), max_size=12,
).map(''.join)  # fmt: skip
CANONICAL = (number, fraction, letter, last_number, math_answer)


class NormaliserTest(parameterized.TestCase):
  def test_awkward_texts(self):
    for function, text, expected in TABLE:
      with self.subTest(f'{function.__name__}({text[:40]!r})'):
        self.assertEqual(function(text), expected)

  @hypothesis.settings(max_examples=250)
  @hypothesis.given(PIECES)
  def test_results_are_left_as_they_are(self, text):
    for function in CANONICAL:
      once = function(text)
      if once is not None:
        self.assertTrue(once)
        self.assertEqual(function(once), once, function.__name__)
    if (pair := with_units(text)) is not None:
      self.assertEqual(with_units(' '.join(pair)), pair)
    if (content := boxed(text)) is not None:
      self.assertIn(content, text)
      self.assertIsNone(boxed(content))

  @hypothesis.settings(max_examples=100)
  @hypothesis.given(st.fractions())
  def test_fractions_have_one_spelling(self, value):
    expected = str(value)
    p, q = abs(value.numerator), value.denominator
    sign = '-' * (value < 0)
    spellings = [
      f'{sign}{p}/{q}', f'{sign}{3 * p}/{3 * q}', f'{sign}\\frac{{{p}}}{{{q}}}',
      f'\\dfrac{{{sign}{p}}}{{{q}}}', f'{sign}{p // q} {p % q}/{q}', f'$ {sign}{p} / {q} $',
    ]  # fmt: skip
    for text in spellings:
      self.assertEqual(fraction(text), expected, text)
      self.assertEqual(math_answer(f'\\boxed{{{text}}}'), expected, text)

  @hypothesis.settings(max_examples=100)
  @hypothesis.given(st.decimals(allow_nan=False, allow_infinity=False), st.integers(0, 3))
  def test_numbers_keep_their_value(self, value, zeros):
    text = number(str(value))
    if text is None:
      self.assertGreater(abs(value.as_tuple().exponent), 10**8)
    elif 'e' not in text:
      self.assertEqual(Fraction(text), Fraction(value))
      self.assertEqual(number(text + ('0' * zeros if '.' in text else '.' + '0' * zeros)), text)

  @hypothesis.settings(max_examples=50)
  @hypothesis.given(st.integers(), st.sampled_from(['', ' eggs', ' cm', '%', ' m/s^2']))
  def test_integers_in_all_dress(self, n, unit):
    for text in (f'{n}', f'{n:,}', f'{n}.0', f'${n:,}.00', f'{n}'.replace('-', '\u2212')):
      self.assertEqual(number(text + unit), str(n))
      self.assertEqual(fraction(text + unit), str(n))
    self.assertEqual(last_number(f'It is {n:,}{unit}.'.replace('^2', '')), str(n))

  @hypothesis.settings(max_examples=30)
  @hypothesis.given(st.recursive(st.text('ab1 ', max_size=3), lambda x: st.lists(x).map(
    lambda parts: '{' + ''.join(parts) + '}'
  )))  # fmt: skip
  def test_a_box_gives_back_what_was_put_in(self, content):
    self.assertEqual(boxed(f'\\boxed{{0}} \\boxed{{{content}}} }}'), content.strip() or None)

  def test_long_texts_take_their_time_and_no_more(self):
    # What is quadratic needs minutes for those of a million characters.
    n = 4_000
    for text in (
      '\\boxed{' * n, '\\boxed{' * n + '5' + '}' * n, '{' * 10**5 + '}' * 10**5,
      '\\text{' * n + '}' * n,
      '\\frac{' * n, '\\frac' * n, '$' * n, ' ' * n, '\\frac{1}{' * n + '2' + '}' * n, '1,234' * n,
      ',111' * n, '1,' * n, '1' + ',111' * n + '1', '-' * n, '1 ' * n, 'answer is ' * n, 'A ' * n,
      '(A)' * n, '^' * n, '1/' * n, 'x=' * n, '\\' * n, '\\frac{1} ' * n, '.5' * n, '1e' * n, NINES,
      '0.' + NINES, '0' * 10**6, '1e-' + NINES, NINES[:9999] + '/' + NINES[:9999], '\\sqrt ' * n,
      '5' + ' a' * n,
    ):  # fmt: skip
      for function in (*CANONICAL, boxed, with_units):
        result = function(text)
        if function in CANONICAL and result is not None:
          self.assertLessEqual(len(result), 2 * len(text))

  def test_options_are_those_that_are_given(self):
    self.assertEqual(letter('(J)', 'ABCDEFGHIJ'), 'J')
    self.assertIsNone(letter('(J)'))
    self.assertIsNone(letter('E', options='ABCD'))


class EncodeTest(parameterized.TestCase):
  def test_codes_follow_the_first_appearance(self):
    pools = [['18', 'x', '$18', '17', '18.0', '17.'], ['?'], ['b', 'A', '7']]
    encoded = answers.encode(pools, ['17', '3', None], number)
    np.testing.assert_array_equal(encoded.codes[0], [0, -1, 0, 1, 0, 1])
    np.testing.assert_array_equal(encoded.codes[1], [-1])
    np.testing.assert_array_equal(encoded.codes[2], [-1, -1, 0])
    self.assertEqual(encoded.texts, (('18', '17'), ('3',), ('7',)))
    np.testing.assert_array_equal(encoded.golds, [1, 0, answers.NO_GOLD])
    np.testing.assert_array_equal(encoded.num_distinct, [2, 0, 1])
    self.assertEqual({x.dtype for x in (*encoded.codes, encoded.golds)}, {np.dtype(np.int32)})

  def test_a_gold_that_cannot_be_parsed_is_never_met(self):
    encoded = answers.encode([['7', '?', 'many']], ['many'], number)
    for policy in (answers.drop_unparseable, answers.unparseable_as_class):
      self.assertNotIn(encoded.golds[0], policy(encoded).codes[0])
    self.assertEqual(encoded.texts, (('7', 'many'),))

  def test_two_policies(self):
    encoded = answers.encode([['?', '7', '8', '!'], ['7']], ['9', '7'], number)
    dropped = answers.drop_unparseable(encoded)
    self.assertEqual([x.tolist() for x in dropped.codes], [[0, 1], [0]])
    classed = answers.unparseable_as_class(encoded)
    self.assertEqual([x.tolist() for x in classed.codes], [[3, 0, 1, 3], [0]])
    self.assertEqual(classed.texts, (('7', '8', '9', None), ('7',)))
    np.testing.assert_array_equal(classed.num_distinct, [3, 1])
    for policy in (dropped, classed):
      np.testing.assert_array_equal(policy.golds, encoded.golds)
      for again in (answers.drop_unparseable, answers.unparseable_as_class):
        self.assertEqual(again(policy).texts, policy.texts)

  @hypothesis.settings(max_examples=30)
  @hypothesis.given(st.lists(st.lists(st.sampled_from(['1', '1.0', '2', '½', 'x', '?']))))
  def test_texts_decode(self, pools):
    encoded = answers.encode(pools, normalise=fraction)
    for row, code, text in zip(pools, encoded.codes, encoded.texts, strict=True):
      self.assertEqual([None if c < 0 else text[c] for c in code], [fraction(x) for x in row])
      firsts = [row.index(next(x for x in row if fraction(x) == t)) for t in text]
      self.assertEqual(firsts, sorted(firsts))
    self.assertTrue((encoded.golds == answers.NO_GOLD).all())

  def test_normalisers_with_options(self):
    encoded = answers.encode([['(F)', 'f']], ['F'], functools.partial(letter, options='EF'))
    np.testing.assert_array_equal(encoded.codes[0], [0, 0])

  @parameterized.parameters(
    ([['1'], ['2']], ['1'], '2 questions need as many golds, got 1'),
    (['12'], None, "Question 0 needs a sequence of answers, got the text '12'"),
    ([['1'], [2]], None, 'Question 1 has an answer that is no text: 2'),
    ([['1']], [1], 'Question 0 has an answer that is no text: 1'),
    ([['1', None]], None, 'Question 0 .* no text: None'),
  )
  def test_bad_input_is_named(self, pools, golds, message):
    with self.assertRaisesRegex(ValueError, message):
      answers.encode(pools, golds)


if __name__ == '__main__':
  absltest.main()
