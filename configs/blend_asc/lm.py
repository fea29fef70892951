r"""Every policy on SmolLM2's answers to arithmetic and to tasks of reasoning-gym.

  python -m experiments.blend_asc.main --config=configs/blend_asc/lm.py

The pool, 256 samples of each of 108 questions, is drawn once and kept in config.pool_dir: about 4
minutes on 2 cores of an AMD EPYC, and 76 s for the rest beside another job. The blend needs 2.6
times fewer samples than self-consistency on the mean over the budgets.
"""

import ml_collections

from configs.blend_asc import quick


def get_config() -> ml_collections.ConfigDict:
  """The policies of quick.py; part 0 of the questions is for validation, part 1 for the test."""
  config = quick.get_config()
  config.model = 'smollm2-135m-instruct'
  config.dtype = 'float32'
  config.pool_dir = 'data/answers'
  config.sources = ('smollm2',)
  config.source.smollm2 = {
    'kind': 'smollm2', 'part': 1, 'seed': 0, 'samples': 256, 'temperature': 1.0, 'max_tokens': 3,
    'tasks': {
      'sums1': 72, 'sums2': 24, 'products': 40, 'left': 24, 'basic_arithmetic': 24,
      'simple_equations': 16, 'leg_counting': 8, 'gcd': 8,
    },
  }  # fmt: skip
  config.num_seeds = 32
  return config
