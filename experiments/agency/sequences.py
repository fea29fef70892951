"""Answers instead of tokens as outcomes: the census over sampled continuations."""

import pathlib

import ml_collections
import numpy as np
from scipy import special

from experiments.agency import beliefs
from lib.io import models
from lib.lm import sampling, text


def of_questions(
  config: ml_collections.ConfigDict, model: models.Model, workdir: pathlib.Path
) -> list[np.ndarray]:
  """For each question the personas' beliefs over answers that they sampled, (n, K), normalised.

  Each persona contributes as many answers of `answer_tokens` tokens; those that are the same count
  once. Their log-probabilities are exact, under every persona, and normalised over the answers.
  """
  systems = list(config.personas.values())
  sampled = {name: config[name] for name in ('answers', 'answer_tokens', 'seed')}
  found = []
  for question in config.questions[: config.sequence_questions]:
    prompts = [beliefs.prompt(model, system, question) for system in systems]

    def compute(prompts=prompts) -> np.ndarray:
      samples = text.complete(
        model.arch,
        model.params,
        prompts,
        model.tokenizer.decode,
        max_tokens=config.answer_tokens,
        settings=sampling.Sampling(),
        num_samples=-(-config.answers // len(prompts)),
        seed=config.seed,
        batch_size=config.answers,
      )
      answers = sorted({tuple(one.tokens) for several in samples for one in several})
      tokens = np.array(answers, np.int32)
      count = -(-len(tokens) // 16) * 16  # a few shapes
      padded = np.concatenate([tokens, np.repeat(tokens[:1], count - len(tokens), axis=0)])
      return beliefs.continuations(model, prompts, padded)[:, : len(tokens)]

    key = beliefs.dependence(config, question=question, **sampled)
    rows = beliefs.cached(workdir / 'sequences.npz', key, compute)
    found.append(special.log_softmax(rows, axis=-1))
  return found
