r"""Speed of discrete exterior calculus, with SciPy's sparse matrices beside it.

  python -m experiments.bench.main --config=configs/bench/hodge.py
  python -m experiments.bench.main --config=configs/bench/hodge.py:decompose

Operators are on a flat torus in float32; their peers are products with one matrix each. The share
of the roofline is that of the memory's bandwidth, at the least bytes of a call. hodge_laplacian1_N
has about N edges, and a unit of it is an edge. 'decompose' splits 64 1-cochains at once; its peers
are SciPy's conjugate gradients, cochain by cochain, with the same scaling and tolerance, and sparse
LU: 'splu' factorises and solves, 'splu_solves' only solves. Equality is checked before timing.
hodge_form_step and hodge_fno_step are loss and gradient of two of HSD's methods on its torus.
"""

import ml_collections

from configs.bench import quick

OPERATORS = (
  'hodge_d0', 'hodge_d0_transpose', 'hodge_d1', 'hodge_d1_transpose', 'hodge_codifferential1',
  'hodge_laplacian0', 'hodge_laplacian1',
)  # fmt: skip
SIZES = (10_000, 100_000, 1_000_000)


def get_config(part: str = 'core') -> ml_collections.ConfigDict:
  """Operators, their cost by size and steps of training ('core'), or solves ('decompose')."""
  config = quick.get_config()
  config.host_peers = True
  config.hodge.edges = 1_000_000
  config.hodge.scaling = SIZES
  config.hodge.decomposed_edges = 100_000
  config.hodge.cochains = 64
  if part == 'core':
    first, *others = (f'hodge_laplacian1_{edges}' for edges in SIZES)
    config.cases = (*OPERATORS, first, *others, 'hodge_form_step', 'hodge_fno_step')
    config.ratios = (
      *((other, first) for other in others),
      ('hodge_form_step', 'hodge_fno_step'),
    )
  elif part == 'decompose':
    config.cases = ('hodge_decompose',)
    config.ratios = ()
    config.rounds = 2
  else:
    raise ValueError(f'no part {part!r}: core or decompose')
  return config
