r"""Published rows, judges that cannot know themselves, and the tests' calibration.

  python -m experiments.self_preference.main --config=configs/self_preference/quick.py

2 CPU cores of an AMD EPYC: 1 min 25 s. 15 of 32 published judges stay
significant; judges that cannot know themselves have an excess of +0.171, and of 0 where errors are
the same.
"""

import ml_collections


def get_config() -> ml_collections.ConfigDict:
  """Parts of the study, with the numbers of each."""
  config = ml_collections.ConfigDict()
  config.seed = 0
  config.parts = ('golden', 'digits', 'calibration')
  config.alpha = 0.05
  config.num_draws = 999  # sign patterns and bootstrap draws of a cell
  config.min_ilsp = 5  # items that a proxy needs; the paper needs as many legitimate ones too
  config.min_lsp = 0
  config.stability_draws = 200  # orders of the proxies
  # Logistic regressions on scikit-learn's digits, each with few digits and few pixels.
  config.digits = {
    'num_seeds': 5, 'models': 8, 'train': 60, 'pixels': 24,
    # Added to the logit of the judge's own answer; 0 is a judge that cannot know itself.
    'bonuses': (0.0, 0.05, 0.1, 0.2, 0.4, 0.8),
    # Standard deviation of a logit that depends on who wrote an answer, as wording does.
    'noises': (0.0, 1.0),
  }  # fmt: skip
  config.calibration = {
    'datasets': 2000, 'num_items': 64, 'proxies': (1, 5), 'bonuses': (0.0, 0.1, 0.2, 0.4),
    'difficulty': 0.8, 'noise': 0.4, 'num_draws': 199,
  }  # fmt: skip
  return config
