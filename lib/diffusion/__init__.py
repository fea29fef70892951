"""Diffusion models: SDEs, denoising and Rényi score matching, samplers, likelihood."""
