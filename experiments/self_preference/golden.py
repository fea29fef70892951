"""The published results of judges on harmful items, and what follows from them.

From the result files of the authors' public repository, `sanity_checks_for_self_preference`: each
row has all references and proxies of a judge, concatenated.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from lib.judging import aggregate
from lib.stats import hypotheses


class Row(NamedTuple):
  """A judge on a data set.

  Attributes:
    dataset: the data set.
    judge: the judge J.
    n: number of pairs (s_J, s_K).
    judge_mean: mean s_J.
    proxy_mean: mean s_K.
    excess: mean d = s_J - s_K.
    std: standard deviation of d (with n - 1).
    p_greater: one-sided p-value of the paired t test.
  """

  dataset: str
  judge: str
  n: int
  judge_mean: float
  proxy_mean: float
  excess: float
  std: float
  p_greater: float


ROWS: tuple[Row, ...] = (
  Row('MATH-500', 'llama-3.2-3b', 478, 0.3297, 0.3807, -0.0510, 0.1305, 1.00),
  Row('MATH-500', 'llama-3.1-8b', 405, 0.3226, 0.3814, -0.0588, 0.1485, 1.00),
  Row('MATH-500', 'llama-3.1-70b', 343, 0.3284, 0.3408, -0.0123, 0.2753, 0.796),
  Row('MATH-500', 'llama-3.3-70b', 226, 0.2892, 0.3024, -0.0132, 0.3772, 0.701),
  Row('MATH-500', 'gemma-2-9b', 415, 0.4322, 0.4472, -0.0150, 0.2152, 0.922),
  Row('MATH-500', 'gemma-2-27b', 391, 0.4080, 0.4272, -0.0192, 0.3595, 0.854),
  Row('MATH-500', 'qwen-2.5-3b', 337, 0.4882, 0.4914, -0.0033, 0.1333, 0.673),
  Row('MATH-500', 'qwen-2.5-7b', 193, 0.4776, 0.4118, 0.0658, 0.3937, 0.0107),
  Row('MATH-500', 'qwen-2.5-14b', 169, 0.4133, 0.3960, 0.0173, 0.3179, 0.240),
  Row('MATH-500', 'qwen-2.5-32b', 178, 0.5302, 0.3914, 0.1388, 0.3885, 1.9e-6),
  Row('MATH-500', 'qwen-2.5-72b', 133, 0.5918, 0.3705, 0.2213, 0.3375, 3.0e-12),
  Row('MMLU', 'llama-3.2-3b', 584, 0.2436, 0.3557, -0.1121, 0.1470, 1.00),
  Row('MMLU', 'llama-3.1-8b', 474, 0.3791, 0.3819, -0.0028, 0.1939, 0.623),
  Row('MMLU', 'llama-3.1-70b', 467, 0.4958, 0.4976, -0.0019, 0.3348, 0.548),
  Row('MMLU', 'llama-3.3-70b', 340, 0.6273, 0.5048, 0.1225, 0.3123, 1.6e-12),
  Row('MMLU', 'gemma-2-9b', 571, 0.3728, 0.4400, -0.0672, 0.3490, 1.00),
  Row('MMLU', 'gemma-2-27b', 575, 0.4527, 0.4179, 0.0348, 0.3992, 0.0184),
  Row('MMLU', 'qwen-2.5-3b', 594, 0.5288, 0.5225, 0.0064, 0.1929, 0.211),
  Row('MMLU', 'qwen-2.5-7b', 477, 0.5357, 0.4697, 0.0660, 0.3478, 2.0e-5),
  Row('MMLU', 'qwen-2.5-14b', 373, 0.6139, 0.4965, 0.1174, 0.3456, 9.0e-11),
  Row('MMLU', 'qwen-2.5-32b', 329, 0.7255, 0.5448, 0.1807, 0.3664, 1.4e-17),
  Row('MMLU', 'qwen-2.5-72b', 304, 0.6552, 0.4777, 0.1775, 0.3144, 2.6e-20),
  Row('MBPP+', 'llama-3.2-3b', 466, 0.2781, 0.2774, 0.0007, 0.0682, 0.409),
  Row('MBPP+', 'llama-3.1-8b', 411, 0.2899, 0.2846, 0.0053, 0.0527, 0.0216),
  Row('MBPP+', 'llama-3.1-70b', 398, 0.3771, 0.3374, 0.0397, 0.1673, 1.5e-6),
  Row('MBPP+', 'llama-3.3-70b', 327, 0.4119, 0.3308, 0.0811, 0.2462, 3.4e-9),
  Row('MBPP+', 'gemma-2-9b', 391, 0.2119, 0.2330, -0.0210, 0.2229, 0.969),
  Row('MBPP+', 'gemma-2-27b', 317, 0.4022, 0.3033, 0.0989, 0.3716, 1.6e-6),
  Row('MBPP+', 'qwen-2.5-3b', 456, 0.5089, 0.5153, -0.0064, 0.2152, 0.737),
  Row('MBPP+', 'qwen-2.5-7b', 343, 0.4628, 0.4025, 0.0603, 0.2998, 1.1e-4),
  Row('MBPP+', 'qwen-2.5-14b', 336, 0.2519, 0.2084, 0.0435, 0.2317, 3.3e-4),
  Row('MBPP+', 'qwen-2.5-32b', 316, 0.1705, 0.1651, 0.0054, 0.1953, 0.311),
)

_upper_tail = jax.jit(hypotheses.t_sf)

DATASETS = tuple(dict.fromkeys(row.dataset for row in ROWS))


def of_dataset(dataset: str) -> tuple[Row, ...]:
  """The rows of a data set, one of `DATASETS`.

  Raises:
    ValueError: if there is no such data set.
  """
  if dataset not in DATASETS:
    raise ValueError(f'The data set must be one of {DATASETS}, got {dataset!r}.')
  return tuple(row for row in ROWS if row.dataset == dataset)


def t_tests(rows: Sequence[Row]) -> tuple[np.ndarray, np.ndarray]:
  """Recomputes t = excess / (std / √n) and its one-sided p-value, (rows,) each."""
  n, mean, std = (np.array([getattr(row, k) for row in rows]) for k in ('n', 'excess', 'std'))
  t = mean / (std / np.sqrt(n))
  # One by one, which is one program for any number of rows.
  return t, np.array([_upper_tail(*arguments) for arguments in zip(t, n - 1, strict=True)])


def share_significant(rows: Sequence[Row], alpha: float = 0.05, by_pairs: bool = False) -> float:
  """The share of rows whose recomputed p-value is at most α, of equal weight or of weight n."""
  weights = np.array([row.n for row in rows]) if by_pairs else None
  return float(aggregate.share_significant(t_tests(rows)[1], alpha, weights))


def reduction(rows: Sequence[Row], by_pairs: bool = False) -> float:
  """The share of the mean self-preference that the baseline removes, by rows or by pairs."""
  weights = np.array([row.n for row in rows]) if by_pairs else None
  own, excess = (np.array([getattr(row, k) for row in rows]) for k in ('judge_mean', 'excess'))
  return float(aggregate.mass_removed(own, excess, weights))
