r"""Host. What an answer's text says, in one spelling: numbers, fractions, LaTeX boxes, letters.

A normaliser takes a text to its canonical spelling, or to None where it cannot be parsed. It never
returns an empty text, leaves its own results as they are, f(f(x)) = f(x), and takes time in
proportion to the text. Votes of a language model are counted by these spellings, so they decide
what the majority is.

Numbers are decimal: '1,234', '+18.', '$18', '1e3', '1.5 \times 10^3'; commas stand between groups
of three digits, and nothing else does. A sign of money and a trailing unit, as `with_units` has it,
are dropped; so is a percent sign: '50%' is '50'.
"""

import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

NO_GOLD = -2  # the code of a gold that nobody knows; no answer has it
UNPARSEABLE = -1  # the code of an answer that the normaliser returns None for

_MAX_EXPONENT = 10**9  # beyond it a number is not parsed
_MAX_ZEROS = 1000  # that a plain decimal is padded with; beyond it stands an exponent
_MAX_DIGITS = 1000  # of the parts of a fraction
_MAX_UNIT = 40  # characters

_INTEGER = re.compile('(?<![0-9])-?[0-9]+(?:,[0-9]{3})*')

_SPELLINGS = {
  '\u2212': '-', '\u2013': '-', '\ufe63': '-', '\uff0d': '-', '\u2044': '/', '\u2215': '/',
  '\u00a0': ' ', '\u2009': ' ', '\u202f': ' ', '\u00b2': '^2', '\u00b3': '^3', '\u00ba': '\u00b0',
  '¼': ' 1/4 ', '½': ' 1/2 ', '¾': ' 3/4 ', '⅓': ' 1/3 ', '⅔': ' 2/3 ', '⅕': ' 1/5 ',
  '⅖': ' 2/5 ', '⅗': ' 3/5 ', '⅘': ' 4/5 ', '⅙': ' 1/6 ', '⅚': ' 5/6 ', '⅛': ' 1/8 ',
  '⅜': ' 3/8 ', '⅝': ' 5/8 ', '⅞': ' 7/8 ',
}  # fmt: skip
_TABLE = str.maketrans(_SPELLINGS)
_ESCAPED = re.compile(r'\\([%$])')
_DEGREES = re.compile(r'(?:\^\s*+\{?\s*+|(?<=[0-9]))\\(?:circ|degree)(?![A-Za-z])\s*+\}?')

_DECIMAL = re.compile(
  r'([0-9]{1,3}(?:,[0-9]{3})++|[0-9]*+)(?:\.([0-9]*+))?'
  r'(?:(?:[eE]|\s*+(?:×|\*|\\times|\\cdot)\s*+10\^)(\{)?([+-]?)([0-9]++)(?(3)\}))?'
)
_MONEY = re.compile(r'([+-]?)\s*+([$€£¥]*+)\s*+([+-]?)\s*+')
_POWER = re.compile(r'(?<=[A-Za-z])\^(?:\{(-?[1-3])\}|(-?[1-3]))')
_UNIT_END = 'abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ /%°$€£¥'
_SIGNS = frozenset({'%', '°', '$', '€', '£', '¥', '°C', '°F'})
_GLUED = frozenset(
  {'cm', 'mm', 'km', 'kg', 'mg', 'ml', 'mL', 'ft', 'lb', 'oz', 'hr', 'min', 'sec', 'mph'}
)
_SPACED = _GLUED | {'m', 'g', 's', 'h', 'L', 'l', 'in', 'mi', 'yd'}
# Words after a number that belong to its value, or to a sentence.
_NOT_UNITS = frozenset({
  'hundred', 'thousand', 'million', 'billion', 'trillion', 'dozen', 'plus', 'minus', 'times', 'mod',
  'sin', 'cos', 'tan', 'log', 'sqrt', 'and', 'but', 'nor', 'not', 'for', 'the', 'are', 'was',
})  # fmt: skip

_PART = r'(?:\{\s*+([^{}\s]*+)\s*+\}|([0-9]))'
_FRAC = re.compile(rf'\\[dtc]?frac\s*+{_PART}\s*+{_PART}')
_MIXED = re.compile(r'([0-9]++)\s++([0-9]++)\s*+/\s*+([0-9]++)')

_BOX = re.compile(
  r'\\(?:boxed|fbox)(?![A-Za-z])\s*+(?:(\{)|([\w+(\[-][^\s\\${}]*+))|\\.|[{}]', re.DOTALL
)

_LETTER = r'[(\[{*$]*+\s*+([A-Za-z])\s*+[)\]}.:*$]*+'
_ALONE = re.compile(_LETTER)
_STATED = re.compile(
  r'\b(?i:answer)\b(?:\s++is\b|\s++would\s++be\b)?[\s:=]*+(?:(?i:option|choice)\s++)?[(\[{*$]*+'
  r"([A-Z]|[b-z]|a(?!\s++\w))(?![\w'’-])"
)
_LEADING = re.compile(r'\s*+\**+([A-Z])[)\].:*]++(?!\S)')
_BRACKETED = re.compile(r'[(\[]([A-Z])[)\]]')
_TOKEN = re.compile(r"(?<![\w'’-])([A-Z])(?![\w'’-])(?!(?<=A)\s++\w)")

_IN_TEXT = re.compile(
  r'(?:(?<![\w)\]}.,%])-)?[$€£¥]?(?:[0-9]++(?:,[0-9]++)*+(?:\.[0-9]++)?|(?<![0-9.])\.[0-9]++)'
  r'(?:[eE][+-]?[0-9]++)?'
)

_WORDS = r'text|textbf|textit|textrm|textnormal|mathrm|mathbf|mbox|operatorname'
_BRACES = re.compile(rf'\\(?:{_WORDS})\s*+(\{{)|\\.|[{{}}]|[^\\{{}}]++|\\', re.DOTALL)
_THIN = re.compile(r'\\!|(?<=[0-9])(?:\\,|\{,\})(?=[0-9]{3}(?![0-9]))')
_SPACING = re.compile(r'\\(?:left|right|displaystyle|quad|qquad)(?![A-Za-z])|\\[,;:()$ \[\]]|[~$]')
# Spaces that go, but for those (group 1) without which two numbers would be one.
_GAPS = re.compile(r'((?<=[0-9])\s++(?=[0-9])|(?<=[0-9],)\s++(?=[0-9]{3}))|\s++')
_ROOT_DIGIT = re.compile(r'\\sqrt\s*+([0-9])')
_FRAC_NAME = re.compile(r'\\[dtc]frac(?![A-Za-z])')
_FRAC_DIGITS = re.compile(r'\\frac\s*+(?:([0-9])|(\{[^{}]*+\}))\s*+([0-9]|\{[^{}]*+\})')
_NAMED = re.compile(r'\s*+[A-Za-z]\s*+=(?!=)')


def number(text: str) -> str | None:
  """A decimal number: no zeros that say nothing, no '-0', a point only before digits.

  It has an exponent only where it would begin or end with more than a thousand zeros.

  Args:
    text: the number alone; '1/2', '½' and '5 or 6' are none, '1 234' and '1.234,5' neither.

  Returns:
    The number, or None, also where its exponent lies beyond ±10^9.
  """
  quantity = _split(text)
  if quantity is None or (decimal := _decimal(quantity.value)) is None:
    return None
  return _render(quantity.negative, *decimal)


def fraction(text: str) -> str | None:
  r"""A rational number in lowest terms, 'p/q' or 'p': '0.75', '3/4', '\frac{3}{4}', '\dfrac34'.

  Mixed numbers, '1 1/2' and '1\frac12', are sums. Parts beyond a thousand digits are not parsed;
  a decimal that would have such parts stays as `number` has it.

  Returns:
    The number, or None, also where it divides by zero.
  """
  quantity = _split(_FRAC.sub(r' \1\2/\3\4 ', text))
  if quantity is None:
    return None
  value = quantity.value
  if mixed := _MIXED.fullmatch(value):
    whole, above, below = (_integer(part) for part in mixed.groups())
    if whole is None or above is None or not below:
      return None
    return _ratio(quantity.negative, whole + Fraction(above, below))
  upper, slash, lower = value.partition('/')
  if not slash:
    decimal = _decimal(value)
    if decimal is None:
      return None
    exact = _exact(decimal)
    if exact is None:
      return _render(quantity.negative, *decimal)
    return _ratio(quantity.negative, exact)
  parts = [_signed(part) for part in (upper, lower)]
  if parts[0] is None or not parts[1]:
    return None
  ratio = parts[0] / parts[1]
  return _ratio(quantity.negative != (ratio < 0), abs(ratio))


def with_units(text: str) -> tuple[str, str] | None:
  """A number and its unit, apart: '5 cm^2' gives ('5', 'cm^2'), '$18' gives ('18', '$').

  A unit is a sign (%, °, money), an abbreviation of the table in this file, or up to four words of
  three letters or more that a space parts from the number, joined by spaces or '/'. '3x', '3 pi'
  and '3 million' have none and are no such numbers.

  Returns:
    The number, as `number` has it, and the unit, which may be empty; or None.
  """
  quantity = _split(text)
  if quantity is None or (decimal := _decimal(quantity.value)) is None:
    return None
  return _render(quantity.negative, *decimal), quantity.unit


def boxed(text: str) -> str | None:
  r"""What the last whole \boxed{...} or \fbox{...} holds, or the word after one without braces.

  Braces balance, but for escaped ones. A box that a cut has left open is none. This takes a text
  apart rather than spelling it: what it returns holds no box.

  Returns:
    The content without spaces around it, or None where there is no box or an empty one.
  """
  best = (-1, 0, 0)  # the start of a box, the start of what it holds, its end
  opened: list[tuple[int, int] | None] = []
  for match in _BOX.finditer(text):
    if match[2]:
      found = (match.start(), match.start(2), match.end(2))
    elif match[1]:
      opened.append((match.start(), match.end()))
      continue
    elif match[0] == '{':
      opened.append(None)
      continue
    elif match[0] == '}' and opened and (box := opened.pop()):
      found = (*box, match.start())
    else:
      continue
    best = max(best, found)
  return text[best[1] : best[2]].strip() or None


def letter(text: str, options: str = 'ABCDE') -> str | None:
  """The option of a multiple-choice question that an answer names, in upper case.

  The first of these that there is: the text is one letter ('(B)', 'b.'); the last 'answer is B' or
  'Answer: b'; a letter that begins the text ('B. Paris'); the only one in brackets; the only whole
  word that is one upper-case letter. There, an 'A' before a word is an article: 'A dog' names none,
  and neither does 'The answer is a dog', while 'The answer is A because' does. 'The' is no T.

  Args:
    text: an answer, with or without words around it.
    options: the letters to choose from, upper case.

  Returns:
    The letter, or None where there is none, or two that differ, or one that is no option.
  """
  if alone := _ALONE.fullmatch(text.strip()):
    found = {alone[1].upper()}
  elif stated := [x for x in map(str.upper, _STATED.findall(text)) if x in options]:
    found = {stated[-1]}
  elif leading := _LEADING.match(text):
    found = {leading[1]}
  else:
    found = set(_BRACKETED.findall(text)) or set(_TOKEN.findall(text))
  found &= set(options)
  return found.pop() if len(found) == 1 else None


def last_number(text: str) -> str | None:
  """The last number of a free text, as `number` has it, which is how evaluation harnesses read one.

  A minus counts where no word or bracket stands before it: '3-5' ends in 5. '3/4' ends in 4.

  Returns:
    The number, or None where there is none.
  """
  last = ''
  for match in _IN_TEXT.finditer(text.translate(_TABLE)):
    last = match[0]
  return number(last) or number(last.rpartition(',')[2])  # such as '1,2', which are two numbers


def first_integer(text: str) -> str | None:
  """The first integer of a text, for short completions: of '$1,200.' '1200', of '3.5' '3'.

  Returns:
    The integer without commas, or None where there is none.
  """
  match = _INTEGER.search(text)
  return match.group().replace(',', '') if match else None


def math_answer(text: str) -> str | None:
  r"""The answer of a mathematics problem: what `boxed` finds, or else the text.

  Rational numbers become what `fraction` returns, their units dropped. All else keeps its LaTeX but
  for what does not show: spaces, $, \left and \right, \text{}, degree signs, a full stop at the
  end; \dfrac34 becomes \frac{3}{4}, and 'x = 5' becomes '5'. No algebra is done: 'x+1' and '1+x'
  differ.

  Returns:
    The answer, or None where nothing is left of it, or five rounds find more to remove.
  """
  for _ in range(5):
    once = _math_once(text)
    if once == text:
      return text or None
    text = once
  return None


class Encoded(NamedTuple):
  """Answers of Q questions as integers.

  Attributes:
    codes: by question, the codes (n,) of its answers, int32; they index `texts`, or are
      `UNPARSEABLE`.
    texts: by question, its canonical answers by code; None for the class of unparseable ones.
    golds: the codes (Q,) of the right answers, int32; `NO_GOLD` where it is not known. An answer is
      right where its code equals this.
  """

  codes: tuple[np.ndarray, ...]
  texts: tuple[tuple[str | None, ...], ...]
  golds: np.ndarray

  @property
  def num_distinct(self) -> np.ndarray:
    """How many distinct answers each question has drawn (Q,), unparseable codes not counted."""
    return np.array([len(np.unique(x[x != UNPARSEABLE])) for x in self.codes], np.int32)


def encode(
  answers: Sequence[Sequence[str]],
  golds: Sequence[str | None] | None = None,
  normalise: Callable[[str], str | None] = math_answer,
) -> Encoded:
  """Numbers the answers of each question in the order of their first appearance.

  What cannot be parsed has the code `UNPARSEABLE`; before votes are counted, `drop_unparseable` or
  `unparseable_as_class` decides about it.

  Args:
    answers: by question, its answers as they were written; their numbers may differ.
    golds: by question, the right answer, or None where it is not known. One that no answer equals
      has a code of its own, the last, and so has one that cannot be parsed: no answer is right.
    normalise: one of this file's functions, or another that returns a text or None.

  Raises:
    ValueError: if the golds are not one a question, or something is no text.
  """
  if golds is not None and len(golds) != len(answers):
    raise ValueError(f'{len(answers)} questions need as many golds, got {len(golds)}.')
  seen: dict[str, str | None] = {}

  def canonical(text: str, q: int) -> str | None:
    if not isinstance(text, str):
      raise ValueError(f'Question {q} has an answer that is no text: {text!r}.')
    if text not in seen:
      seen[text] = normalise(text)
    return seen[text]

  codes, texts, right = [], [], []
  for q, row in enumerate(answers):
    if isinstance(row, str):
      raise ValueError(f'Question {q} needs a sequence of answers, got the text {row!r}.')
    index: dict[str, int] = {}
    found = [canonical(text, q) for text in row]
    code = [UNPARSEABLE if x is None else index.setdefault(x, len(index)) for x in found]
    codes.append(np.array(code, np.int32))
    gold = None if golds is None else golds[q]
    if gold is None:
      right.append(NO_GOLD)
    else:
      parsed = canonical(gold, q)
      # A gold that cannot be parsed differs from all that can.
      right.append(index.setdefault(gold if parsed is None else parsed, len(index)))
    texts.append(tuple(index))
  return Encoded(tuple(codes), tuple(texts), np.array(right, np.int32))


def drop_unparseable(encoded: Encoded) -> Encoded:
  """Leaves out the answers that cannot be parsed; a question may be left with fewer, or none."""
  return encoded._replace(codes=tuple(x[x != UNPARSEABLE] for x in encoded.codes))


def unparseable_as_class(encoded: Encoded) -> Encoded:
  """Makes the answers of a question that cannot be parsed one answer more, which is never right.

  Its code is the last, and its text None; questions that have no such answer stay as they are.
  """
  codes, texts = [], []
  for code, text in zip(encoded.codes, encoded.texts, strict=True):
    lost = code == UNPARSEABLE
    codes.append(np.where(lost, np.int32(len(text)), code))
    texts.append((*text, None) if lost.any() else text)
  return encoded._replace(codes=tuple(codes), texts=tuple(texts))


class _Quantity(NamedTuple):
  negative: bool
  value: str
  unit: str


def _split(text: str) -> _Quantity | None:
  """Takes the sign, the money and the unit off a number; None where what follows it is no unit."""
  text = _DEGREES.sub('°', _ESCAPED.sub(r'\1', text.translate(_TABLE))).strip()
  if text[:1] == text[-1:] == '$':  # LaTeX rather than money
    text = text.strip('$')
  text = text.strip().rstrip('.,;:!')
  end = _POWER.search(text, max(0, len(text) - 6))
  power = ''
  if end and end.end() == len(text):
    power, text = '^' + (end[1] or end[2]), text[: end.start()]
  value = text.rstrip(_UNIT_END)
  tail = text[len(value) :] + power
  if len(tail) > _MAX_UNIT:
    return None
  money = _MONEY.match(value)
  assert money is not None
  if money[1] and money[3]:
    return None
  unit = ' '.join([*money[2][:1], *tail.split()])
  if not _is_unit(unit, spaced=tail[:1].isspace()):
    return None
  return _Quantity('-' in money[1] + money[3], value[money.end() :].strip(), unit)


def _is_unit(unit: str, spaced: bool) -> bool:
  words = [word.partition('^')[0] for word in re.split(r'[ /]', unit)] if unit else []
  if len(words) > 4:
    return False
  known = _SIGNS | (_SPACED if spaced else _GLUED)
  for i, word in enumerate(words):
    is_word = (spaced or i > 0) and len(word) >= 3 and word.isalpha()
    if word not in known and not (is_word and word.lower() not in _NOT_UNITS):
      return False
    known = _SIGNS | _SPACED
  return True


def _decimal(text: str) -> tuple[str, int] | None:
  """A decimal without a sign, digits · 10^k, as (digits, k); no 0 begins or ends the digits."""
  match = _DECIMAL.fullmatch(text)
  if match is None:
    return None
  whole, part = match[1].replace(',', ''), match[2] or ''
  if not whole and not part:
    return None
  digits = (whole + part).lstrip('0')
  short = digits.rstrip('0')
  if not short:
    return '', 0
  power = (match[5] or '').lstrip('0')
  if len(power) > len(str(_MAX_EXPONENT)):
    return None
  k = int((match[4] or '') + (power or '0')) - len(part) + len(digits) - len(short)
  return (short, k) if abs(k) <= _MAX_EXPONENT else None


def _render(negative: bool, digits: str, k: int) -> str:
  if not digits:
    return '0'
  point = len(digits) + k
  if k > _MAX_ZEROS or point < -_MAX_ZEROS:
    text = f'{digits}e{k}'
  elif k >= 0:
    text = digits + '0' * k
  elif point > 0:
    text = f'{digits[:point]}.{digits[point:]}'
  else:
    text = '0.' + '0' * -point + digits
  return '-' * negative + text


def _exact(decimal: tuple[str, int]) -> Fraction | None:
  digits, k = decimal
  if len(digits) + max(k, 0) > _MAX_DIGITS or -k >= _MAX_DIGITS:
    return None
  return Fraction(int(digits or '0')) * Fraction(10) ** k


def _signed(text: str) -> Fraction | None:
  sign, text = re.fullmatch(r'\s*+([+-]?)\s*+(.*)', text, re.DOTALL).groups()  # type: ignore[union-attr]
  decimal = _decimal(text.rstrip())
  exact = _exact(decimal) if decimal else None
  return exact if exact is None or sign != '-' else -exact


def _integer(digits: str) -> int | None:
  return int(digits) if len(digits) <= _MAX_DIGITS else None


def _ratio(negative: bool, value: Fraction) -> str | None:
  limit = 10**_MAX_DIGITS
  if value.numerator >= limit or value.denominator >= limit:
    return None
  return '-' * (negative and value != 0) + str(value)


def _math_once(text: str) -> str:
  content = boxed(text)
  text = content if content is not None else text
  text = _THIN.sub('', _FRAC_NAME.sub(r'\\frac', _unwrap(text.translate(_TABLE))))
  text = _SPACING.sub(' ', text)
  if named := _NAMED.match(text):
    text = text[named.end() :]
  rational = fraction(text)
  if rational is not None:
    return rational
  text = _FRAC_DIGITS.sub(_braced, _ROOT_DIGIT.sub(r'\\sqrt{\1}', _DEGREES.sub('', text)))
  text = text.replace('°', '').replace('\\%', '%').strip().rstrip('.')
  return _GAPS.sub(lambda gap: ' ' if gap[1] else '', text)


def _unwrap(text: str) -> str:
  r"""Leaves \text{...} and its like without the command and its braces."""
  pieces, opened = [], []
  for match in _BRACES.finditer(text):
    token = match[0]
    if match[1] or token == '{':
      opened.append(bool(match[1]))
    plain = not (match[1] or (token == '}' and opened and opened.pop()))
    pieces.append(token if plain else ' ')
  return ''.join(pieces)


def _braced(match: re.Match[str]) -> str:
  upper, lower = match[1] or match[2], match[3]
  return '\\frac' + ''.join(x if x[0] == '{' else f'{{{x}}}' for x in (upper, lower))
