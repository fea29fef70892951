"""What a run shows: the table, the claim, and the pictures."""

from collections.abc import Iterator

import numpy as np

from experiments.pql import figures
from experiments.pql.data import Data
from lib.stats import intervals
from lib.train import metrics, report
from lib.train import figures as plots

BETTER = {  # of the scores, and their order in the table
  'success': 'higher',
  'reward': 'higher',
  'episode_length': 'lower',
  'flow_loss': 'lower',
  'energy_distance_euler_1': 'lower',
  'energy_distance_euler_2': 'lower',
  'energy_distance_euler_10': 'lower',
  'energy_distance_euler_100': 'lower',
  'energy_distance_one_step': 'lower',
  'distillation_error': 'lower',
  'jacobian_sq': 'lower',
  'spectral_norm_max': 'lower',
}
MIN_GAIN = 0.2  # of success over the behaviour flow, in absolute terms


def scores(run, name: str) -> dict[str, dict[int, np.ndarray]]:
  """Reads the scores of one method by metric and step, each (S,)."""
  by_metric: dict[str, dict[int, np.ndarray]] = {}
  for record in metrics.read(run.workdir / name / 'metrics.jsonl'):
    if record['kind'] == 'eval':
      for metric in BETTER.keys() & record.keys():
        by_metric.setdefault(metric, {})[record['step']] = np.asarray(record[metric])
  return by_metric
