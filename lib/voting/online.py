"""Host. Self-consistency on a budget with a sampler of one's own: ask, then tell its answers.

  ballots = online.empty(len(questions))
  for batch in online.allocate(ballots, budget=2_000, batch=16):
    online.tell(ballots, batch, [my_model(questions[q]) for q in batch])
  best = online.leaders(ballots)

The loop may be left at any time and taken up again, with a larger budget too: the ballots are all
there is to keep (`to_json`, `from_json`). Answers are strings, normalised by the caller
(`lib.voting.answers`); None is one that could not be read: it costs a sample and votes for nothing.
"""

import collections
import json
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import chex
import numpy as np

from lib.voting import policies
from lib.voting.paths import Votes


class Ballot(NamedTuple):
  """One question's answers so far: votes by answer, and unreadable ones."""

  votes: collections.Counter[str]
  unreadable: int = 0


def empty(num_questions: int) -> list[Ballot]:
  """Ballots without a vote."""
  if num_questions < 1:
    raise ValueError(f'An allocation needs a question, got {num_questions=}.')
  return [Ballot(collections.Counter()) for _ in range(num_questions)]


def spent(ballots: Sequence[Ballot]) -> int:
  """The number of samples so far."""
  return int(_votes(ballots).total.sum())


def ask(
  ballots: Sequence[Ballot],
  size: int,
  *,
  score: Callable[[Votes], chex.Array] = policies.blend,
  init: int = 2,
) -> list[int]:
  """The questions whose samples are worth most now.

  Args:
    ballots: the votes so far.
    size: how many, > 0; at most one sample of each question.
    score: a score of `lib.voting.policies`.
    init: samples that every question gets before the score counts, >= 1.

  Returns:
    Their indices, the most urgent first.
  """
  if size < 1 or init < 1:
    raise ValueError(f'A round needs a sample, got {size=}, {init=}.')
  votes = _votes(ballots)
  urgency = np.where(votes.total < init, np.inf, np.asarray(score(votes), np.float64))
  return np.lexsort((votes.total, -urgency))[:size].tolist()


def tell(ballots: list[Ballot], questions: Sequence[int], answers: Sequence[str | None]) -> None:
  """Counts one answer of each of the questions, in place.

  Raises:
    ValueError: if the numbers of questions and answers differ, a question does not exist, or an
      answer is neither a string nor None; then nothing is counted.
  """
  if len(questions) != len(answers):
    raise ValueError(f'{len(questions)} questions have {len(answers)} answers.')
  for question, answer in zip(questions, answers, strict=True):
    if not (isinstance(question, int | np.integer) and 0 <= question < len(ballots)):
      raise ValueError(f'No question {question!r} among {len(ballots)}.')
    if not isinstance(answer, str | None):
      raise ValueError(f'An answer is a string or None, got {answer!r}.')
  for question, answer in zip(questions, answers, strict=True):
    ballot = ballots[question]
    if answer is None:
      ballots[question] = ballot._replace(unreadable=ballot.unreadable + 1)
    else:
      ballot.votes[answer] += 1


def allocate(
  ballots: list[Ballot],
  budget: int,
  *,
  batch: int = 1,
  score: Callable[[Votes], chex.Array] = policies.blend,
  init: int = 2,
) -> Iterator[list[int]]:
  """Yields the questions to sample next, until the ballots hold `budget` samples.

  Args:
    ballots: the votes, which the caller adds to by `tell` between two rounds.
    budget: samples in all, those before included.
    batch: samples a round, > 0; at most one of each question.
    score: see `ask`.
    init: see `ask`.

  Yields:
    Indices of questions; the last round may be shorter.

  Raises:
    ValueError: if the caller asks for the next round without telling of the last.
  """
  before = -1
  while (now := spent(ballots)) < budget:
    if now == before:
      raise ValueError('Tell the answers of a round before the next.')
    before = now
    yield ask(ballots, min(batch, budget - now), score=score, init=init)


def leaders(ballots: Sequence[Ballot]) -> list[str | None]:
  """Each question's answer with the most votes, the first of tied ones; None without votes."""
  return [max(b.votes, key=b.votes.__getitem__) if b.votes else None for b in ballots]


def to_json(ballots: Sequence[Ballot]) -> str:
  """The ballots as a text, for `from_json`."""
  return json.dumps([{'votes': dict(b.votes), 'unreadable': b.unreadable} for b in ballots])


def from_json(text: str) -> list[Ballot]:
  """Reads `to_json`'s text; a ValueError names the first question that is not such a ballot."""
  try:
    items = json.loads(text)
  except RecursionError as error:
    raise ValueError('Not ballots: nested too deeply.') from error
  if not isinstance(items, list) or not items:
    raise ValueError('Not ballots: a list of one or more is wanted.')
  for number, item in enumerate(items):
    if not _is_ballot(item):
      raise ValueError(f'Ballot {number} does not hold numbers of votes.')
  return [Ballot(collections.Counter(item['votes']), item['unreadable']) for item in items]


def _is_ballot(item: object) -> bool:
  if not (isinstance(item, dict) and isinstance(item.get('votes'), dict)):
    return False
  votes, unreadable = [*item['votes'].values()], item.get('unreadable')
  if not all(type(n) is int and n >= 0 for n in (*votes, unreadable)):
    return False
  return 0 not in votes and sum(votes) + unreadable < 2**31  # the sum is counted in 32 bits


def _votes(ballots: Sequence[Ballot]) -> Votes:
  """Summary of all ballots, int32 arrays (Q,)."""
  top = [[*sorted(b.votes.values(), reverse=True)[:2], 0, 0] for b in ballots]
  return Votes(
    np.array([pair[0] for pair in top], np.int32),
    np.array([pair[1] for pair in top], np.int32),
    np.array([len(b.votes) for b in ballots], np.int32),
    np.array([b.votes.total() + b.unreadable for b in ballots], np.int32),
  )
