"""Rényi divergences and the objectives that train diffusion models on them."""
