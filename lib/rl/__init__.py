"""Critics, losses and offline batches of reinforcement learning."""
