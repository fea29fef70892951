"""Decoder language models: the transformer, checkpoints by name, generation and scoring."""
