"""A small U-Net on MNIST at 14x14, with classes from common to rare.

  python -m experiments.renyi_diffusion.main --config=configs/renyi_diffusion/mnist.py
  python -m experiments.renyi_diffusion.main --config=configs/renyi_diffusion/mnist.py:full

The small one took 46 minutes on 2 cores of an AMD EPYC beside other jobs. It is far from its end:
precision 0.44, 0.48 and 0.50 at alpha 0.8, 1 and 1.25, bounds of 3.4 bits per dimension, and none
of its claims holds. The full one has not been run.
"""

import ml_collections

from configs.renyi_diffusion import digits


def get_config(part: str = 'small') -> ml_collections.ConfigDict:
  """5,000 digits at 14x14 on two cores ('small'), or at 28x28 on an accelerator ('full')."""
  config = digits.get_config()
  config.num_seeds = 3
  config.vmapped = False
  config.methods = ('likelihood', 'renyi_0_8', 'renyi_1_25')
  config.claims = (
    ('renyi_1_25', 'likelihood', 'rare_bpd', 0.0),
    ('renyi_0_8', 'likelihood', 'fd_cnn', 0.0),
    ('renyi_0_8', 'likelihood', 'precision', 0.0),
  )
  config.data.source = 'mnist'
  config.data.test = 300
  config.data.pool = 2
  config.start = 1e-5
  config.network.kind = 'unet'
  config.network.channels = 16
  config.optimizer.ema = 0.99
  config.batch_size = 16
  config.steps = 600
  config.chunk_steps = 20
  config.checkpoint_every = 100
  config.objective.num_times = 4
  config.eval.samples = 500
  config.eval.compared = 500
  config.eval.sampler = 'dpm'
  config.eval.sampler_steps = 30
  config.eval.probes = 1
  config.eval.rtol = 1e-3
  config.eval.atol = 1e-3
  if part == 'full':
    config.vmapped = True
    config.methods = ('likelihood', *(f'renyi_{name}' for name in digits.SWEEP))
    config.data.test = 1000
    config.data.pool = 1
    config.network.channels = 32
    config.network.multipliers = (1, 2, 2)
    config.network.attention = (14,)
    config.network.blocks = 2
    config.network.dropout = 0.1
    config.optimizer.ema = 0.999
    config.batch_size = 128
    config.steps = 20_000
    config.chunk_steps = 100
    config.checkpoint_every = 1000
    config.eval.samples = 5000
    config.eval.compared = 4000
    config.eval.sampler_steps = 50
  elif part != 'small':
    raise ValueError(f'no part {part!r}: small or full')
  return config
