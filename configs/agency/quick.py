r"""The census, smaller: six questions, two beginnings, three questions with whole answers.

  python -m experiments.agency.main --config=configs/agency/quick.py

2 minutes on 2 cores of an AMD EPYC. No group is strictly unanimous over all tokens under equal
weights; Waluigi's direction eases suppression 1.08 [1.04, 1.15] times.
"""

import ml_collections

from configs.agency import census


def get_config() -> ml_collections.ConfigDict:
  """The rest as in the whole census."""
  config = census.get_config()
  config.questions = config.questions[:6]
  config.prefixes = config.prefixes[:2]
  config.shifts = 1_000
  config.sequence_questions = 3
  return config
