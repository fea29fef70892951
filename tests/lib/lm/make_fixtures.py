"""Makes the fixtures of test_checkpoints with transformers and torch, which the tests do not need.

  pip install torch transformers
  python tests/lib/lm/make_fixtures.py

Small models of each family with random parameters, as Hugging Face directories, and the logits that
transformers computes in float32 for some tokens.
"""

import pathlib
import shutil

import numpy as np
import torch
import transformers

SIZES = {
  'vocab_size': 48,
  'hidden_size': 24,
  'intermediate_size': 20,
  'num_hidden_layers': 2,
  'num_attention_heads': 4,
  'num_key_value_heads': 2,
  'max_position_embeddings': 64,
  'bos_token_id': 0,
  'eos_token_id': 1,
  'pad_token_id': None,
}
LLAMA3 = {
  'rope_type': 'llama3',
  'factor': 4.0,
  'low_freq_factor': 1.0,
  'high_freq_factor': 4.0,
  'original_max_position_embeddings': 16,
  'rope_theta': 500.0,
}
MODELS = {
  'llama': transformers.LlamaConfig(**SIZES, tie_word_embeddings=True, rms_norm_eps=1e-5),
  'llama3': transformers.LlamaConfig(
    **SIZES, tie_word_embeddings=False, rope_theta=500.0, rope_scaling=LLAMA3
  ),
  'mistral': transformers.MistralConfig(**SIZES, tie_word_embeddings=False, sliding_window=4),
  'qwen2': transformers.Qwen2Config(**SIZES, tie_word_embeddings=True),
  'qwen3': transformers.Qwen3Config(**SIZES, tie_word_embeddings=False, head_dim=8),
}


def main() -> None:
  root = pathlib.Path(__file__).parent / 'fixtures'
  for name, config in MODELS.items():
    torch.manual_seed(0)
    config._attn_implementation = 'eager'
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
      for parameter in model.parameters():
        parameter.add_(0.15 * torch.randn_like(parameter))
      tokens = torch.randint(0, SIZES['vocab_size'], (2, 24))
      logits = model(tokens).logits
    directory = root / name
    shutil.rmtree(directory, ignore_errors=True)
    model.save_pretrained(directory)
    (directory / 'generation_config.json').unlink(missing_ok=True)
    np.savez(directory / 'expected.npz', tokens=tokens.numpy(), logits=logits.numpy())


if __name__ == '__main__':
  main()
