"""The machine's yardsticks, and an update of each method as in PQL's quick run.

  python -m experiments.bench.main --config=configs/bench/quick.py

47 seconds on 2 cores of an AMD EPYC. The networks reach 0.49 [0.47, 0.52] of the rate of a large
matrix product; an update of PQL takes 1.12 times the operations and 1.11 [1.02, 1.19] times the
time of one of FQL, and 57 [56, 60] updates of 3 seeds are done in a second.
"""

import ml_collections

from configs.hsd import quick as hsd
from configs.klent import quick as klent
from configs.pql import quick
from configs.renyi_diffusion import digits


def get_config() -> ml_collections.ConfigDict:
  config = ml_collections.ConfigDict()
  config.cases = ('mlp_gradient', 'bc_flow_update', 'fql_update', 'pql_update')
  config.updates = ml_collections.ConfigDict()  # further cases: a method, and changes of `offline`
  config.plays = ml_collections.ConfigDict()  # and of self-play: a part, and changes of `selfplay`
  config.ratios = (('bc_flow_update', 'fql_update'), ('pql_update', 'fql_update'))
  config.peer = ''  # a checkout of the public FQL, for cases of the method 'peer'
  config.transformers = False  # whether transformers runs beside the language model's cases
  config.torch = False  # whether PyTorch runs beside the training of the U-Net
  config.host_peers = False  # whether NumPy and SciPy run beside the cases of statistics
  config.cpu_devices = 1
  config.rounds = 10  # measurements of each case
  config.min_seconds = 0.2  # shortest measurement
  config.matmul_size = 2048
  config.triad_elements = 2**25

  config.mlp = ml_collections.ConfigDict()
  config.mlp.batch_size = 256
  config.mlp.inputs = 34
  config.mlp.hidden = (256, 256)
  config.mlp.outputs = 5

  config.lm = ml_collections.ConfigDict()
  config.lm.model = 'smollm2-135m-instruct'
  config.lm.dtype = 'float32'
  config.lm.int8 = False
  config.lm.prompt = 1024  # tokens of the prompt that is read
  config.lm.context = 64  # tokens before what is decoded
  config.lm.tokens = 16  # decoded in a call, by each stream

  config.voting = ml_collections.ConfigDict()
  config.voting.questions = 2_000
  config.voting.answers = 5
  config.voting.samples = 256  # drawn of each question before
  config.voting.budgets = 64
  config.voting.largest = 67  # of the budgets, in mean samples a question
  config.voting.batch_fraction = 0.05
  config.voting.seeds = 32
  config.voting.peer_apart = False  # whether NumPy's loop runs each budget by itself

  config.sign_flip = ml_collections.ConfigDict()
  config.sign_flip.pairs = 40_000
  config.sign_flip.pairs_per_item = 5  # of the clustered case
  config.sign_flip.draws = 10_000
  config.sign_flip.peer_draws = 200  # of SciPy, whose time is per draw

  config.diffusion = ml_collections.ConfigDict()
  config.diffusion.mlp = _denoiser((64,), updates=10)  # as for the digits
  config.diffusion.unet = _denoiser((28, 28, 1), updates=1)
  config.diffusion.unet.network.kind = 'unet'
  config.diffusion.unet.network.prediction = 'noise'
  config.diffusion.unet.network.attention = (14,)
  config.diffusion.unet.objective.num_times = 1
  config.diffusion.unet.optimizer.clip = 0.0
  config.diffusion.likelihood = ml_collections.ConfigDict()
  config.diffusion.likelihood.data = digits.get_config().data
  config.diffusion.likelihood.updates = 100  # of the model, before
  config.diffusion.likelihood.points = 1000
  config.diffusion.likelihood.probes = 1  # Hutchinson's, of the divergence; 0: exact
  config.diffusion.likelihood.rtol = 1e-4
  config.diffusion.likelihood.atol = 1e-4

  config.neighbors = ml_collections.ConfigDict()
  config.neighbors.points = 10_000  # of each sample
  config.neighbors.features = 64
  config.neighbors.k = 5

  config.hodge = ml_collections.ConfigDict()
  config.hodge.edges = 30_000  # of the operators' mesh, about
  config.hodge.scaling = (3_000, 30_000)  # edges N of the cases hodge_laplacian1_N
  config.hodge.decomposed_edges = 3_000
  config.hodge.cochains = 8  # that are decomposed at once
  config.hodge.tol = 1e-4  # relative residual of the solves
  config.hodge.training = ml_collections.ConfigDict()
  of_hsd = hsd.get_config()
  for name in ('task', 'space', 'variants', 'batch_size', 'hsd_form', 'fno'):
    config.hodge.training[name] = of_hsd[name]

  config.selfplay = ml_collections.ConfigDict()
  config.selfplay.num_seeds = 1
  of_klent = klent.get_config()
  for name in (
    'game', 'binary_observations', 'evaluations', 'variants',
    'play', 'network', 'optimizer', 'agent',
  ):  # fmt: skip
    config.selfplay[name] = of_klent[name]
  config.selfplay.play.moves = 32  # of 256 games, in a compiled call

  config.offline = ml_collections.ConfigDict()
  config.offline.num_seeds = 3
  config.offline.updates = 10  # in one compiled call
  config.offline.batch_size = 128
  config.offline.rows = 100_000
  config.offline.observation_dim = 28  # as cube-single's
  config.offline.action_dim = 5
  config.offline.agent = quick.get_config().agent
  return config


def _denoiser(shape: tuple[int, ...], updates: int) -> ml_collections.ConfigDict:
  """The digits' run, as far as its training goes, on random data of another shape."""
  run = digits.get_config()
  sizes = ml_collections.ConfigDict()
  sizes.shape = shape
  sizes.rows = 1500
  sizes.num_seeds = 1
  sizes.updates = updates  # in one compiled call
  for name in ('sde', 'start', 'steps', 'batch_size', 'network', 'optimizer', 'objective'):
    sizes[name] = run[name]
  sizes.batch_size = 64
  sizes.network.hidden = (512, 512, 512)
  sizes.objective.num_times = 8
  sizes.objective.alpha = 1.25  # of Rényi training, with the tilt solved for in every batch
  sizes.objective.scale = 'fraction'
  sizes.objective.fraction = 0.5
  sizes.variants = {}
  return sizes
