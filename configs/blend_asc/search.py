r"""Which blend: candidates on the validation sources, which quick.py and lm.py do not score.

python -m experiments.blend_asc.main --config=configs/blend_asc/search.py

About 5 minutes on 2 cores of an AMD EPYC beside another job, and 4 for its pool. Exponents of 2
to 4 are within 1 % of one another on the mean over sources and budgets; 1 is 3 % worse.
"""

import ml_collections

from configs.blend_asc import lm


def get_config() -> ml_collections.ConfigDict:
  """Exponents of the blend and ranks by a schedule, on other laws, digits and questions."""
  config = lm.get_config()
  config.seed = 100
  config.num_seeds = 32
  config.sources = ('quarter', 'gap', 'dirichlet', 'forest', 'smollm2')
  config.source.quarter = {'kind': 'margin_law', 'questions': 400, 'answers': 4, 'gamma': 0.25}
  config.source.forest.part = 0
  config.source.smollm2.part = 0
  config.policies = (
    'sc', 'asc', 'plugin_margin', 'lookahead', 'blend_0.5', 'blend_1', 'blend_1.5', 'blend',
    'blend_3', 'blend_4', 'blend_6',
  )  # fmt: skip
  config.caps = ()
  return config
