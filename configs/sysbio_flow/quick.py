"""Forecasts of systems that were never seen, from a third of the curated models."""

import ml_collections


def get_config() -> ml_collections.ConfigDict:
  """A subset of the benchmark, as a base for the others."""
  config = ml_collections.ConfigDict()
  config.seed = 0
  config.num_seeds = 3
  config.vmapped = False  # seeds one by one, which CPUs want; True: all at once
  config.cpu_devices = 1
  config.eval_only = False
  config.methods = (
    'flow', 'structured', 'gaussian', 'mlp', 'analogue', 'prior', 'holt', 'persistence',
  )  # fmt: skip
  # NAME: a method with other numbers; only its section and optimizer may differ.
  config.variants = {
    'structured': {'method': 'cfm'},
    'gaussian': {'method': 'cfm', 'cfm': {'source': 'gaussian'}},
    'feature': {'method': 'cfm', 'cfm': {'source': 'gaussian', 'feature': True}},
    'gp': {'method': 'cfm', 'cfm': {'source': 'gp'}},
  }
  config.claims = (  # (method, baseline, metric, least gain)
    ('flow', 'gaussian', 'log_mae', 0.0),
    ('flow', 'gaussian', 'log_crps', 0.0),
    ('flow', 'mlp', 'log_mae', 0.0),
    ('flow', 'mlp', 'log_crps', 0.0),
    ('structured', 'gaussian', 'log_mae', 0.10),  # the specification's bars
    ('structured', 'gaussian', 'log_crps', 0.10),
    ('structured', 'feature', 'log_mae', 0.05),
    ('structured', 'feature', 'log_crps', 0.05),
  )

  config.data = ml_collections.ConfigDict()
  config.data.dir = 'data/sysbio_flow'
  config.data.folder = ''  # of more SBML files, NAME.xml each
  config.data.models = 350  # drawn at random; 0: all
  config.data.seed = 0
  config.data.workers = 0  # processes; 0: one a core
  config.data.seconds = 20.0  # that a model may take
  config.data.gigabytes = 4.0  # that a process may take
  config.data.valid = 0.1  # of the groups of systems
  config.data.test = 0.2
  config.data.noise = 0.0  # of what is observed, in deviations of the context
  config.data.limit = 25.0  # of series, in the context's unit

  config.recipe = ml_collections.ConfigDict()  # see `trajectories.Recipe`
  config.recipe.horizons = (1.0, 10.0, 100.0, 1e3, 1e4)
  config.recipe.points = 128
  config.recipe.context = 32
  config.recipe.runs = 5
  config.recipe.amounts = 0.25
  config.recipe.parameters = 0.0
  config.recipe.range = 0.02
  config.recipe.channels = 6
  config.recipe.least_after = 0.15
  config.recipe.most_after = 0.97
  config.recipe.rtol = 1e-6
  config.recipe.atol = 1e-9

  config.steps = 1000
  config.batch_size = 128
  config.flip = True  # half of the series of a batch are turned upside down
  config.mix = 0.3  # probability that another series is mixed into one
  config.average = 0.995  # decay of the parameters' average, which is scored
  config.chunk_steps = 250
  config.checkpoint_every = 500

  config.optimizer = ml_collections.ConfigDict()
  config.optimizer.learning_rate = 2e-3
  config.optimizer.warmup_fraction = 0.05
  config.optimizer.weight_decay = 1e-2
  config.optimizer.clip = 1.0

  source = {  # of regimes; `held_out` points at the end of the context weigh them
    'regimes': 'posterior', 'held_out': 4, 'regime_std': 0.1, 'limit': 25.0,
  }  # fmt: skip
  size = {'width': 256, 'layers': 2, 'head_layers': 1}
  config.flow = {
    'feature': False,  # whether the network sees what the regimes foretell
    'space': 'asinh',  # of the quantiles; or linear
    'flow_weight': 1.0,
    **source,
    **size,
    'draws': 4,  # of source and time, for each series of a batch
    'steps': 16,  # of Euler; 0: samples of the source
  }
  config.cfm = {
    'source': 'structured',  # or gaussian, gp
    'feature': False,
    'space': 'asinh',  # of the flow
    's0': 0.1,  # deviation of the source, at the first lead time
    's1': 0.25,  # and how much more at the last
    **source,
    **size,
    'draws': 4,
    'steps': 16,
  }
  config.mlp = {'space': 'asinh', 'width': 256, 'layers': 2}
  config.patchtst = {
    'space': 'asinh', 'patch': 8, 'stride': 4, 'width': 64, 'layers': 2, 'heads': 4, 'rank': 64,
  }  # fmt: skip
  config.nbeats = {
    'space': 'asinh', 'stacks': ('trend', 'seasonal', 'generic'), 'blocks': 2, 'size': 8,
    'width': 128, 'layers': 2,
  }  # fmt: skip
  config.dlinear = {'space': 'asinh', 'kernel': 9}
  config.deepar = {'width': 40, 'noise': 0.1, 'limit': 25.0}
  config.latent_ode = {'latent': 16, 'width': 96, 'floor': 0.01, 'steps': 32}
  config.csdi = {
    'schedule': 'cosine', **size, 'draws': 4, 'gamma': 0.1, 'sampler': 'dpm', 'steps': 20,
    'limit': 25.0,
  }  # fmt: skip
  config.persistence = {}
  config.drift = {'points': 1, 'limit': 12.0}
  config.holt = {}
  config.harmonic = {}
  config.parroting = {'points': 8}
  config.analogue = {'neighbors': 20}
  config.prior = {'s0': 0.1, 's1': 0.25, **source}

  config.eval = ml_collections.ConfigDict()
  config.eval.split = 'test'  # valid, to choose by
  config.eval.samples = 40
  config.eval.calibrate = True  # samples are drawn apart as on validation systems covers best
  config.eval.shown = 6  # series in the figures
  config.eval.valid = 2048  # series of validation while training
  return config
