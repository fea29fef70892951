"""Public implementations, run beside ours from a checkout of their own; none of it is copied."""

import importlib
import importlib.util
import pathlib
import sys

import jax
import ml_collections
import numpy as np

from experiments.bench import cases, yardsticks
from lib.io import models


def check(path: str) -> None:
  """Raises a ValueError unless there is a checkout of the public FQL at `path`."""
  if not (pathlib.Path(path) / 'agents' / 'fql.py').is_file():
    raise ValueError(f'config.peer: no checkout of seohongpark/fql at {path!r}.')


def check_transformers() -> None:
  """Raises a ValueError unless transformers and torch are installed."""
  for name in ('torch', 'transformers'):
    if importlib.util.find_spec(name) is None:
      raise ValueError(f'config.transformers: {name} is not installed.')


def fql(path: str, sizes: ml_collections.ConfigDict) -> yardsticks.Task:
  """One update of the authors' flow Q-learning as they run it, batch and dispatch included.

  Args:
    path: a checkout of https://github.com/seohongpark/fql.
    sizes: as `cases.offline_updates`; of `agent` its widths, Euler steps and α.

  Returns:
    A task whose work is that of our own update of these sizes.

  Raises:
    ValueError: if there is no such code at the path.
  """
  check(path)
  sys.path.insert(0, str(path))
  try:
    module = importlib.import_module('agents.fql')
  finally:
    sys.path.remove(str(path))
  config = module.get_config()
  widths = tuple(sizes.agent.hidden_dims)
  config.update({'actor_hidden_dims': widths, 'value_hidden_dims': widths})
  config.update({'flow_steps': sizes.agent.flow_steps, 'alpha': sizes.agent.alpha})
  ours = cases.offline_updates('fql', sizes)
  data = {name: np.asarray(column) for name, column in ours.args[2].items()}
  agent = module.FQLAgent.create(0, data['observations'][:1], data['actions'][:1], config)
  rng = np.random.default_rng(0)

  def call():
    nonlocal agent
    index = rng.integers(len(data['rewards']), size=sizes.batch_size)
    agent, info = agent.update(jax.tree.map(lambda column: column[index], data))
    return info

  return yardsticks.Task(call, yardsticks.flops(ours.fn, *ours.args) / sizes.updates)


def transformers_lm(kind: str, config: ml_collections.ConfigDict, ours: cases.Case):
  """The same inference by Hugging Face transformers on PyTorch, with the same weights.

  Args:
    kind: as `cases.language_model`.
    config: as there; the model is a GGUF file.
    ours: our case, whose work it has.

  Returns:
    A task.
  """
  import torch
  import transformers

  sizes = config.lm
  path = models.find(sizes.model)
  model = transformers.AutoModelForCausalLM.from_pretrained(
    path.parent, gguf_file=path.name, dtype=getattr(torch, sizes.dtype)
  ).eval()
  assert ours.work is not None
  if kind == 'prefill':
    tokens = torch.arange(sizes.prompt)[None] % model.config.vocab_size

    def call():
      with torch.inference_mode():
        model(tokens, logits_to_keep=1)
      return ()

    return yardsticks.Task(call, ours.work)
  streams = int(kind.removeprefix('decode_'))
  tokens = torch.ones((streams, sizes.context), dtype=torch.long)
  with torch.inference_mode():
    read = model(tokens, use_cache=True)

  def call():
    cache = read.past_key_values
    token = read.logits[:, -1].argmax(dim=-1, keepdim=True)
    with torch.inference_mode():
      for _ in range(sizes.tokens):
        out = model(token, past_key_values=cache, use_cache=True)
        token = out.logits[:, -1].argmax(dim=-1, keepdim=True)
    cache.crop(-sizes.tokens)
    return ()

  return yardsticks.Task(call, ours.work)
