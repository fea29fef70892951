r"""SmolLM2 under several system prompts and depths, as author and as judge.

python -m experiments.self_preference.main --config=configs/self_preference/lm.py

Answers and votes are kept in the workdir: the same command goes on where it stopped.
2 CPU cores of an AMD EPYC, beside other jobs: 21 minutes. Raw 0.481, excess +0.00008, the same
verdict in both orders in 2 % of pairs at most.
"""

import ml_collections

from configs.self_preference import quick


def get_config() -> ml_collections.ConfigDict:
  """Authors, questions and prompts."""
  config = quick.get_config()
  config.parts = ('lm',)
  config.lm = {
    'model': 'smollm2-135m-instruct',
    'dtype': 'float32',
    'seed': 0,  # of the questions
    'tasks': {'sums1': 16, 'sums2': 16, 'products': 24, 'left': 24},
    # What an author is told, how many examples it sees before it answers, and how many of the last
    # blocks it lacks. A judge is told the same and lacks the same; it sees no examples.
    'authors': {
      'plain': {'system': 'You are a helpful assistant.', 'shots': 0, 'drop': 0},
      'teacher': {'system': 'You are a patient maths teacher.', 'shots': 0, 'drop': 0},
      'hasty': {'system': 'You answer fast.', 'shots': 0, 'drop': 0},
      'examples': {'system': 'You are a helpful assistant.', 'shots': 2, 'drop': 0},
      'drop1': {'system': 'You are a helpful assistant.', 'shots': 0, 'drop': 1},
      'drop2': {'system': 'You are a helpful assistant.', 'shots': 0, 'drop': 2},
      'drop4': {'system': 'You are a helpful assistant.', 'shots': 0, 'drop': 4},
    },
    'shots': (('What is 5 + 8?', '13'), ('What is 4 times 6?', '24')),
    'answer': 'The answer is ',  # how an answer begins
    'answer_tokens': 3,
    'question': (
      'Question: {question}\nAnswer A: {a}\nAnswer B: {b}\n'
      'Which answer is right? Say A, B or T for a tie.'
    ),
    'verdict': 'The correct answer is',  # how a verdict begins; the next token is the verdict
    'spellings': (('A', ' A'), ('B', ' B'), ('T', ' T', ' tie', ' Tie')),
    'batch_size': 16,
  }  # fmt: skip
  return config
