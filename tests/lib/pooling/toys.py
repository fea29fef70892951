"""Groups of beliefs to test on, and a way to run jax in double precision."""

import functools

import jax
import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.special import log_softmax

N, K = 3, 5
LOGITS = hnp.arrays(np.float64, (N, K), elements=st.floats(-8, 8, allow_subnormal=False))
WEIGHTS = hnp.arrays(np.float64, N, elements=st.floats(0.01, 1)).map(lambda w: w / w.sum())
CONTEXTS = log_softmax(3 * np.random.default_rng(0).normal(size=(4, 2, N, K)), axis=-1)
BETA = np.array([0.2, 0.5, 0.3])
HALVES = np.array([0.5, 0.5])


def exact(f):
  """Runs f jitted and in double precision, from NumPy to NumPy."""
  jitted = jax.jit(f)

  @functools.wraps(f)
  def run(*args):
    with jax.enable_x64(True):
      return jax.device_get(jitted(*args))

  return run
