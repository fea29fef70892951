"""A language model as several authors and judges: what they answer, and how they vote."""

import hashlib
import json
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lib.io import files, json_objects, jsonl, models, questions, vote_records
from lib.judging import categories, votes
from lib.lm import generate, score, text, transformer
from lib.train import console, signals
from lib.voting import answers as voting_answers

GOLD = 'gold'  # the reference that is always right
_FIELDS = {'key': str, 'A': float, 'B': float, 'T': float, 'mass': float}


class Game(NamedTuple):
  """One question to a judge: `item`, a number, with answer `a` shown before `b`."""

  item: int
  a: str
  b: str


class Collected(NamedTuple):
  """Answers and votes.

  Attributes:
    items: the questions.
    answers: each author's, '' where there is none.
    probs: of A, B and T, by judge and game.
    mass: the probability of the three labels together, likewise.
    asked: number of prompts that a model has read, of all games of all judges.
  """

  items: list[questions.Question]
  answers: dict[str, list[str]]
  probs: dict[str, dict[Game, np.ndarray]]
  mass: dict[str, dict[Game, float]]
  asked: int


def check(config: Any) -> None:
  """Raises a ValueError that names the first bad field."""
  models.dtype(config.dtype, 'config.lm.dtype')
  for name in ('batch_size', 'answer_tokens'):
    if not config[name] > 0:
      raise ValueError(f'config.lm.{name} must be positive, got {config[name]}.')
  if not config.tasks:
    raise ValueError('config.lm.tasks is empty.')
  for task in config.tasks:
    if task not in questions.TASKS:
      raise ValueError(f'config.lm.tasks: {task!r} is none of {", ".join(questions.TASKS)}.')
  if len(config.authors) < 3 or GOLD in config.authors:
    raise ValueError(f'config.lm.authors: three or more are needed, and none named {GOLD!r}.')
  for name, author in config.authors.items():
    if not 0 <= author.shots <= len(config.shots):
      raise ValueError(f'config.lm.authors.{name}.shots: there are {len(config.shots)} examples.')
    if author.drop < 0:
      raise ValueError(f'config.lm.authors.{name}.drop must not be negative, got {author.drop}.')
  try:
    shown = config.question.format(question='<q>', a='<a>', b='<b>')
  except (LookupError, ValueError) as error:
    raise ValueError(f'config.lm.question: {error!r}') from error
  if not all(part in shown for part in ('<q>', '<a>', '<b>')):
    raise ValueError('config.lm.question must have {question}, {a} and {b}.')
  if len(config.spellings) != votes.NUM_LABELS:
    raise ValueError('config.lm.spellings must be those of A, B and T.')


def load(config: Any) -> models.Model:
  """Loads the model and checks what needs it: depths, and that labels are single tokens."""
  model = models.load(config.model, models.dtype(config.dtype))
  for name, author in config.authors.items():
    if author.drop >= model.arch.num_layers:
      raise ValueError(f'config.lm.authors.{name}.drop: there are {model.arch.num_layers} blocks.')
  label_ids(config, model)
  questions.make(config.tasks, config.seed)
  return model


def label_ids(config: Any, model: models.Model) -> np.ndarray:
  """The tokens that spell A, B and T (3, m), rows filled up with -1."""
  rows = []
  for spellings in config.spellings:
    tokens = [model.tokenizer.encode(spelling) for spelling in spellings]
    for spelling, encoded in zip(spellings, tokens, strict=True):
      if len(encoded) != 1:
        raise ValueError(f'config.lm.spellings: {spelling!r} is no single token.')
    rows.append([encoded[0] for encoded in tokens])
  ids = np.full((len(rows), max(map(len, rows))), -1)
  for row, found in zip(ids, rows, strict=True):
    row[: len(found)] = found
  return ids


def collect(config: Any, model: models.Model, workdir: pathlib.Path) -> Collected:
  """Lets all authors answer and judge; what the workdir holds is not asked again."""
  items = questions.make(config.tasks, config.seed)
  given = {}
  for name in config.authors:
    given[name] = answers(config, model, name, items, workdir / 'answers' / f'{name}.json')
    right = sum(a == item.gold for a, item in zip(given[name], items, strict=True))
    console.say(f'{name}: {right} of {len(items)} right, {given[name].count("")} without an answer')
    signals.check()
  asked = games(items, given)
  voters: dict[tuple[str, int], list[str]] = {}  # judges that are one and the same model
  for name, author in config.authors.items():
    voters.setdefault((author.system, author.drop), []).append(name)
  probs, mass = {}, {}
  for number, ((system, drop), names) in enumerate(voters.items(), 1):
    console.say(f'judge {number} of {len(voters)} ({", ".join(names)}): {len(asked)} prompts')
    file = workdir / 'votes' / f'{names[0]}.jsonl'
    prompts = [judge_prompt(config, model, system, items[g.item].prompt, g) for g in asked]
    rows = ask(config, model, drop, prompts, file)
    for name in names:
      probs[name] = dict(zip(asked, rows[:, :3], strict=True))
      mass[name] = dict(zip(asked, rows[:, 3], strict=True))
  return Collected(items, given, probs, mass, len(asked) * len(voters))


def answers(
  config: Any,
  model: models.Model,
  name: str,
  items: Sequence[questions.Question],
  path: pathlib.Path,
) -> list[str]:
  """An author's answers: the first integer of what the model says, greedily."""
  if path.is_file():
    found = json_objects.read_object(path).get('answers')
    if isinstance(found, list) and len(found) == len(items):
      return [str(answer) for answer in found]
    raise ValueError(f'{path}: holds no answers to {len(items)} questions; remove it.')
  author = config.authors[name]
  messages = [{'role': 'system', 'content': author.system}]
  for question, answer in config.shots[: author.shots]:
    messages += [
      {'role': 'user', 'content': question},
      {'role': 'assistant', 'content': f'{config.answer}{answer}.'},
    ]
  encode = model.tokenizer.encode
  prompts = [
    model.tokenizer.encode_chat([*messages, {'role': 'user', 'content': item.prompt}])
    + encode(config.answer)
    for item in items
  ]
  arch, params = cut(model, author.drop)
  completions = text.complete(
    arch, params, prompts, model.tokenizer.decode, max_tokens=config.answer_tokens,
    stop_tokens=model.tokenizer.eos, batch_size=config.batch_size,
  )  # fmt: skip
  found = [voting_answers.first_integer(completion.text) or '' for (completion,) in completions]
  files.write_json(path, {'answers': found})
  return found


def games(items: Sequence[questions.Question], given: dict[str, list[str]]) -> list[Game]:
  """What each judge is asked: the right answer beside each wrong one, in both orders.

  Harmful items compare a wrong answer with the reference's right one, legitimate items the
  reference's wrong answer with a right one. So these are all, whoever wrote the answers, and the
  same answer of several authors is asked about once.
  """
  asked = []
  for i, item in enumerate(items):
    wrong = sorted({row[i] for row in given.values()} - {item.gold, ''})
    for answer in wrong:
      asked += [Game(i, answer, item.gold), Game(i, item.gold, answer)]
  return asked


def judge_prompt(
  config: Any, model: models.Model, system: str, question: str, game: Game
) -> list[int]:
  """The tokens of a game, up to the verdict."""
  content = config.question.format(question=question, a=game.a, b=game.b)
  messages = [{'role': 'system', 'content': system}, {'role': 'user', 'content': content}]
  return model.tokenizer.encode_chat(messages) + model.tokenizer.encode(config.verdict)


def ask(
  config: Any,
  model: models.Model,
  drop: int,
  prompts: Sequence[list[int]],
  path: pathlib.Path,
) -> np.ndarray:
  """Probabilities of A, B and T, and that of all three together, at each verdict (n, 4).

  They are kept in `path` batch by batch.
  """
  for i, tokens in enumerate(prompts):
    text.check_prompt(model.arch, tokens, 1, f'judge prompt {i}')
  keys = [hashlib.sha256(np.array(tokens, np.int32)).hexdigest()[:24] for tokens in prompts]
  known = _kept(path)
  left = sorted(
    (i for i, key in enumerate(keys) if key not in known), key=lambda i: len(prompts[i])
  )
  arch, params = cut(model, drop)
  ids, size = label_ids(config, model), config.batch_size
  for first in range(0, len(left), size):
    signals.check()
    batch = left[first : first + size]
    padded = batch + batch[:1] * (size - len(batch))  # one shape, one program
    length = -(-max(len(prompts[i]) for i in batch) // 16) * 16
    tokens, positions = generate.pad_left([prompts[i] for i in padded], length)
    rows = np.asarray(_verdicts(arch, params, tokens, positions, ids), np.float64)
    for i, row in zip(batch, rows, strict=False):
      known[keys[i]] = row
    _append(path, [(keys[i], known[keys[i]]) for i in batch])
    done = first + len(batch)
    if done // 160 > first // 160 or done == len(left):
      console.say(f'  {done} of {len(left)}')
  return np.array([known[key] for key in keys]).reshape(-1, 4)


def _read_verdicts(arch, params, tokens, positions, ids):
  log_probs = score.next_token_log_probs(arch, params, tokens, positions)
  probs, _ = votes.label_probs(log_probs, ids)
  mass = jnp.exp(jax.nn.logsumexp(score.label_log_probs(log_probs, ids), axis=-1))
  return jnp.concatenate([probs, mass[:, None]], axis=-1)


_verdicts = jax.jit(_read_verdicts, static_argnums=0)


def cut(model: models.Model, drop: int) -> tuple[transformer.Architecture, transformer.Params]:
  """The model without its last blocks."""
  left = model.arch.num_layers - drop
  if not drop:
    return model.arch, model.params
  params = transformer.select_layers(model.params, range(left))
  return model.arch._replace(num_layers=left), params


def pairs(collected: Collected) -> tuple[vote_records.GamePairs, tuple[str, ...]]:
  """All pairs of games, of every judge, reference and proxy; and the names of models."""
  given = {**collected.answers, GOLD: [item.gold for item in collected.items]}
  names = tuple(given)
  golds = given[GOLD]
  columns: list[tuple[int, ...]] = []
  games: list[tuple[np.ndarray, ...]] = []
  for example, judge, reference, proxy in _places(names, len(golds)):
    texts = [given[names[m]][example] for m in (judge, proxy, reference)]
    if '' in texts:
      continue
    j_right, k_right, r_right = (answer == golds[example] for answer in texts)
    if j_right != k_right or j_right == r_right:
      continue
    category = categories.LEGITIMATE if j_right else categories.HARMFUL
    j, k, r = texts
    voted = collected.probs[names[judge]]
    columns.append((example, judge, reference, proxy, category, j == k))
    games.append(
      tuple(
        voted[Game(example, *order)] for answer in (j, k) for order in ((answer, r), (r, answer))
      )
    )
  table = np.array(columns, np.int32).reshape(-1, 6).T
  probs = np.array(games).reshape(-1, 2, 2, votes.NUM_LABELS)
  found = vote_records.GamePairs(
    example=table[0],
    judge=table[1],
    reference=table[2],
    proxy=table[3],
    judge_games=probs[:, 0],
    proxy_games=probs[:, 1],
    category=table[4].astype(np.int8),
    same_error=table[5].astype(np.int8),
    num_dropped=0,
    num_unused=0,
  )
  return found, names


def _places(names: Sequence[str], num_items: int) -> Iterable[tuple[int, int, int, int]]:
  authors = [i for i, name in enumerate(names) if name != GOLD]
  for judge in authors:
    for reference in range(len(names)):
      for proxy in authors:
        if len({judge, reference, proxy}) == 3:
          for example in range(num_items):
            yield example, judge, reference, proxy


def _kept(path: pathlib.Path) -> dict[str, np.ndarray]:
  """The votes in a file; a line that a killed run left unfinished is removed."""
  if not path.is_file():
    return {}
  lines = jsonl.read(path, _FIELDS)
  with files.replacing(path) as stream:
    stream.writelines(line for line, _ in lines)
  return {
    record['key']: np.array([record[name] for name in ('A', 'B', 'T', 'mass')])
    for _, record in lines
  }


def _append(path: pathlib.Path, rows: Iterable[tuple[str, np.ndarray]]) -> None:
  path.parent.mkdir(parents=True, exist_ok=True)
  with open(path, 'ab') as stream:
    for key, (a, b, t, mass) in rows:
      record = {'key': key, 'A': float(a), 'B': float(b), 'T': float(t), 'mass': float(mass)}
      stream.write((json.dumps(record) + '\n').encode())
